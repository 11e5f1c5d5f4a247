"""Defects of the history of oz that the simulation finds: without them a green run would prove nothing.

An entry with the name of a commit takes back what the commit mended, and `git show` tells why. Other entries remove
a mechanism.
"""

from math import inf

import pytest

from oz.node.exchange import Exchange
from oz.node.roster import UP, Introduce, Roster
from oz.publisher.session import Session
from oz.publisher.sessions import Sessions
from oz.services.bridge_leg import Leg
from oz.subscriber.connections import Connections
from oz.subscriber.link import Link
from oz.subscriber.queue import Dispatcher
from simulation.buses import BusWorld
from simulation.links import LinkWorld
from simulation.running import run

MOST = 500
"""Seeds that are tried for each defect."""


def _name_new_publisher(link, welcome, listened, effects, original=Link._on_welcome):
    original(link, welcome, listened, effects)
    effects[:] = [effect._replace(origin=None) if hasattr(effect, "origin") else effect for effect in effects]


def _present_if_up(roster, original=Roster._present):
    return [peer for peer in original(roster) if peer.state == UP]


def _greet_without_introduction(roster, *arguments, original=Roster.on_hello):
    return [item for item in original(roster, *arguments) if not isinstance(item, Introduce)]


def _resume_without_resending(session, hello, route, now, original=Session.resume):
    sent, batches = session.sent, session._sent_batches
    original(session, hello, route, now)
    session.sent, session._sent_batches = sent, min(batches, len(session.batches))


def _reply_twice(exchange, message, value, original=Exchange.answer, **options):
    original(exchange, message, value, **options)
    original(exchange, message, value, **options)


def _report_no_loss_of_several_queues(leg, *arguments, original=Leg.__init__):
    original(leg, *arguments)
    leg.engine.subscriber.gap_listeners.pop()


DEFECTS = {
    "548aade4 losses of a replaced publisher have the name of the new one": (
        BusWorld, [(Link, "_on_welcome", _name_new_publisher)]
    ),
    "bc3ebc9b only peers that are up are introduced": (BusWorld, [(Roster, "_present", _present_if_up)]),
    "d889f421 peers are introduced only once": (BusWorld, [(Roster, "_name_at", lambda roster: inf)]),
    "79cd9e8e a first HELLO is not answered with the peers": (
        BusWorld, [(Roster, "on_hello", _greet_without_introduction)]
    ),
    "05dc41a3 a forwarder reports no loss of several queues": (
        BusWorld, [(Leg, "__init__", _report_no_loss_of_several_queues)]
    ),
    "no resending after a new connection": (LinkWorld, [(Session, "resume", _resume_without_resending)]),
    "no replaced connections": (LinkWorld, [(Connections, "_replace", lambda connections, place: None)]),
    "no gaps": (LinkWorld, [(Dispatcher, "put_gap", lambda dispatcher, gap, stream: None)]),
    "no reports of drops": (LinkWorld, [(Link, "_report_drops", lambda link, stream, drops, effects: None)]),
    "messages of a silent member stay with it": (LinkWorld, [(Sessions, "_redeliver", lambda *_: None)]),
    "two replies": (BusWorld, [(Exchange, "answer", _reply_twice)]),
}  # fmt: skip


def seeds_until_found(name, monkeypatch):
    """Return the number of seeds until a defect is found, and the violation; None if it is not found."""
    world, patches = DEFECTS[name]
    for owner, attribute, replacement in patches:
        monkeypatch.setattr(owner, attribute, replacement)
    for seed in range(MOST):
        violation = run(seed, world)
        if violation is not None:
            assert "TypeError" not in violation.kind, violation
            return seed + 1, violation
    return None


@pytest.mark.heavy
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", DEFECTS)
def test_defect_is_found(name, monkeypatch):
    found = seeds_until_found(name, monkeypatch)
    assert found is not None
    print(f"{name}: {found[0]} seeds; {found[1]}")
