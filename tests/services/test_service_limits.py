"""Services keep to limits that they are given."""

import time
from tempfile import TemporaryDirectory

import pytest
import zmq

import oz
from oz.protocol.node.registry import Registry
from oz.security.limits import node_limits
from oz.services import NameServer, Proxy
from oz.services.forwarder import Forwarder
from oz.wire.discovery import Announce, pack
from support.announcing import announcement
from support.inside import ends_of, socket_of

LIMITS = oz.Limits(message_bytes=70_000, handshake=1.5, peers=2)


def said(socket):
    return socket.get(zmq.MAXMSGSIZE), socket.get(zmq.HANDSHAKE_IVL)


def test_a_name_server_takes_requests_of_its_protocol_only_and_its_other_limits_from_the_caller():
    with NameServer("tcp://127.0.0.1:*", limits=LIMITS) as server:
        assert said(socket_of(server)) == (8_192, 1_500)


def test_a_name_server_keeps_no_more_nodes_than_its_limits_say():
    registry = Registry(bytes(16), "ns", limits=node_limits(LIMITS))
    for number in range(3):
        registry.receive(b"%d" % number, pack(Announce(announcement(number), True)), time.monotonic())
    assert len(registry.nodes) == 2
    assert registry.stats.refused == 1


def test_a_plain_forwarder_bounds_frames_of_publishers():
    with Proxy(frontend="tcp://127.0.0.1:*", backend="tcp://127.0.0.1:*", limits=LIMITS) as proxy:
        assert said(ends_of(proxy)[0]) == (70_000, 1_500)
        assert said(ends_of(proxy)[1]) == (70_000, 1_500)


def test_each_leg_of_a_forwarder_has_limits():
    # The path of a socket has little room.
    with TemporaryDirectory(prefix="oz-") as place:
        legs = [{"bus": bus, "directory": place, "limits": LIMITS} for bus in "ab"]
        with Forwarder(legs) as forwarder:
            assert [leg.engine.settings.publishing.limits for leg in forwarder.legs] == [
                node_limits(LIMITS)
            ] * 2


@pytest.mark.parametrize(
    "make",
    [
        lambda limits: NameServer("tcp://127.0.0.1:*", limits=limits),
        lambda limits: Proxy(frontend="tcp://127.0.0.1:*", backend="tcp://127.0.0.1:*", limits=limits),
    ],
)
def test_a_service_refuses_what_are_no_limits(make):
    with pytest.raises(TypeError, match=r"limits is oz\.Limits"):
        make({"nodes": 3})
