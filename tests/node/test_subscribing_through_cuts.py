"""Subscriptions that are asked for while the link to a peer is cut again and again."""

import sys

import pytest

import oz
from oz.transport.node.subscriber import PATIENCE
from support.fault_proxy import FaultProxy
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="all of 127.0.0.0/8 is this host's on Linux")


def test_none_of_them_waits_to_be_declared_again_until_the_patience_is_over(short_directory):
    got, wanted = set(), [f"s{number}.x" for number in range(200)]
    with FaultProxy("tcp://127.0.0.2:1") as proxy:
        # Peers are told an address, so the proxy and the node have one port.
        port = int(proxy.endpoint.rpartition(":")[2])
        proxy.pass_on_to(f"tcp://127.0.0.2:{port}")
        there = {"bind": f"tcp://127.0.0.2:{port}", "advertise": "127.0.0.1"}
        with (
            oz.Node("feed", directory=short_directory / "a", **there) as feed,
            oz.Node(
                "desk", bind="tcp://127.0.0.1:*", peers=proxy.endpoint, directory=short_directory / "b"
            ) as desk,
        ):
            desk.wait_for_peers("feed", DEADLINE)
            for number, subject in enumerate(wanted):
                desk.subscribe(subject, handler=lambda message: got.add(message.subject))
                if number % 10 == 0:
                    proxy.half_open() if number % 40 == 0 else proxy.cut("fin" if number % 20 else "rst")
            proxy.release()

            def all_come():
                for subject in wanted:
                    if subject not in got:
                        feed.publish(subject, b"")
                return len(got) == len(wanted)

            until(all_come, PATIENCE / 2)
            desk.wait_ready(PATIENCE / 2)
