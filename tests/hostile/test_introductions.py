"""A peer that introduces 1,300 others: most take a connection and say nothing, the rest are nowhere."""

import shutil
import tempfile
from pathlib import Path

import pytest

import oz
from support.scripts import started
from support.waiting import DEADLINE, until

INTRODUCING = Path(__file__).with_name("introducing.py")
NOWHERE = 5
"""Of them: at endpoints to which no node connects."""


@pytest.fixture
def directory():
    made = tempfile.mkdtemp(prefix="oz-", dir="/tmp")
    yield f"{made}/bus"
    shutil.rmtree(made, ignore_errors=True)


def test_introductions_of_nobody_are_followed_a_few_at_a_time_and_to_hosts_only(directory):
    with (
        oz.Node("victim", directory=directory, bind="tcp://127.0.0.1:*") as victim,
        oz.Node("honest", directory=directory, bind="tcp://127.0.0.1:*") as honest,
        started(INTRODUCING, directory, "victim") as attacker,
    ):
        victim.subscribe("svc", handler=lambda message: message.reply(message.payload))
        refused = victim.subscribe("_OZ.ADVISORY.WARN.REFUSED")
        assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()
        honest.wait_for_peers({"victim", "attacker"}, timeout=DEADLINE)
        attacker.stdin.write("introduce\n")
        attacker.stdin.flush()
        assert attacker.stdout.readline() == "introduced\n", attacker.stderr.read()
        until(lambda: victim.stats.refused_introductions >= NOWHERE)
        assert "introductions" in refused.receive(DEADLINE).payload.about
        # As long as it takes for the first of them to be given up, and others to be tried.
        for number in range(400):
            assert honest.request("svc", number, timeout=DEADLINE).payload == number
        attacker.stdin.write("how many\n")
        attacker.stdin.flush()
        most = int(attacker.stdout.readline())
        assert 0 < most <= 20
        assert {"attacker", "honest"} <= {peer.name for peer in victim.peers}
