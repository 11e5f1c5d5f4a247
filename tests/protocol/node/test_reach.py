"""Which announced endpoints a node connects to."""

from dataclasses import replace

from oz.protocol.node.reach import Reach, host_of
from oz.security.identity import make_uuid_of
from support.announcing import announcement
from support.cases import each

OWN = announcement(2, endpoints=("tcp://192.0.2.1:5757",), local_endpoint="ipc:///run/oz/ab12-02.sock")


def at(*endpoints, **changes):
    return announcement(4, endpoints=endpoints, **{"local_endpoint": None, "host_id": b"other", **changes})


@each(
    "endpoint",
    [
        "tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://255.255.255.255:1", "tcp://224.0.0.1:1", "tcp://[ff02::1]:1",
        "tcp://[::ffff:239.1.2.3]:1", "tcp://127.0.0.1:1", "tcp://[::1]:1", "tcp://db.example:1", "tcp://eth0:1",
        "tcp://127.1:1", "tcp://localhost:1",
    ],
)  # fmt: skip
def test_what_is_no_address_of_one_other_host_is_refused(endpoint):
    assert Reach(OWN, ["tcp://192.0.2.7:5756"]).refusal(at(endpoint)) is not None


@each("endpoint", ["tcp://192.0.2.9:1", "tcp://[2001:db8::1]:1", "tcp://[fe80::1%eth0]:1"])
def test_addresses_of_hosts_are_connected_to(endpoint):
    assert Reach(OWN).refusal(at(endpoint)) is None


def test_names_are_connected_to_that_the_user_has_written():
    reach = Reach(OWN, ["tcp://DB.example:5756"])
    assert reach.refusal(at("tcp://db.example:1")) is None
    assert "stands in no peers=" in reach.refusal(at("tcp://other.example:1"))


def test_loopback_is_for_those_of_this_host_or_who_use_it_themselves():
    near = at("tcp://127.0.0.1:1", host_id=OWN.host_id)
    assert Reach(OWN).refusal(near) is None
    for reach in (Reach(OWN, ["tcp://localhost:5756"]), Reach(at("tcp://127.0.0.1:2"))):
        assert reach.refusal(at("tcp://127.0.0.1:1")) is None


def test_who_has_no_endpoint_or_an_own_one_is_not_refused():
    assert Reach(OWN).refusal(at()) is None
    assert Reach(OWN).refusal(at(*OWN.endpoints)) is None


@each(
    ("endpoint", "is_in_directory"),
    [
        ("ipc:///run/oz/ab12-04.sock", True), ("ipc:///run/oz/cd34-04.sock", False),
        ("ipc:///run/oz/ab12-/../../x", False), ("ipc:///run/x", False), ("ipc://@x", False),
        ("ipc:///run/oz/ab12-", False),
    ],
)  # fmt: skip
def test_sockets_of_this_bus_directly_in_the_own_directory_are_near(endpoint, is_in_directory):
    assert Reach(OWN, directory="ipc:///run/oz/ab12-").is_in_directory(endpoint) is is_in_directory


def test_host_of_an_endpoint_has_no_brackets():
    assert [host_of(one) for one in ("tcp://[::1]:1", "tcp://a.b:1", "ipc://a")] == ["::1", "a.b", None]


KEY, OTHER = "k" * 40, "o" * 40


def keyed(key, made_from=None):
    return replace(at("tcp://192.0.2.9:1", key=key), uuid=make_uuid_of(made_from or KEY, bytes))


@each(
    ("own", "peer", "said"),
    [
        (KEY, keyed(KEY), None),
        (KEY, keyed(None), "has no key"),
        (KEY, keyed(OTHER), "not made from its key"),
        (KEY, keyed(OTHER, OTHER), "not trusted"),
        (None, keyed(KEY), "demands keys"),
    ],
)
def test_who_has_no_trusted_key_of_its_own_is_refused_where_there_are_keys(own, peer, said):
    refusal = Reach(replace(OWN, key=own), trusts=lambda key: key == KEY).refusal(peer)
    assert refusal is None if said is None else said in refusal
