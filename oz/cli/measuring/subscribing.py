"""The process of one subscriber of `oz bench`."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import zmq

import oz
from oz.cli.measuring.plan import (
    BEGIN,
    CONTROLS,
    END,
    PATTERN,
    PING,
    PROBE,
    BenchPlan,
    age,
    answer,
    end_with_parent,
    stamp,
)

_START_SECONDS = 10.0
_PACE_NS = 1_000_000
_PACE = 0.001
_PING_SECONDS = 1.0
"""A message to be sent back that has not come for so long is given up."""


class MeasuringSubscriber:
    """Counts what arrives.

    Attributes:
        times: how old stamped messages of this phase were, in nanoseconds.
    """

    def __init__(self, plan: BenchPlan, data: str, echo: str | None, number: int) -> None:
        """Connect, and wait until what is published is not lost.

        Raises:
            oz.Timeout: the publisher did not answer.
        """
        # The publisher counts phases too, from 1.
        self._plan, self._number, self._phase = plan, number, -1
        limit = plan.high_water_mark
        filtering: Any = plan.filtering
        self._subscriber = oz.Subscriber(data, filtering=filtering, high_water_mark=limit)
        self._subscriber.subscribe(PATTERN)
        # The last: the publisher waits until this one has arrived.
        self._subscriber.subscribe(CONTROLS)
        self._pinger = oz.Publisher(connect=echo) if echo is not None and number == 0 else None
        if self._pinger is not None:
            self._pinger.wait_for_subscribers(1, subject=PING, timeout=_START_SECONDS)
        if plan.filtering == "publisher":
            self._subscriber.wait_ready(_START_SECONDS)
        self._begin()

    def _begin(self) -> None:
        stats = self._subscriber.stats
        self._phase += 1
        self._controls = self._ping_at = 0
        self._began, self._count = time.monotonic(), 0
        self._before = (stats.received, stats.delivered)
        self.times: list[int] = []

    def run(self) -> dict[str, Any]:
        """Take the messages of a phase, from the one that says which it is to the last."""
        self._begin()
        first = self._subscriber.receive()
        if not self._is_last(first):
            if self._pinger is not None and first.payload == b"lone":
                self._ping_in_turn()
            else:
                self._take_all()
        return self._report(self._count, time.monotonic() - self._began)

    def report(self) -> dict[str, Any]:
        """Say how far it got, from another thread, when the end has not come."""
        delivered = self._subscriber.stats.delivered - self._before[1] - self._controls
        return self._report(delivered, time.monotonic() - self._began)

    def _report(self, delivered: int, seconds: float) -> dict[str, Any]:
        received = self._subscriber.stats.received - self._before[0] - self._controls
        times = list(self.times)
        return {"delivered": delivered, "received": received, "seconds": seconds, "times": times}

    def _take_all(self) -> None:
        count, pings = 0, self._pinger is not None
        for message in self._subscriber:
            if message.subject[0] == "c":
                if self._is_last(message):
                    break
                continue
            count += 1
            if pings and not count & 15 and time.monotonic_ns() >= self._ping_at:
                self._ping()
        self._count = count

    def _is_last(self, message: oz.Message) -> bool:
        self._controls += 1
        if message.subject == PROBE:
            taken = age(message.payload, self._phase, self._number)
            if taken is not None:
                self.times.append(taken)
        elif message.subject == BEGIN:
            self._began = time.monotonic()
            if self._pinger is not None:
                self._ping()
        return message.subject == END

    def _ping(self) -> None:
        assert self._pinger is not None
        self._ping_at = time.monotonic_ns() + _PACE_NS
        self._pinger.publish(PING, stamp(self._plan.size, self._phase, self._number))

    def _ping_in_turn(self) -> None:
        """Send a message when the last is back, after a little rest."""
        while True:
            try:
                message = self._subscriber.receive(timeout=_PING_SECONDS)
            except oz.Timeout:
                self._ping()
                continue
            if self._is_last(message):
                return
            if message.subject == PROBE:
                time.sleep(_PACE)
                self._ping()


def main(given: dict[str, Any]) -> None:
    """Do one phase after the other."""
    subscriber = MeasuringSubscriber(
        BenchPlan.read(given["plan"]), given["data"], given["echo"], given["number"]
    )
    end_with_parent(subscriber.report)
    answer({"ready": True})
    while True:
        answer(subscriber.run())


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except (oz.OzError, zmq.ZMQError) as failure:
        sys.exit(str(failure))
