"""Defects of the history of oz that the simulation finds: without them a green run would prove nothing.

An entry with the name of a commit takes back what the commit mended, and `git show` tells why. Other entries remove
a mechanism.
"""

from math import inf

import pytest

from oz.node.engine import Engine
from oz.node.exchange import Exchange
from oz.node.roster import UP, EndSession, Roster
from oz.publisher.session import Session
from oz.publisher.sessions import Sessions
from oz.subscriber import link as machine
from oz.subscriber.connections import Connections
from oz.subscriber.link import Link
from oz.subscriber.queue import Dispatcher
from oz.wire import links
from simulation.buses import BusWorld, TwinWorld
from simulation.links import LinkWorld
from simulation.running import run

MOST = 500
"""Seeds that are tried for each defect."""


def _end_without_loss(link, bye, listened, effects, original=Link._on_bye):
    original(link, bye, listened, effects)
    if bye.reason != links.CLOSED:
        effects[:] = [one for one in effects if not (isinstance(one, machine.Gap) and one.count is None)]


def _name_new_publisher(link, welcome, listened, effects, original=Link._on_welcome):
    original(link, welcome, listened, effects)
    effects[:] = [one._replace(origin=None) if hasattr(one, "origin") else one for one in effects]


def _present_if_up(roster, original=Roster._present):
    return [peer for peer in original(roster) if peer.state == UP]


def _run_after_close(engine, effects, now, original=Engine._run):
    for effect in effects:
        if isinstance(effect, EndSession):
            engine.publisher.end_session(effect.node)
        else:
            original(engine, [effect], now)


def _room_within_pending_bytes(session, original=Session._has_room):
    return original(session) and session.bytes < session.settings.pending_bytes


def _forget_all_sessions(roster, node, what, now, session=b"", original=Roster.on_session):
    peer = roster.by_id.get(node)
    if peer is not None:
        peer.sessions.clear()
    return original(roster, node, what, now, session)


def _end_node_as_closed(sessions, node):
    for session in [*sessions.by_node.get(node, ())]:
        sessions.replies.append((session.route, sessions._bye(links.CLOSED, session.following)))
        sessions.end(session, sessions.now)


def _begin_early(link, *arguments, original=Link.__init__, **options):
    original(link, *arguments, **{**options, "declares_early": True})


def _wants_all(connections, place, *arguments, original=Connections._on_answer):
    original(connections, place, *arguments)
    place.begin = None


def _resume_without_resending(session, hello, route, now, original=Session.resume):
    sent, batches = session.sent, session._sent_batches
    original(session, hello, route, now)
    session.sent, session._sent_batches = sent, min(batches, len(session.batches))


def _reply_twice(exchange, message, value, original=Exchange.answer):
    original(exchange, message, value)
    original(exchange, message, value)


DEFECTS = {
    "65914ed3 no loss after the BYE of a publisher that goes on": (
        BusWorld, [(Link, "_on_bye", _end_without_loss)]
    ),
    "548aade4 losses of a replaced publisher have the name of the new one": (
        BusWorld, [(Link, "_on_welcome", _name_new_publisher)]
    ),
    "bc3ebc9b only peers that are up are introduced": (BusWorld, [(Roster, "_present", _present_if_up)]),
    "d889f421 peers are introduced only once": (BusWorld, [(Roster, "_name_at", lambda roster: inf)]),
    "8638fb17 a closing node ends sessions of its closed publisher": (
        BusWorld, [(Engine, "_run", _run_after_close)]
    ),
    "f35b5de6 nodes declare before WELCOME": (TwinWorld, [(Link, "__init__", _begin_early)]),
    "883eaf6b patterns stay after the end of a session": (
        LinkWorld, [(Sessions, "_forget", lambda sessions, session: iter(()))]
    ),
    "no resending after a new connection": (LinkWorld, [(Session, "resume", _resume_without_resending)]),
    "no replaced connections": (LinkWorld, [(Connections, "_replace", lambda connections, place: None)]),
    "no gaps": (LinkWorld, [(Dispatcher, "put_gap", lambda dispatcher, gap, stream: None)]),
    "two replies": (BusWorld, [(Exchange, "answer", _reply_twice)]),
    "769cc356 a backlog of pending_bytes never enters the window": (
        LinkWorld, [(Session, "_has_room", _room_within_pending_bytes)]
    ),
    "1678aaf3 the end of one session of a peer ends all": (
        BusWorld, [(Roster, "on_session", _forget_all_sessions)]
    ),
    "ede714b9 sessions of lost peers end as if the publisher had closed": (
        BusWorld, [(Sessions, "end_node", _end_node_as_closed)]
    ),
    "bedfae00 the link repeats messages of the plain connection": (
        LinkWorld, [(Connections, "_on_answer", _wants_all)]
    ),
}  # fmt: skip


def seeds_until_found(name, monkeypatch):
    """Return the number of seeds until a defect is found, and the violation; None if it is not found."""
    world, patches = DEFECTS[name]
    for owner, attribute, replacement in patches:
        monkeypatch.setattr(owner, attribute, replacement)
    for seed in range(MOST):
        violation = run(seed, world)
        if violation is not None:
            return seed + 1, violation
    return None


@pytest.mark.heavy
@pytest.mark.parametrize("name", DEFECTS)
def test_defect_is_found(name, monkeypatch):
    found = seeds_until_found(name, monkeypatch)
    assert found is not None
    print(f"{name}: {found[0]} seeds; {found[1]}")
