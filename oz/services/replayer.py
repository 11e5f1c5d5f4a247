"""Replay: publishes the messages of a journal again, at the pace at which they were received.

The time between two messages is the time between their records, divided by the speed. If the replay is more than a
second late, or was paused, the schedule begins anew with the next message. If the time of a record is earlier than the
time of a previous record, the message of the record is published at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

import zmq

from oz.errors import WouldBlock
from oz.journal import Journal, JournalGap, Record
from oz.logs import peer_logger
from oz.node.engine import Engine as NodeEngine
from oz.node.sync import Node
from oz.numbers import check_number
from oz.publisher.sync import Publisher
from oz.services.service import POLL_INTERVAL, OnPoll
from oz.subjects.pattern import Pattern
from oz.transport.bell import Bell, poll_until

MAX_DELAY = 1.0
"""If a replay is late by more than this number of seconds, its schedule begins anew."""
MIN_WAIT = 0.0002
"""A message that is due within this number of seconds is published at once, because a wait would be less exact."""
POLL_STEP = 0.001
"""Seconds by which a poll may end too late, because its timeout is in milliseconds."""
RETRY_INTERVAL = 0.005
"""Seconds between two attempts to publish while a subscriber is full. No event reports that a subscriber has space."""
MESSAGES_WITHOUT_WAIT = 1000
"""Number of messages between two calls of `on_poll` if the replay never waits."""

_log = peer_logger("oz.replay")

_HEADER_TYPES = (str, bytes, int, float, bool, type(None))


@dataclass
class ReplayStats:
    """Counts of a replay since it was created.

    Attributes:
        published: messages that were published.
        refused: messages that cannot be published. Their subject or size is not allowed, or they have several payload
            frames. For each of these reasons, a warning in the log describes the first message.
        gaps: number of gap records in the replayed range.
        lost: number of lost messages in these gap records, without gaps of unknown size.
    """

    published: int = 0
    refused: int = 0
    gaps: int = 0
    lost: int = 0


class Replay:
    """One replay of a journal. `run` publishes. Any thread or signal handler may pause, resume and stop the replay.

    Attributes:
        stats: counts of the replay.
        offset: offset after the last record that was replayed; None before the first record.
        is_paused: whether the replay is paused.
        is_stopped: whether `stop` was called.
    """

    def __init__(
        self,
        journal: Journal,
        publisher: Publisher | Node,
        pattern: str | bytes | Pattern | None = None,
        *,
        start: int | datetime | str | None = None,
        end: int | datetime | str | None = None,
        speed: float | None = 1.0,
    ) -> None:
        """Prepare a replay; the arguments are those of `replay`."""
        if speed is not None:
            check_number("speed", speed, "a number, or None for as fast as possible")
        if speed is not None and not speed > 0:
            raise ValueError(f"speed must be greater than 0, or None for as fast as possible; not {speed:g}")
        if not isinstance(journal, Journal):
            raise TypeError(f"journal must be an oz.journal.Journal, not {type(journal).__name__}")
        self.stats = ReplayStats()
        self._reported: set[str] = set()
        self.offset: int | None = None
        self.is_paused = self.is_stopped = False
        self._journal, self._publisher, self._pattern = journal, publisher, pattern
        self._bounds: Mapping[str, Any] = {"start": start, "end": end}
        self._speed = None if speed == inf else speed
        self._began: tuple[float, int] | None = None
        self._latest = 0
        self._bell: Bell | None = None
        self._on_poll: OnPoll | None = None
        self._polls_at = 0.0

    @property
    def _node_engines(self) -> tuple[NodeEngine, ...]:
        return (self._publisher._node,) if isinstance(self._publisher, Node) else ()

    def pause(self) -> None:
        """Pause the replay until `resume` is called."""
        self.is_paused = True
        self._ring()

    def resume(self) -> None:
        """Continue a paused replay."""
        self.is_paused = False
        self._ring()

    def stop(self) -> None:
        """End `run` before the next message."""
        self.is_stopped = True
        self._ring()

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.ring()

    def run(self, on_poll: OnPoll | None = None) -> None:
        """Publish until the end of the range, or until `stop` is called.

        Args:
            on_poll: function that this thread calls at least ten times a second while it waits.

        Raises:
            JournalError, PatternError, ValueError: the same reasons as in `Journal.read`.
            ClosedError: the publisher is closed.
        """
        self._on_poll = on_poll
        with closing(Bell()) as self._bell, self._bell.rung_by_signals():
            for record in self._journal.read(self._pattern, **self._bounds):
                if isinstance(record, JournalGap):
                    self.stats.gaps += 1
                    self.stats.lost += record.count or 0
                    self.offset = record.end
                    continue
                if not self._wait_until_due(record.time_ns) or not self._publish(record):
                    break
                self.offset = record.offset + 1
        self._publisher.flush()

    # Waiting. --------------------------------------------------------------------------------------------

    def _wait_until_due(self, time_ns: int) -> bool:
        """Wait until a message is due; return False if the replay is stopped."""
        if self._speed is None:
            if self.is_paused or not self.stats.published % MESSAGES_WITHOUT_WAIT:
                self._poll()
                self._wait_while_paused()
            return not self.is_stopped
        while not self.is_stopped:
            self._wait_while_paused()
            now = time.monotonic()
            if time_ns < self._latest:
                break
            if self._began is None:
                self._began = now, time_ns
            self._latest = time_ns
            began, first = self._began
            left = began + (time_ns - first) / 1e9 / self._speed - now
            if left < MIN_WAIT:
                if left < -MAX_DELAY:
                    self._began = now, time_ns
                self._poll()
                break
            self._wait(left)
        return not self.is_stopped

    def _wait_while_paused(self) -> None:
        while self.is_paused and not self.is_stopped:
            self._wait(inf)
            self._began = None

    def _wait(self, seconds: float) -> None:
        """Wait for a number of seconds. The wait ends earlier if `on_poll` is due, or if the bell rings."""
        assert self._bell is not None
        self._poll()
        if self._on_poll is not None:
            seconds = min(seconds, POLL_INTERVAL)
        if seconds < POLL_STEP:
            time.sleep(seconds)
            return
        poller = zmq.Poller()
        poller.register(self._bell, zmq.POLLIN)
        # A poll may end late by `POLL_STEP`. Therefore end it early. `_wait_until_due` waits for the remaining time.
        poll_until(poller, time.monotonic() + seconds - POLL_STEP)
        self._bell.clear()

    def _poll(self) -> None:
        if self._on_poll is not None and (now := time.monotonic()) >= self._polls_at:
            self._polls_at = now + POLL_INTERVAL
            self._on_poll()

    # Publishing. -----------------------------------------------------------------------------------------

    def _publish(self, record: Record) -> bool:
        """Publish a message when subscribers have space; return False if the replay was stopped first."""
        options: dict[str, Any] = {
            "headers": self._headers_of(record),
            "id": record.id,
        }
        _, payload, *further = record.frames
        if further:
            # A link carries one payload frame. Therefore subscribers with links would miss the other frames.
            self._refuse(
                record, "several frames", f"it has {1 + len(further)} payload frames, and publish sends one"
            )
            return True
        while not self.is_stopped:
            try:
                self._publisher.publish(record.subject, payload, **options)
            except WouldBlock:
                self._wait(RETRY_INTERVAL)
                continue
            except (ValueError, TypeError) as error:
                if options.pop("id", None) is not None:  # The id may be malformed.
                    continue
                self._refuse(record, type(error).__name__, str(error))
            else:
                self.stats.published += 1
            return True
        return False

    def _refuse(self, record: Record, kind: str, reason: str) -> None:
        """Count a message that cannot be published. Log a warning for the first message of each kind."""
        self.stats.refused += 1
        if kind not in self._reported:
            self._reported.add(kind)
            _log.warning(
                "the message at offset %s, %r, cannot be published: %s; read its frames with `Journal.read`, and "
                "send them with a ZeroMQ socket. `stats.refused` counts these messages",
                record.offset,
                record.subject,
                reason,
            )

    def _headers_of(self, record: Record) -> dict[str, Any]:
        """Return the headers of a record that can be published, and its other fields as further headers."""
        headers = {
            name: value
            for name, value in record.headers.items()
            if type(name) is str and type(value) in _HEADER_TYPES
        }
        fields = {
            "oz-offset": record.offset,
            "oz-time-ns": record.time_ns,
            "oz-origin": record.origin,
            "oz-sequence": record.sequence,
            "oz-position": record.position,
            "oz-reply-to": record.reply_to,
        }
        return headers | {name: value for name, value in fields.items() if value is not None}


def replay(
    journal: Journal,
    publisher: Publisher | Node,
    pattern: str | bytes | Pattern | None = None,
    *,
    start: int | datetime | str | None = None,
    end: int | datetime | str | None = None,
    speed: float | None = 1.0,
) -> Replay:
    """Publish the messages of a journal again, in the order of their offsets, and wait for the end.

    Subscribers with links receive the headers of the message, and the fields of the record as further headers:
    `oz-offset`, `oz-time-ns`, `oz-origin`, `oz-sequence`, `oz-position` and `oz-reply-to`. Plain subscribers receive
    only the subject and the payload.

    Args:
        journal: journal to read.
        publisher: an `oz.Publisher` without codec, or an `oz.Node` with `codec=None`. If it raises `WouldBlock` because
            a subscriber is full, the replay waits and tries again. With `on_full="drop"`, the publisher drops messages.
        pattern: pattern of the subjects to publish, as in `Journal.read`; None for all messages.
        start: first offset or earliest time to publish.
        end: offset or time at which the replay ends. The record with this offset or time is not published.
        speed: factor for the pace: 1.0 is the pace at which messages were received, 10.0 is ten times as fast. None
            publishes as fast as possible.

    Returns:
        The finished replay, with its `stats`. To pause or stop a replay, create a `Replay` and call its `run`.

    Raises:
        TypeError: `journal` is not a `Journal`.
        JournalError, PatternError, ValueError: the same reasons as in `Journal.read`. ValueError also if the speed is
            not greater than 0.
        ClosedError: the publisher is closed.
    """
    made = Replay(journal, publisher, pattern, start=start, end=end, speed=speed)
    made.run()
    return made
