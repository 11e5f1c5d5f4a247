"""Defects that the simulation finds: without them it would prove nothing."""

import logging

import pytest

from links.removals import REMOVALS
from oz.node.exchange import Exchange
from oz.node.roster import Roster
from oz.publisher.session import Session
from oz.subscriber.connections import Connections
from oz.subscriber.link import Link
from oz.subscriber.queue import Dispatcher
from simulation.links import LinkWorld
from simulation.nodes import NodeWorld
from simulation.running import run

MOST = 40
"""Seeds that are tried for each defect."""


def removal(name):
    """Return a defect of the machines that `tests/links` uses too."""
    return list(REMOVALS[name])


def _resume_without_resending(session, hello, route, now, resume=Session.resume):
    sent, batches = session.sent, session._sent_batches
    resume(session, hello, route, now)
    session.sent, session._sent_batches = sent, min(batches, len(session.batches))


def _name_new_publisher(link, welcome, listened, effects, on_welcome=Link._on_welcome):
    on_welcome(link, welcome, listened, effects)
    effects[:] = [one._replace(origin=None) if hasattr(one, "origin") else one for one in effects]


def _reply_twice(exchange, message, value, answer=Exchange.answer):
    answer(exchange, message, value)
    answer(exchange, message, value)


DEFECTS = {
    "epoch": (LinkWorld, removal("epoch")),
    "no gaps": (LinkWorld, [(Dispatcher, "put_gap", lambda dispatcher, gap, stream: None)]),
    "no resending": (LinkWorld, [(Session, "resume", _resume_without_resending)]),
    "no replaced connection": (LinkWorld, [(Connections, "_replace", lambda connections, place: None)]),
    "gap of the new publisher": (NodeWorld, [(Link, "_on_welcome", _name_new_publisher)]),
    "no introductions": (NodeWorld, [(Roster, "_introduce", lambda roster, peer: None)]),
    "two replies": (NodeWorld, [(Exchange, "answer", _reply_twice)]),
}


def seeds_until_found(name, monkeypatch):
    """Return the number of seeds until a defect is found; None if it is not found."""
    world, patches = DEFECTS[name]
    for owner, attribute, replacement in patches:
        monkeypatch.setattr(owner, attribute, replacement)
    for seed in range(MOST):
        if run(seed, kind=world) is not None:
            return seed + 1
    return None


@pytest.mark.heavy
@pytest.mark.parametrize("name", DEFECTS)
def test_defect_is_found(name, monkeypatch, caplog):
    caplog.set_level(logging.CRITICAL)
    found = seeds_until_found(name, monkeypatch)
    print(f"{name}: {found} seeds")
    assert found is not None
