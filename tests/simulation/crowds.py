"""Worlds in which many want the same: all hear all, or all are members of one queue group."""

from __future__ import annotations

from oz.wire.keys import DeliveryOptions
from simulation.world import World


class Equals(World):
    """A run in which all subscribers hear all as it comes, and one of them asks for very many subjects."""

    def _make_processes(self, random):
        super()._make_processes(random)
        for subscriber in self.subscribers:
            subscriber.delivery = DeliveryOptions()
            subscriber.patterns = random.sample(["a.*", "*.x", "b.y", ">", "a.>", "a.x"], 4)
        self.subscribers[1].bulk = random.choice((60, 150))


class Crowd(World):
    """A run in which all subscribers are members of one queue group, and have little room."""

    def _make_processes(self, random):
        super()._make_processes(random)
        for subscriber in self.subscribers:
            subscriber.delivery, subscriber.patterns = DeliveryOptions(group="g"), ["a.*", ">", "b.y"]
            subscriber.mark, subscriber.last_value = random.choice((2, 5)), False
            subscriber.most_counted = 0
