"""A peer that answers requests which it did not get, and asks for replies on subjects that are no inboxes."""

import shutil
import tempfile
from pathlib import Path

import pytest

import oz
from support.scripts import started
from support.sizes import size
from support.waiting import DEADLINE, until

ANSWERING = Path(__file__).with_name("answering.py")


@pytest.fixture
def directory():
    made = tempfile.mkdtemp(prefix="oz-", dir="/tmp")
    yield f"{made}/bus"
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.sized
def test_replies_come_of_whom_was_asked_and_go_to_inboxes_only(directory):
    with (
        oz.Node("victim", directory=directory) as victim,
        oz.Node("honest", directory=directory) as honest,
        started(ANSWERING, directory, "victim") as attacker,
    ):
        raised, orders = [], []
        honest.subscribe("orders.new", handler=orders.append)
        honest.subscribe("honest", handler=lambda message: message.reply("true"))

        def answer(message):
            try:
                message.reply("answer")
            except BaseException as error:
                raised.append(error)

        victim.subscribe("svc", handler=answer)
        refused = victim.subscribe("_OZ.ADVISORY.WARN.REFUSED")
        assert attacker.stdout.readline() == "ready\n", attacker.stderr.read()
        honest.wait_ready(DEADLINE)
        until(lambda: victim.stats.refused_replies >= 20)
        for _ in range(size(20, 99)):
            assert victim.request("honest", timeout=DEADLINE).payload == "true"
            assert honest.request("svc", timeout=DEADLINE).payload == "answer"
        assert refused.receive(DEADLINE).payload.about == "replies"
        until(lambda: victim.stats.refused_replies >= size(300, 1_000))
        assert attacker.poll() is None
        assert (raised, orders, victim.stats.failed) == ([], [], 0)


def test_inbox_of_a_request_cannot_be_guessed_from_those_before(directory):
    with oz.Node("asks", directory=directory) as asks:
        inboxes = []
        asks.subscribe("svc", handler=lambda message: (inboxes.append(message.reply_to), message.reply(1)))
        for _ in range(100):
            asks.request("svc", timeout=DEADLINE)
    secrets = {int(inbox[-39:]) for inbox in inboxes}
    assert len(secrets) == 100
    assert max(secrets).bit_length() > 120
    assert max(secrets) < 2**128
