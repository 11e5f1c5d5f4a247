"""The replayer: publishes what a journal holds once more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

import zmq

from oz.errors import WouldBlock
from oz.journal import Journal, Record
from oz.numbers import check_number
from oz.services.columns import unpack_headers
from oz.services.waiting import Bell, look_again
from oz.subjects.pattern import Pattern
from oz.sync.publisher import Publisher

_LATE = 1.0  # seconds behind time from which on the rest is put off instead of hurried
_POLLED = 0.001  # seconds from which on a wait can be ended
_LONGEST = 1e6  # seconds of one wait at most
_EARLY = 0.0002  # seconds too short to wait for
_ALLOWED = (str, bytes, int, float, bool, type(None))
_LOOK = 1000  # messages between two looks while there is nothing to wait for


@dataclass
class ReplayStats:
    """The counts of a replay so far."""

    published: int = 0
    """Messages that were published."""
    passed: int = 0
    """The offset after the last record that was looked at."""
    lost: int = 0
    """Messages that the journal knows to be lost, among what was asked for."""
    gaps: int = 0
    """Records that are no messages, which are passed by."""
    refused: int = 0
    """Messages that the publisher's dialect or the wire does not allow."""


class Control:
    """Pauses, resumes and stops a replay; from any thread, or a signal handler."""

    def __init__(self) -> None:
        self.is_paused = False
        self.is_stopped = False
        self._wakes: list[Callable[[], None]] = []

    @contextmanager
    def _waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call something at each change, while a replay waits with it."""
        self._wakes.append(wake)
        try:
            yield
        finally:
            self._wakes.remove(wake)

    def _changed(self) -> None:
        for wake in tuple(self._wakes):
            wake()

    def pause(self) -> None:
        """Publish nothing until `resume`; what follows keeps its distance in time."""
        self.is_paused = True
        self._changed()

    def resume(self) -> None:
        """Go on."""
        self.is_paused = False
        self._changed()

    def toggle(self) -> None:
        """Pause, or go on."""
        self.is_paused = not self.is_paused
        self._changed()

    def stop(self) -> None:
        """End it."""
        self.is_stopped = True
        self._changed()


class _Clock:
    """Says when a message is due."""

    def __init__(
        self, speed: float | None, control: Control, bell: Bell, look: Callable[[], object] | None
    ) -> None:
        self._speed = speed
        self._control = control
        self._bell = bell
        self._poller = zmq.Poller()
        self._poller.register(bell, zmq.POLLIN)
        self._look = look
        self._looks_at = inf if look is None else 0.0
        self._began: tuple[float, int] | None = None
        self._passed = self._latest = 0

    def wait_for(self, time_ns: int) -> bool:
        """Wait until a message is due; False when the replay is stopped."""
        if self._speed is None:
            self._passed += 1
            if self._passed % _LOOK == 0 or self._control.is_paused or self._control.is_stopped:
                self._look_if_due(time.monotonic())
                self._rest()
            return not self._control.is_stopped
        while not self._control.is_stopped:
            self._rest()
            now = self._look_if_due(time.monotonic())
            if time_ns < self._latest:  # received before others that were published already
                break
            self._latest = time_ns
            if self._began is None:
                self._began = now, time_ns
            began, first = self._began
            left = began + (time_ns - first) / 1e9 / self._speed - now
            if left < _EARLY:
                if left < -_LATE:
                    # It was stopped, or a subscriber held it up: what follows keeps its distance.
                    self._began = now, time_ns
                break
            self._wait(left)
        return not self._control.is_stopped

    def await_room(self) -> bool:
        """Wait until there may be room for a message that found none; False when the replay is stopped."""
        if not self._control.is_stopped:
            self._look_if_due(time.monotonic())
            # Whoever hears of room rings.
            self._wait(inf)
        return not self._control.is_stopped

    def _look_if_due(self, now: float) -> float:
        """Look, if it is time to: there may be nothing to wait for. Gives the time."""
        if now >= self._looks_at:
            self._looks_at = look_again(self._look)
        return now

    def _rest(self) -> None:
        while self._control.is_paused and not self._control.is_stopped:
            self._look_if_due(time.monotonic())
            self._wait(inf)
            self._began = None

    def _wait(self, seconds: float) -> None:
        """Wait so long at most, until it is time to look, the control has changed, or there may be room."""
        seconds = min(seconds, self._looks_at - time.monotonic())
        if seconds < _POLLED:
            time.sleep(max(0.0, seconds))
        else:
            # Not later than that: a poller counts in milliseconds.
            self._poller.poll(-1 if seconds == inf else int(min(seconds, _LONGEST) * 1000))
            self._bell.hear()


def replay(
    journal: Journal,
    publisher: Publisher,
    pattern: str | bytes | Pattern | None = None,
    *,
    start: int | datetime | None = None,
    end: int | datetime | None = None,
    speed: float | None = 1.0,
    headers: bool = True,
    wait_for_room: bool = False,
    control: Control | None = None,
    stats: ReplayStats | None = None,
    on_look: Callable[[], object] | None = None,
) -> ReplayStats:
    """Publish the messages of a journal once more, in the order of their offsets.

    Subscribers with publisher-side filtering get what was recorded with each in headers: `oz-offset`,
    `oz-time-ns`, and where the journal has them `oz-origin`, `oz-sequence`, `oz-position` and `oz-reply-to`;
    beside the headers that it was published with. Plain subscribers get subject and payload.

    Args:
        journal: what to publish.
        publisher: with which; one that was made with `on_full="block"` drops nothing.
        pattern: only what it matches, as of `Journal.read`.
        start: the first offset or the earliest time.
        end: the offset or time to stop before.
        speed: 1.0 as it was received, 10.0 ten times as fast; None as fast as possible.
        headers: False publishes without those that are added, and so somewhat faster.
        wait_for_room: when the publisher raises `WouldBlock`, wait until there is room or it is stopped. A
            publisher that waits for ever by itself cannot be stopped meanwhile: make it with
            `on_full="error"`, or with a `full_timeout`.
        control: to pause or stop it.
        stats: is kept up to date meanwhile.
        on_look: called now and then: ten times a second while it waits, or at the time of the monotonic
            clock that it returns, a float.

    Returns:
        What it did.

    Raises:
        TypeError: the journal is no `Journal`, such as its directory.
        JournalError, PatternError, ValueError: as `Journal.read`.
        WouldBlock, ClosedError: as `Publisher.publish`.
    """
    if speed is not None:
        check_number("speed", speed, "a number, or None for as fast as possible")
    if speed is not None and not speed > 0:
        raise ValueError(f"speed is greater than 0, or None for as fast as possible; not {speed:g}")
    if not isinstance(journal, Journal):
        raise TypeError(
            f"what is replayed is an oz.journal.Journal, not {type(journal).__name__}: write "
            "Journal(directory)"
        )
    done = stats or ReplayStats()
    control = control or Control()
    with (
        closing(Bell()) as bell,
        bell.rung_by_signals(),
        control._waking(bell.ring),
        ExitStack() as listening,
    ):
        if wait_for_room:
            listening.enter_context(publisher._engine.news.rings(bell.ring))
        _replay(
            journal.read(pattern, start=start, end=end, gaps=True),
            publisher,
            done,
            _Clock(speed, control, bell, on_look),
            wait_for_room=wait_for_room,
            with_headers=headers,
        )
    publisher.flush()
    return done


def _replay(
    records: Iterable[Record],
    publisher: Publisher,
    done: ReplayStats,
    clock: _Clock,
    *,
    wait_for_room: bool,
    with_headers: bool,
) -> None:
    for record in records:
        if not record.is_message:
            done.gaps += 1
            done.lost += record.lost or 0
        elif not clock.wait_for(record.time_ns or 0) or not _publish_in_time(
            publisher, record, done, clock if wait_for_room else None, with_headers=with_headers
        ):
            break
        done.passed = (record.offset or 0) + 1


def _publish_in_time(
    publisher: Publisher, record: Record, done: ReplayStats, clock: _Clock | None, *, with_headers: bool
) -> bool:
    """Publish one message, when there is room for it; False when the replay is stopped before."""
    while True:
        try:
            _publish(publisher, record, done, with_headers=with_headers)
        except WouldBlock:
            if clock is None:
                raise
            if not clock.await_room():
                return False
        else:
            return True


def _publish(publisher: Publisher, record: Record, done: ReplayStats, *, with_headers: bool) -> None:
    found, more, extras = unpack_headers(record.headers)
    # Whoever published it may have sent what oz itself refuses to.
    fields = {name: value for name, value in found.items() if type(name) is str and type(value) in _ALLOWED}
    payload: Any = [record.payload, *more] if more else record.payload
    if with_headers:
        fields.update(_added(record))
    try:
        options = extras._replace(headers=fields or None)._asdict()
        # A column of its own has it, which is a header by now: nobody waits for the answer any more.
        del options["reply_to"]
        publisher.publish(record.subject, payload, **options)
    except WouldBlock:
        raise
    except (ValueError, TypeError):
        done.refused += 1
    else:
        done.published += 1


def _added(record: Record) -> Iterator[tuple[str, Any]]:
    yield "oz-offset", record.offset
    yield "oz-time-ns", record.time_ns
    if record.origin is not None:
        yield "oz-origin", record.origin
    if record.sequence is not None:
        yield "oz-sequence", record.sequence
    if record.position is not None:
        yield "oz-position", record.position
    if record.reply_to is not None:
        yield "oz-reply-to", record.reply_to
