"""Defects of the history of oz that the simulation finds: without them a green run would prove nothing.

An entry with the id of a commit reverts the fix of that commit; `git show` explains the fix. Other entries remove a
mechanism. The seed of an entry is the first seed whose run failed.
"""

from __future__ import annotations

import inspect
import textwrap
from typing import Any, NamedTuple

import pytest

from oz.node.exchange import Exchange
from oz.node.roster import Introduce, Roster
from oz.publisher.session import Session
from oz.publisher.sessions import Sessions
from oz.services.bridge_groups import Jobs
from oz.services.bridge_leg import Leg
from oz.subscriber.connections import Connections
from oz.subscriber.link import Link
from oz.subscriber.queue import Dispatcher, Queue
from oz.testing.connections import End
from simulation.buses import BusWorld, TwinWorld
from simulation.links import LinkWorld, OneWayWorld
from simulation.running import run


class Defect(NamedTuple):
    """A defect, and a run that fails with it.

    Attributes:
        world: of the run.
        seed: of the run.
        kind: begin of the violation.
        owner: class with the method.
        method: name of the method.
        changes: old and new code of the method, or a function in place of the method.
    """

    world: type
    seed: int
    kind: str
    owner: type
    method: str
    changes: Any


def _name_new_publisher(link, welcome, listened, effects, original=Link._on_welcome):
    original(link, welcome, listened, effects)
    effects[:] = [effect._replace(origin=None) if hasattr(effect, "origin") else effect for effect in effects]


def _greet_without_introduction(roster, *arguments, original=Roster.on_hello):
    return [item for item in original(roster, *arguments) if not isinstance(item, Introduce)]


def _report_no_loss_of_several_queues(leg, *arguments, original=Leg.__init__):
    original(leg, *arguments)
    leg.engine.subscriber.gap_listeners.pop()


def _resume_without_resending(session, hello, route, now, original=Session.resume):
    sent, batches = session.sent, session._sent_batches
    original(session, hello, route, now)
    session.sent, session._sent_batches = sent, min(batches, len(session.batches))


def _reply_twice(exchange, message, value, original=Exchange.answer, **options):
    original(exchange, message, value, **options)
    original(exchange, message, value, **options)


def _nothing(*_, **__):
    pass


DEFECTS = {
    "548aade4 losses of a replaced publisher have the name of the new one": Defect(
        BusWorld, 9, "{} reports an unknown loss of {} without cause", Link, "_on_welcome", _name_new_publisher
    ),
    "79cd9e8e a first HELLO is not answered with the peers": Defect(
        BusWorld, 0, "{} is not ready after {} s", Roster, "on_hello", _greet_without_introduction
    ),
    "c61152d6 a session does not resume if its first HELLO had the epoch of an ended one": Defect(
        BusWorld, 570, "{} is not ready after {} s", Session, "resumes",
        ("hello.epoch == self._known_epoch", "hello.epoch == links.UNKNOWN_EPOCH"),
    ),
    "05dc41a3 a forwarder reports no loss of several queues": Defect(
        BusWorld, 126, "{} misses {} of another bus", Leg, "__init__", _report_no_loss_of_several_queues
    ),
    "9a712273 a forwarder acknowledges the jobs of a member that was the only one": Defect(
        BusWorld, 868, "job {} is lost", Jobs, "_reclaim",
        ("job = jobs.pop(position)\n",
         """job = jobs.pop(position)
        if not self._has_other(job, stream):
            job.message.ack()
            continue
"""),
    ),
    "f8df8b00 a gap of a full queue names the wrong publisher": Defect(
        LinkWorld, 11, "{} did not receive {} messages, and gaps count {}", Queue, "_make_space",
        ("origins.pop() if len(origins) == 1 else None", "origin"),
    ),
    "7c5e766f all connections of a subscriber on the test bus have one ROUTING_ID": Defect(
        TwinWorld, 7, "{} reports an unknown loss of {} without cause", End, "_join",
        ("name=self._identity", "name=self.socket.identity"),
    ),
    "no resending after a new connection": Defect(
        LinkWorld, 17, "at the end messages are missing", Session, "resume", _resume_without_resending
    ),
    "no replaced connections": Defect(
        LinkWorld, 3, "Timeout in wait_ready", Connections, "_replace", _nothing
    ),
    "716acfc1 a link does not notice that a publisher receives nothing": Defect(
        OneWayWorld, 0, "Timeout in wait_ready", Link, "_check_ignored", _nothing
    ),
    "no gaps": Defect(LinkWorld, 1, "{} misses {}", Dispatcher, "put_gap", _nothing),
    "no reports of drops": Defect(LinkWorld, 3, "{} misses {}", Link, "_report_drops", _nothing),
    "d501e38e the jobs of a member that closes go to other members at once": Defect(
        BusWorld, 100, "job {} was handled again without a mark", Sessions, "_move_removed",
        ("kept=kept, is_drained=is_drained", "kept=kept"),
    ),
    "messages of a silent member stay with it": Defect(
        LinkWorld, 0, "job {} is lost", Sessions, "_redeliver", _nothing
    ),
    "two replies": Defect(BusWorld, 0, "{} replied twice to {}", Exchange, "answer", _reply_twice),
}  # fmt: skip


def replacement(defect):
    """Return the method with the defect."""
    if callable(defect.changes):
        return defect.changes
    function = getattr(defect.owner, defect.method)
    source, (old, new) = textwrap.dedent(inspect.getsource(function)), defect.changes
    assert source.count(old) == 1
    found: dict[str, Any] = {}
    exec("from __future__ import annotations\n" + source.replace(old, new), function.__globals__, found)
    return found[defect.method]


@pytest.mark.parametrize("name", DEFECTS)
def test_defect_is_found(name, monkeypatch):
    defect = DEFECTS[name]
    assert run(defect.seed, defect.world) is None
    monkeypatch.setattr(defect.owner, defect.method, replacement(defect))
    violation = run(defect.seed, defect.world)
    assert violation is not None
    assert violation.kind.startswith(defect.kind), violation
