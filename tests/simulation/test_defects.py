"""Defects that are put in, and that the simulation finds: a simulation that finds nothing proves nothing."""

import pytest

from links.removals import REMOVALS
from oz.protocol.node.links import Links
from oz.publisher.session import Session
from oz.subscriber.connections import Connections
from oz.subscriber.queue import Dispatcher
from simulation.links import LinkWorld
from simulation.nodes import NodeFault, NodeWorld
from simulation.running import run

MOST = 30
"""Seeds that are tried. The first of them finds the defect, until a run changes."""


def compare_checks_only(monkeypatch):
    """Do not look again at a peer that was silent at a look, and not at the check before it."""

    def has_changed(self):
        is_other = self.connections.silent != self._was_silent
        return self._has_acted or is_other or self._look_who_stands() != self._standing

    monkeypatch.setattr(Links, "_has_changed", has_changed)


def remove_mechanism(name):
    """Return a defect that `tests/links` finds in the machines: here the engines run them."""

    def remove(monkeypatch):
        for owner, attribute, replacement in REMOVALS[name]:
            monkeypatch.setattr(owner, attribute, replacement)

    return remove


def forget_gaps(monkeypatch):
    """Report no gaps."""
    monkeypatch.setattr(Dispatcher, "put_gap", lambda self, gap, stream: None)


def resume_without_resending(monkeypatch):
    """Send nothing again after a connection was lost."""
    resume = Session.resume

    def resume_only(self, hello, route, now):
        sent, batches = self.sent, self._sent_batches
        resume(self, hello, route, now)
        self.sent, self._sent_batches = sent, min(batches, len(self.batches))

    monkeypatch.setattr(Session, "resume", resume_only)


def keep_the_connection(monkeypatch):
    """Go on with a connection that is silent or faulty."""
    monkeypatch.setattr(Connections, "_replace", lambda self, place: None)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("defect", "first"),
    [
        (remove_mechanism("epoch"), 0),
        (forget_gaps, 4),
        (resume_without_resending, 0),
        (keep_the_connection, 12),
    ],
    ids=["epoch", "gaps", "resending", "connection"],
)
def test_defect_is_found(defect, first, monkeypatch):
    defect(monkeypatch)
    assert any(run(seed, kind=LinkWorld) is not None for seed in range(first, first + MOST))


@pytest.mark.heavy
def test_looking_only_at_checks_is_found_where_two_part_beside_a_name_server_that_was_away(monkeypatch):
    faults = [
        NodeFault(4.6, "kill_server", ("lab", "desk"), 2.0),
        NodeFault(6.0, "cut", ("lab", "desk"), 4.0),
        NodeFault(6.6, "cut", ("desk", "nameserver"), 4.0),
    ]

    def violates(seed):
        return run(seed, faults, kind=NodeWorld) is not None

    assert not any(map(violates, range(2)))
    compare_checks_only(monkeypatch)
    assert any(map(violates, range(2)))
