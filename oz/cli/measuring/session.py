"""The publisher of one measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle, islice
from typing import Any

import oz
from oz.cli.measuring.plan import BEGIN, END, PING, PROBE, BenchFailed, Plan, stamp

ARRIVAL_SECONDS = 10.0
"""How long subscribers are waited for."""

PATIENCE = 5.0
"""Seconds for which a subscriber may take nothing before it is given up."""

_PACE = 0.001
_LOOK_NS = 500_000
_CHUNK = 64
_CHUNK_BYTES = 1024 * 1024

Attend = Callable[[], bool]
"""Serves whoever measures; tells whether to stop."""


class Session:
    """Publishes what a plan asks for.

    Attributes:
        data: where subscribers find the publisher.
        echo: where messages to be sent back are taken, if latency is that of a round trip.
        published: messages given to `publish` as fast as possible.
    """

    def __init__(self, plan: Plan, data: str, echo: str, attend: Attend) -> None:
        """Bind.

        Raises:
            zmq.ZMQError: an endpoint is in use, or not of this machine.
        """
        self._plan, self._attend = plan, attend
        limit = plan.high_water_mark
        self._publisher = oz.Publisher(data, on_full="block", full_timeout=PATIENCE, high_water_mark=limit)
        self._echo: oz.Subscriber | None = None
        if plan.is_echoed:
            try:
                self._echo = oz.Subscriber(bind=echo, filtering=plan.filtering)  # type: ignore[arg-type]
                self._echo.subscribe(PING)
            except BaseException:
                self.close()
                raise
        self.data = self._publisher.endpoint
        self.echo = self._echo.endpoint if self._echo is not None else None
        self._subjects, self._hits = plan.make_subjects()
        self._phase = 0
        self.published = 0

    def close(self) -> None:
        """Close, without waiting for subscribers."""
        self._publisher.close(timeout=0)
        if self._echo is not None:
            self._echo.close()

    def tend(self) -> None:
        """Let ZeroMQ take in who has come: a bound subscriber asks them only while it is used."""
        if self._echo is not None:
            with suppress(oz.Timeout):
                while True:
                    # What a subscriber sent before the publisher had ended is of no use any more.
                    self._echo.receive(timeout=0)

    def run(self, phase: str, seconds: float) -> dict[str, Any]:
        """Publish for a while.

        Args:
            phase: `lone` for lone messages, `loaded` for as fast as possible.
            seconds: how long.

        Returns:
            What was published, how much of it matches, and how long it took.

        Raises:
            BenchFailed: subscribers did not come, or took nothing.
        """
        self._await_subscribers()
        self._phase += 1
        self.published = 0
        try:
            self._publish_now(BEGIN, phase.encode())
            began = time.monotonic()
            if phase == "loaded":
                self._load(began + seconds)
            else:
                self._pace(began + seconds)
            # Flushing waits for no room, which the next message does.
            self._publish_now(END)
        except oz.WouldBlock:
            raise BenchFailed(f"a subscriber took nothing for {PATIENCE:g} s") from None
        cycles, rest = divmod(self.published, len(self._subjects))
        return {
            "published": self.published,
            "matching": cycles * self._hits[-1] + self._hits[rest],
            "seconds": time.monotonic() - began,
        }

    def _publish_now(self, subject: str, payload: bytes = b"") -> None:
        self._publisher.publish(subject, payload)
        self._publisher.flush()

    def _await_subscribers(self) -> None:
        wanted, deadline = self._plan.subscribers, time.monotonic() + ARRIVAL_SECONDS
        while not self._attend():
            self.tend()
            try:
                return self._publisher.wait_for_subscribers(wanted, subject=END, timeout=0.1)
            except oz.Timeout as error:
                if time.monotonic() > deadline:
                    raise BenchFailed(f"subscribers are missing: {error}") from None

    def _pace(self, deadline: float) -> None:
        """Publish messages that find everything idle."""
        while not self._attend() and time.monotonic() < deadline:
            if self._echo is not None:
                self._send_back(0.02)
            else:
                self._publisher.publish(PROBE, stamp(self._plan.size, self._phase))
                time.sleep(_PACE)

    def _load(self, deadline: float) -> None:
        """Publish as fast as possible, and a stamped message now and then."""
        publish, payload = self._publisher.publish, bytes(self._plan.size)
        chunk = max(1, min(_CHUNK, _CHUNK_BYTES // max(1, self._plan.size)))
        subjects = self._endless()
        look_at = 0
        while True:
            for subject in islice(subjects, chunk):
                publish(subject, payload)
            self.published += chunk
            now = time.monotonic_ns()
            if now >= look_at:
                look_at = now + _LOOK_NS
                self._probe()
                if self._attend() or now >= deadline * 1e9:
                    return

    def _endless(self) -> Iterator[str]:
        return cycle(self._subjects)

    def _probe(self) -> None:
        if self._echo is not None:
            self._send_back(0)
        else:
            self._publisher.publish(PROBE, stamp(self._plan.size, self._phase))

    def _send_back(self, seconds: float) -> None:
        assert self._echo is not None
        with suppress(oz.Timeout):
            self._publisher.publish(PROBE, self._echo.receive(timeout=seconds).payload)
