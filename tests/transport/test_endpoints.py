import pytest
import zmq

import oz
from oz.transport import endpoints


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://127.0.0.1:5555",
        "tcp://127.8.9.1:5555",
        "tcp://[::1]:5555",
        "tcp://localhost:5555",
        "tcp://lo:5555",
        "tcp://10.0.0.1:0;127.0.0.1:5555",
        "ipc:///tmp/x",
        "inproc://x",
    ],
)
def test_what_stays_on_this_host_is_local(endpoint):
    assert endpoints.is_local(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://0.0.0.0:5555",
        "tcp://*:5555",
        "tcp://[::]:5555",
        "tcp://10.0.0.1:5555",
        "tcp://127.0.0.1:0;10.0.0.1:5555",
        "tcp://127.0.0.1.example.org:5555",
        "tcp://localhost.example.org:5555",
        "tcp://eth0:5555",
        "epgm://127.0.0.1;239.192.1.1:5555",
        "udp://127.0.0.1:5555",
    ],
)
def test_what_may_leave_this_host_is_not_local(endpoint):
    assert not endpoints.is_local(endpoint)


@pytest.mark.parametrize("endpoint", ["", "tcp", "tcp:/127.0.0.1:1", "tcp://", "127.0.0.1:5555"])
def test_what_is_no_endpoint_is_refused_with_an_example(endpoint):
    with pytest.raises(ValueError, match=r"looks like tcp://127\.0\.0\.1:5555"):
        endpoints.check(endpoint, own_context=False)


@pytest.mark.parametrize("endpoint", [None, 5555, ["tcp://127.0.0.1:1"]])
def test_what_is_no_text_is_a_type_error(endpoint):
    with pytest.raises(TypeError, match="an endpoint is a str"):
        endpoints.check(endpoint, own_context=False)


@pytest.mark.skipif(zmq.has("pgm"), reason="this libzmq has PGM")
@pytest.mark.parametrize("scheme", ["pgm", "epgm"])
def test_a_transport_that_is_not_built_in_is_refused_with_what_to_do(scheme):
    with pytest.raises(oz.TransportUnavailable, match="PYZMQ_NO_BUNDLE=1"):
        endpoints.check(f"{scheme}://127.0.0.1;239.192.1.1:5555", own_context=False)


def test_inproc_needs_a_shared_context():
    with pytest.raises(ValueError, match="context="):
        endpoints.check("inproc://x", own_context=True)
    endpoints.check("inproc://x", own_context=False)


def test_one_endpoint_or_several_or_none_may_be_given():
    assert endpoints.as_list(None) == []
    assert endpoints.as_list("tcp://a:1") == ["tcp://a:1"]
    assert endpoints.as_list(("tcp://a:1", "tcp://b:1")) == ["tcp://a:1", "tcp://b:1"]


def test_the_endpoint_has_the_port_that_the_system_chose():
    with oz.Publisher() as pub:
        with pytest.raises(ValueError, match="neither bound nor connected"):
            _ = pub.endpoint
        pub.bind("tcp://127.0.0.1:*")
        port = int(pub.endpoint.removeprefix("tcp://127.0.0.1:"))
        assert port > 0
        with oz.Subscriber(pub.endpoint) as sub:
            assert sub.endpoint == pub.endpoint
