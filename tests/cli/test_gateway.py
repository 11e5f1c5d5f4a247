"""`oz gateway`: what is wrong with its arguments is said, whatever this libzmq has."""

from support.cases import each


@each("endpoint", ["tcp://", "tcp://127.0.0.1:5555", "epgm://", "epgm://eth0;192.0.2.1:5555", "nonsense"])
def test_what_is_no_multicast_endpoint_is_told_before_pgm_is_missed(oz, endpoint):
    result = oz("gateway", "--receive", endpoint, "--bind", "tcp://127.0.0.1:*")
    assert result.exit_code != 0
    assert repr(endpoint) in result.stderr
    assert "pip install" not in result.stderr


def test_what_is_received_for_nobody_is_told_before_pgm_is_missed(oz):
    result = oz("gateway", "--receive", "epgm://eth0;239.192.1.1:5555")
    assert result.exit_code == 2
    assert "give subscribers=" in result.stderr
