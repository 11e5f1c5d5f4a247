"""A peer that says that it is another node, to the name server and to the publishers of nodes."""

import shutil
import tempfile
from pathlib import Path

import pytest

import oz
from oz.services.nameserver import NameServer
from support.inside import registry_of
from support.scripts import started
from support.waiting import DEADLINE, Thread, until

IMPERSONATING = Path(__file__).with_name("impersonating.py")


@pytest.fixture
def directory():
    made = tempfile.mkdtemp(prefix="oz-", dir="/tmp")
    yield f"{made}/bus"
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def nameserver():
    with NameServer("tcp://127.0.0.1:*") as server:
        running = Thread(server.run)
        yield server
    running.outcome()


def test_node_stays_joined_where_it_is_whoever_else_says_to_be_it(directory, nameserver):
    options = {"nameserver": nameserver.endpoint, "directory": directory, "join_timeout": DEADLINE}
    changes = []
    with (
        oz.Node("victim", **options) as victim,
        oz.Node("honest", on_peer=lambda peer, what: changes.append((peer.name, what)), **options) as honest,
    ):
        victim.subscribe("svc", handler=lambda message: message.reply("victim"))
        honest.wait_for_peers({"victim"}, timeout=DEADLINE)
        honest.wait_ready(DEADLINE)
        with started(IMPERSONATING, nameserver.endpoint, "victim", "honest") as attacker:
            assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()

            def is_refused():
                assert attacker.poll() is None, attacker.stderr.read()
                return nameserver.stats.refused >= 10 and honest.stats.refused_announcements >= 4

            until(is_refused)
            for _ in range(200):
                assert honest.request("svc", timeout=DEADLINE).payload == "victim"
            with oz.Node("late", **options) as late:
                late.wait_for_peers({"victim", "honest"}, timeout=DEADLINE)
                assert late.request("svc", timeout=DEADLINE).payload == "victim"
                assert {peer.uuid: peer for peer in late.peers}[
                    victim.announcement.uuid
                ] == victim.announcement
                # It may have found the honest one before that has found it, who would never miss it then.
                until(lambda: ("late", "up") in changes)
            assert attacker.poll() is None
        until(lambda: {("late", "left"), ("late", "lost")} & {*changes})
        assert [one for one in changes if one[0] == "victim"] == [("victim", "up")]
        assert victim.announcement in nameserver.nodes


def test_node_whose_connection_to_its_name_server_is_made_anew_stays_there(directory, nameserver):
    options = {"nameserver": nameserver.endpoint, "directory": directory, "join_timeout": DEADLINE}
    with oz.Node("node", **options) as node:
        # The name server knows nothing of a connection that it did not see the end of.
        registry = registry_of(nameserver)
        there = registry._nodes[node.announcement.uuid]
        del registry._by_peer[there.peer]
        there.peer = b"\0gone"
        registry._by_peer[there.peer] = node.announcement.uuid
        until(lambda: there.peer != b"\0gone")
        assert nameserver.stats.lost == 0
