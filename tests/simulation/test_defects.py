"""Defects that oz once had are put back, and are found: a simulation that finds nothing proves nothing."""

import pytest

from oz.protocol.publisher.records import Records
from oz.protocol.publisher.send_buffer import ConflatingSendBuffer, DropOldestSendBuffer, Passing
from oz.protocol.subscriber.declarations import Declarations, SubscriptionChanges
from simulation.world import run

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


def answer_early(monkeypatch):
    """Answer a subscription that is taken back before what waits for it has gone out."""
    monkeypatch.setattr(DropOldestSendBuffer, "end", lambda self, stream: 0)
    monkeypatch.setattr(ConflatingSendBuffer, "end", lambda self, stream: 0)


@pytest.mark.parametrize(("defect", "first"), [(starve, 0), (overtake, 20), (declare_once, 0)])
def test_defect_that_oz_once_had_is_found(defect, first, monkeypatch):
    defect(monkeypatch)
    assert any(run(seed) is not None for seed in range(first, first + MOST))
