"""The receive path of publisher-side filtering, where one read gives a batch of messages, or a lone one."""

from __future__ import annotations

from functools import partial
from math import ceil, inf, nan
from typing import Any

import zmq

from oz.compiled import HOT
from oz.protocol.messages import Message
from oz.protocol.subscriber.columns import Arrived, MessageBatch
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.lone import shortest
from oz.transport.backend import Backend
from oz.transport.frames import FrameReader
from oz.transport.guard import Guard
from oz.transport.peer_keys import KeyedReader
from oz.transport.subscriber.declarations import Declarer
from oz.transport.subscriber.links import PublisherLinks, read_with_link
from oz.transport.subscriber.receiver import LONGEST, PATIENCE, ReceivePath, Take, first_of

_RCVTIMEO = int(zmq.RCVTIMEO)
_NOBLOCK = int(zmq.NOBLOCK)

_LATER = 0.15
"""Seconds after the earliest look for one on account of what was read."""

_LOOK_NS = 250_000_000
"""Nanoseconds between two looks at what is due where there is always something to read."""

_DRAIN_SECONDS = 0.01
"""Seconds spent at most on looking for newer messages before one that is held back is given."""


class RoutedReceivePath(ReceivePath):
    """The receive path for publisher-side filtering: one read gives a batch of messages.

    Attributes:
        waiting: messages that were unpacked and are still to be given.
    """

    __slots__ = (
        "_armed_for", "_declarer", "_decoder", "_links", "_look_at", "_read_with_link", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        guard: Guard,
        backend: Backend,
        reader: FrameReader,
        decoder: BatchDecoder,
        declarer: Declarer,
        links: PublisherLinks | None = None,
    ) -> None:
        """Put together what a subscriber has."""
        super().__init__(guard, backend, reader, decoder)
        self._declarer = declarer
        self._links = links
        self._decoder = decoder
        self._accept = shortest(decoder)
        self.waiting = decoder.waiting
        self._look_at = 0
        self._armed_for = nan
        self._read_with_link = (
            reader.read_with_link if isinstance(reader, KeyedReader) else partial(read_with_link, backend)
        )

    def take(self, socket: Any, flags: int, until: float | None = None) -> Message | None:
        """Return the next message; None when the time is over.

        RCVTIMEO of the socket itself ends a read that waits when something is due. What the user has set
        means nothing here.
        """
        waiting = self.waiting
        if waiting:
            # What `first_of` does, without a call.
            first = waiting[0]
            del waiting[0]
            return first
        streams, declarer, may_wait = self._decoder.streams, self._declarer, not flags & _NOBLOCK
        while True:
            if (streams.is_collecting or streams.buffered) and (message := self._at_hand(socket)) is not None:
                return message
            if may_wait and declarer.due_at != self._armed_for:
                self._arm(socket)
            try:
                lone = self._read_one(socket, flags)
            except zmq.Again:
                declarer.look(self._monotonic(), is_idle=True)
                if not may_wait:
                    raise
                self._armed_for = nan
                if self._ends(flags, until):
                    return None
                continue
            if lone is not None:
                return lone
            if waiting:
                return first_of(waiting)
            if self._ends(flags, until):
                return None

    def shortest(self) -> Take:
        """Return `take`, compiled where that is possible."""
        if HOT is None or type(self) is not RoutedReceivePath:
            return self.take
        return HOT.TakeLone(
            twin=self.take,
            guard=self._guard,
            read=self._read,
            clock=self._time_ns,
            accept=self._accept,
            skip=self._skip_frames,
            error=zmq.ZMQError,
            path=self,
            declarer=self._declarer,
            streams=self._decoder.streams,
            links=self._links,
            waiting=self.waiting,
            again=zmq.Again,
            look=self._look_on_the_way,
            hasten=self._hasten,
            find_nothing=self._find_nothing,
            go_on=self._go_on,
        )

    def _find_nothing(self, socket: Any, flags: int, until: float | None = None) -> Message | None:
        """Go on with `take` for the compiled part, which has found nothing to read."""
        self._declarer.look(self._monotonic(), is_idle=True)
        if flags & _NOBLOCK:
            raise zmq.Again
        self._armed_for = nan
        return None if self._ends(flags, until) else self.take(socket, flags, until)

    def _go_on(self, socket: Any, flags: int, until: float | None = None) -> Message | None:
        """Go on with `take` for the compiled part, which has read something and was given no message."""
        if not self.waiting and self._ends(flags, until):
            return None
        return self.take(socket, flags, until)

    def _ends(self, flags: int, until: float | None) -> bool:
        """Tell whether `take` gives up, as there is a refusal to raise, or its time is over."""
        if (self._decoder.answers.denials or self._declarer.failures) and not flags & _NOBLOCK:
            return True
        return until is not None and self._monotonic() >= until

    def _look_on_the_way(self, now: int) -> None:
        """Look after what is due also when there is always something to read."""
        self._look_at = now + _LOOK_NS
        if self._declarer.due_at <= self._monotonic():
            self._declarer.look(self._monotonic())
            self._armed_for = nan

    def _hasten(self) -> None:
        """Bring the next look forward, as something has come."""
        self._declarer.hasten(_LATER)

    def _arm(self, socket: Any) -> None:
        """Have a read that waits end when something is due."""
        self._armed_for = self._declarer.due_at
        left = self._declarer.seconds_left()
        with self._guard:
            self._backend.set(socket, _RCVTIMEO, -1 if left > LONGEST else max(1, ceil(left * 1000)))

    def _take_back(self, taken: list[Arrived]) -> None:
        """Put what was taken first the next time, one by one, as a signal handler has raised."""
        line: list[Any] = []
        for one in (*taken, *self.waiting):
            line += one.messages() if isinstance(one, MessageBatch) else [one]
        self.waiting.clear()
        self.waiting.extend(line)

    def _at_hand(self, socket: Any) -> Message | None:
        """Return a message that is held back, once there is none newer; declare what was collected."""
        streams = self._decoder.streams
        if streams.is_collecting:
            self._declarer.flush()
        if not streams.buffered:
            return None
        ends = self._monotonic() + _DRAIN_SECONDS
        try:
            while not self.waiting and self._monotonic() < ends:
                lone = self._read_one(socket, _NOBLOCK)
                if lone is not None:
                    return lone
        except zmq.Again:
            pass
        return self._decoder.next()

    def unpack(self, socket: Any) -> None:
        """Take in the batches and answers that are there; messages wait in line.

        A publisher may be faster than this, so that there is always one more: it has an end.
        """
        ends = self._monotonic() + PATIENCE
        try:
            while self._monotonic() < ends:
                lone = self._read_one(socket, _NOBLOCK)
                if lone is not None:
                    self.waiting.append(lone)
        except zmq.Again:
            self._declarer.look(self._monotonic(), is_idle=True)

    def _read_one(self, socket: Any, flags: int) -> Message | None:
        """Read one frame; give its message if it was the only one, otherwise put them in line."""
        links = self._links
        is_curious = links is not None and links.is_curious
        if is_curious:
            frames, link = self._read_guarded(self._read_with_link, socket, flags)
        else:
            frames = self._read_guarded(self._read, socket, flags)
        now = self._time_ns()
        if now >= self._look_at:
            self._look_on_the_way(now)
        message = self._accept(frames, now)
        if self._declarer.is_settled and (links is not None or self._decoder.streams.due_at == -inf):
            self._hasten()
        access = self._decoder.access
        if is_curious and links is not None and (access is None or not access.has_denied):
            links.note(frames[0], link)
        return message
