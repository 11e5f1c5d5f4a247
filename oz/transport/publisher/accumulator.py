"""The accumulator: messages that wait for others to make a batch, on their way to filtered subscriptions.

They are sent at once when the publisher has been quiet, and otherwise when there are `MAX_BATCH` of them or
`MAX_DELAY` is over; in a loop at the end of its turn, of which one message at most goes out at once. Adding a
message takes no lock: one `list.extend` is whole whatever other threads do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import inf
from typing import Any

import zmq

from oz.protocol.publisher.batches import MAX_BATCH
from oz.protocol.publisher.batching import STEP
from oz.protocol.publisher.dispatch import Dispatch
from oz.protocol.publisher.interest import Recipients
from oz.protocol.publisher.sink import Clock
from oz.protocol.stats import PublisherStats
from oz.transport.guard import Guard
from oz.wire.batch import LARGE, MAX_COUNT
from oz.wire.extras import Rich

QUIET = 20e-6
"""Seconds from the end of a short send, more after messages that nobody wanted, from which a publisher counts
as quiet: the next message does not wait for others."""

SHARED = 0.0005
"""The same where others are about to come, so that they share a frame."""

SHARE = 0.25
"""The share of the time of a long send, as to many subscribers, that counts as quiet after it: to look for
subscriptions takes longer then, too."""

BATCH_BYTES = 65_536
"""Size that batches are held to, by taking fewer messages when those are large."""

_MOST = STEP * MAX_COUNT

_NO_RECIPIENTS = Recipients(is_plain=False, streams=(), choices=())


class Accumulator:
    """The messages that one publisher sends in its next batches.

    Attributes:
        guard: of the publisher.
        messages: recipients, subject and payload in turn; see `batching.STEP`.
        limit: the length at which they go out.
        in_turns: it goes by the turns of a loop.
        is_over: the publisher has closed, and nothing goes out any more.
        sent_at: when a batch went out last, in monotonic seconds.
    """

    __slots__ = (
        "_clock",
        "_counted",
        "_dispatch",
        "_expect_more",
        "_is_rich",
        "_is_shared",
        "_is_turn_used",
        "_look",
        "_quiet",
        "_stats",
        "_took",
        "_unwanted",
        "_whole_limit",
        "guard",
        "in_turns",
        "is_over",
        "limit",
        "messages",
        "sent_at",
    )

    def __init__(
        self,
        guard: Guard,
        dispatch: Dispatch,
        stats: PublisherStats,
        look: Callable[[Any], object],
        expect_more: Callable[[], object],
        clock: Clock,
        *,
        in_turns: bool = False,
    ) -> None:
        """Start empty.

        Args:
            guard: of the publisher.
            dispatch: what sends batches.
            stats: where to count.
            look: called with the socket after something was sent.
            expect_more: called when a message waits for others: sees to it that they go out in time.
            clock: what time it is.
            in_turns: `expect_more` has `end_turn` called at the end of the present turn of a loop.
        """
        self.guard = guard
        guard.mend = dispatch.lose_count
        self._dispatch = dispatch
        self._stats = stats
        self._look = look
        self._expect_more = expect_more
        self._clock = clock
        self.messages: list[Any] = []
        self.limit = self._whole_limit = STEP * MAX_BATCH
        self.is_over = False
        self.in_turns = in_turns
        self._is_turn_used = self._is_shared = False
        self._is_rich = False
        self._counted = 0
        self.sent_at = 0.0
        self._quiet = QUIET
        # Seconds of the last send, but at most twice those of the one before: one that another thread came
        # into the middle of says nothing about the next.
        self._took = inf
        self._unwanted = 0

    def __len__(self) -> int:
        """Count the messages that wait."""
        return len(self.messages) // STEP

    def begin(self, socket: Any, recipients: Recipients, raw: bytes, item: bytes) -> None:
        """Send a message at once, if the publisher has been quiet; otherwise have it wait.

        It waits, too, where a signal handler publishes in the middle of a send: nobody else is given the
        numbers of what is half sent.
        """
        unwanted = self._stats.unwanted
        # Messages that nobody wants are no silence: among many of them the wanted ones wait for each other.
        if (
            not self.messages
            and (now := self._clock()) - self.sent_at >= self._quiet * (1 + unwanted - self._unwanted)
            and not self._is_turn_used
        ):
            self.guard.is_wanted = True
            with self.guard:
                if not (self.messages or self.guard.is_interrupted):
                    self._send_alone(socket, recipients, raw, item, now)
                    return
        self.messages += (recipients, raw, item)
        if len(self.messages) >= self.limit:
            self.flush(socket)
        else:
            self._expect_more()

    def _send_alone(self, socket: Any, recipients: Recipients, raw: bytes, item: Any, now: float) -> None:
        """Send a message that waits for no others, with the guard held."""
        self._check_open()
        guard = self.guard
        # What `undivided` does, the short way.
        with guard.busy:
            guard.is_busy = True
            if guard.is_torn:
                guard.mend_torn()
            self._unwanted = self._stats.unwanted
            self._stats.sent += 1
            guard.is_torn = True
            self._dispatch.send_alone(recipients, raw, item)
            guard.is_torn = False
            # Not from its beginning: with many subscribers a send takes longer than what counts as quiet, and
            # every message of a burst would go out alone.
            self.sent_at = sent_at = self._clock()
            self._took = took = min(sent_at - now, 2 * max(QUIET, self._took))
            self._quiet = max(QUIET, SHARE * took)
        guard.is_busy = False
        if guard.postponed:
            guard.do_postponed()
        if self.in_turns:
            # Tasks of one turn publish further apart than what counts as quiet.
            self._is_turn_used = True
            self._expect_more()
        self._look(socket)

    def expect_others(self, socket: Any, most: float) -> None:
        """Hold the next message, as others are about to come: for the end of the turn, or for `go`.

        Args:
            socket: of the publisher.
            most: where so many wait they go: whoever gets them is at work while the others come.
        """
        if len(self.messages) >= STEP * most:
            self.flush(socket)
        if self.in_turns:
            self._is_turn_used = True
        else:
            self._quiet = max(SHARED, self._quiet)
            self._is_shared = True

    def go(self, socket: Any) -> None:
        """Send what waits by `expect_others`, as no others come. A loop does so as its turn ends."""
        if self._is_shared:
            self._is_shared = False
            if self.messages:
                self.flush(socket)

    def expects_others(self) -> bool:
        """Tell whether others are about to join what waits or to send it, for `SHARED` after a send."""
        return self._is_shared and self._clock() - self.sent_at < SHARED

    def end_turn(self, socket: Any) -> None:
        """Send what a turn of the loop has left, as it ends."""
        self._is_turn_used = False
        if self.messages:
            self.flush(socket)

    def begin_rare(self, socket: Any, recipients: Recipients, raw: bytes, item: Any) -> None:
        """The same for what is large, has extras or is kept as a last value, with the guard held."""
        self._check_open()
        content = item[0] if type(item) is Rich else item
        if type(content) is bytes and len(content) >= LARGE and not self.guard.is_interrupted:
            self._send(socket)
            self.guard.undivided(self._send_large, [recipients, raw, item])
            self._look(socket)
            return
        is_quiet = not (self.messages or self._is_turn_used or self.guard.is_interrupted)
        if is_quiet and (now := self._clock()) - self.sent_at >= self._quiet:
            self._send_alone(socket, recipients, raw, item, now)
            return
        is_rich = type(item) is Rich
        # In one statement, so that what a signal handler sends does not take the one without the other.
        self._is_rich, self.messages[sys.maxsize :] = self._is_rich or is_rich, (recipients, raw, item)
        if len(self.messages) >= self.limit:
            self.flush(socket)
        else:
            self._expect_more()

    def position(self) -> int:
        """Return the position that the next message has which is added, with the guard held."""
        return self._dispatch.position + len(self)

    def pass_over(self, socket: Any) -> None:
        """Take the next position for a message that nobody gets, with the guard held."""
        if not self.messages:
            self._dispatch.position += 1
            return
        # In its place among those that wait, as positions go by that; it is no message sent.
        self.messages += (_NO_RECIPIENTS, b"", b"")
        self._counted += 1
        if len(self.messages) >= self.limit:
            self.flush(socket)

    def count(self) -> None:
        """Count what waits as sent."""
        with self.guard:
            waiting = len(self)
            self._stats.sent += waiting - self._counted
            self._counted = waiting

    def begin_end(self) -> None:
        """Make every thread that adds a message from now on send it too, or learn that it came too late.

        Adding takes no lock. Whoever has added before this is called finds the message sent by a flush that
        follows it; whoever adds later sees that it is full, and flushes.
        """
        self.limit = self._whole_limit = 0

    def end(self) -> None:
        """Send nothing more."""
        self.is_over = True

    def _check_open(self) -> None:
        """Refuse what comes after the end.

        Raises:
            zmq.ZMQError: as of a socket that is closed.
        """
        if self.is_over:
            raise zmq.ZMQError(zmq.ENOTSOCK)

    def flush(self, socket: Any) -> None:
        """Send what waits; later, where a signal handler asks for it in the middle of a send.

        Raises:
            zmq.ZMQError: something was added that came too late.
        """
        self.guard.is_wanted = True
        with self.guard:
            if self.messages:
                self._check_open()
            if self.guard.is_interrupted:
                self._expect_more()
                return
            if self.guard.postponed:
                self.guard.do_postponed()
            # As much as there is now: other threads may go on adding to it.
            for _ in range(0, len(self.messages), _MOST):
                self._send(socket)

    def _send(self, socket: Any) -> None:
        begun_at = self._clock()
        length = self.guard.undivided(self._take_and_send)
        if not length:
            return
        self.sent_at = sent_at = self._clock()
        self._took = took = min(sent_at - begun_at, 2 * max(QUIET, self._took))
        self._quiet = max(QUIET, SHARE * took)
        self._unwanted = self._stats.unwanted
        self._limit_bytes(length)
        self._look(socket)

    def _take_and_send(self) -> int:
        """Send what waits, with a number each; return the length that it had."""
        guard, messages, dispatch = self.guard, self.messages, self._dispatch
        length = min(len(messages), _MOST)
        count = length // STEP
        if not count:
            return 0
        first = dispatch.position
        # In one statement, so that a signal handler comes before or after: what it publishes has a position
        # of its own, and what is taken is sent once, or told lost if it raises.
        taken, messages[:length], dispatch.position, guard.is_torn, is_rich, self._is_rich = (
            messages[:length],
            (),
            first + count,
            True,
            self._is_rich,
            length < len(messages) and self._is_rich,
        )
        if taken:
            self._stats.sent += count - self._counted
            self._counted = 0
            dispatch.send(taken, first, is_rich=is_rich)
        # Otherwise one that came before it has closed the publisher, and sent them all.
        guard.is_torn = False
        return len(taken)

    def _send_large(self, message: list[Any]) -> None:
        self._stats.sent += 1
        self.guard.is_torn = True
        self._dispatch.send_large(message)
        self.guard.is_torn = False

    def _limit_bytes(self, length: int) -> None:
        """Take fewer large messages into a batch from now on, or more again, going by the last one."""
        if self._dispatch.size > BATCH_BYTES and self._whole_limit:
            fewer = length * BATCH_BYTES // self._dispatch.size
            self.limit = max(STEP, fewer - fewer % STEP)
        elif self.limit < self._whole_limit:
            self.limit = min(self._whole_limit, 2 * self.limit)
