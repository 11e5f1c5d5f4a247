"""Defects that oz once had are put back, and are found: a simulation that finds nothing proves nothing."""

import pytest

from oz.protocol.node.links import Links
from oz.protocol.publisher.lifetimes import Lifetimes
from oz.protocol.publisher.records import Records
from oz.protocol.publisher.send_buffer import Passing
from oz.protocol.subscriber.declarations import Declarations, SubscriptionChanges
from simulation.nodes import NodeWorld
from simulation.world import Crowd, World, run

MOST = 60
"""Seeds in which each is to be found."""


def starve(monkeypatch):
    """Tell streams from the first one on each time; who finds no room waits for the next time."""
    beat = Records.beat

    def beat_and_forget(self, now):
        beat(self, now)
        self._telling.clear()

    monkeypatch.setattr(Records, "beat", beat_and_forget)


def overtake(monkeypatch):
    """Pass what a full member refuses on to another, whatever that has been given already."""
    monkeypatch.setattr(Passing, "_latest", lambda self, member: {})


def declare_once(monkeypatch):
    """Do not declare again what a publisher has not answered."""
    monkeypatch.setattr(Declarations, "renew", lambda self, missing, now: SubscriptionChanges())


def forget_members(monkeypatch):
    """Begin at 0 with a member of a queue group that was cut off and returns."""
    monkeypatch.setattr(Lifetimes, "_keep_numbering", lambda self, stream, now: None)


def hand_over_one_by_one(monkeypatch):
    """Send what members take over from another without regard to what the first of them refuses."""
    share = Passing.share

    def share_and_forget(self, *args, **kwargs):
        follow, waits, rest = share(self, *args, **kwargs)
        for batch in follow:
            del self._pending[batch.stream]
        return follow, waits, rest

    monkeypatch.setattr(Passing, "share", share_and_forget)


def compare_checks_only(monkeypatch):
    """Do not look again at a peer that was silent at a look, and not at the check before it."""

    def has_changed(self):
        is_other = self.connections.silent != self._was_silent
        return self._has_acted or is_other or self._look_who_stands() != self._standing

    monkeypatch.setattr(Links, "_has_changed", has_changed)


@pytest.mark.parametrize(
    ("defect", "first", "kind"),
    [
        (starve, 0, World),
        (overtake, 0, Crowd),
        (declare_once, 0, World),
        (forget_members, 845, World),
        (hand_over_one_by_one, 0, Crowd),
        (compare_checks_only, 2580, NodeWorld),
    ],
)
def test_defect_that_oz_once_had_is_found(defect, first, kind, monkeypatch):
    defect(monkeypatch)
    assert any(run(seed, kind=kind) is not None for seed in range(first, first + MOST))
