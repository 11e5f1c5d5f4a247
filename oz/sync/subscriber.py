"""The blocking subscriber."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import inf
from typing import Any

import zmq

from oz.compiled import HOT
from oz.errors import ClosedError, Timeout
from oz.numbers import check_count, check_wait
from oz.protocol.messages import Message
from oz.protocol.subscriber.columns import MessageBatch, PlainBatch
from oz.sync.subscriptions import Subscription
from oz.sync.waiting import BlockingWaiter, Handler, poll_messages
from oz.transport.frames import as_frame_objects, copy_into
from oz.transport.subscriber.draining import drain, wait_ready
from oz.transport.subscriber.receiver import MANY, PATIENCE, first_of
from oz.transport.subscriber.socket import SubscriberSocket

_NOBLOCK = int(zmq.NOBLOCK)


class Subscriber(SubscriberSocket[Handler, Subscription]):
    """Receives messages by subject pattern from any ZeroMQ publisher; in place of a `zmq.SUB` socket.

    Use it from one thread at a time. Handlers run in the thread that receives. The methods of
    `zmq.Socket` are there too, with their own meaning and units, and give only what a subscription wants.
    """

    _subscription_class = Subscription
    _waiter_class = BlockingWaiter
    _awaits_handlers = False
    _may_block = True
    _waiter: BlockingWaiter

    def receive(self, timeout: float | None = None) -> Message:
        """Wait for the next message that a subscription without a handler wants; run handlers meanwhile.

        Args:
            timeout: seconds; None waits for ever, 0 takes only what is there.

        Raises:
            Timeout: none came in that time.
            ClosedError: the subscriber is closed.
            OwnershipError: another thread is using it, or it was made before a fork.
        """
        # Once: an attribute of a socket costs 0.05 µs.
        engine = self._engine
        if engine.ready:
            return first_of(engine.ready)
        if engine.must_check:
            engine.check_behind_what_came()
            if engine.ready:
                return first_of(engine.ready)
        if timeout is None:
            try:
                message = engine.take(self, 0)
            except zmq.Again:
                return self._next_forever()
            except zmq.ZMQError:
                self._check_open()
                raise
            if message is not None and (message.route.is_only_listed or engine.dispatch(message)):
                return message
            return self._next_forever()
        return self._next_within(timeout)

    def receive_many(self, limit: int = MANY, timeout: float | None = None) -> list[Message]:
        """Wait for a message as `receive` does, and take with it those that are there already.

        Args:
            limit: messages to take at most.
            timeout: seconds to wait for the first.

        Returns:
            At least one message.

        Raises:
            Timeout, ClosedError, OwnershipError: as `receive`.
        """
        check_count("limit", limit, 1, 2**63)
        messages = [self.receive(timeout)]
        try:
            self._take_more(messages, limit)
        except zmq.ZMQError:
            pass
        except BaseException:
            # A signal handler has raised: they come first the next time.
            self._ready.extendleft(messages[::-1])
            raise
        return messages

    def _take_more(self, messages: list[Message], limit: int) -> None:
        """Take what is there already, up to a limit."""
        ready, take, waiting = self._ready, self._engine.take, self._waiting
        # Messages that nobody wants do not hold it up for long.
        until = time.monotonic() + PATIENCE
        while len(messages) < limit:
            if ready:
                messages += (first_of(ready),)
                continue
            message = first_of(waiting) if waiting else take(self, _NOBLOCK, until)
            if message is None:
                break
            if message.route.is_only_listed or self._engine.dispatch(message):
                messages += (message,)

    def receive_batches(
        self, limit: int = MANY, timeout: float | None = None
    ) -> list[Message | MessageBatch | PlainBatch]:
        """Wait and take what is there, as `receive_many` does, without making a message of each.

        Where nothing is to be done to messages one by one (no handler, no codec, no headers), what came in
        one batch from a publisher that filters comes as one `oz.MessageBatch`, and plain messages of
        two frames that follow one another as one `oz.PlainBatch`. Others come as messages.

        Args:
            limit: take no more once there are so many messages; a batch is not split.
            timeout: seconds to wait for the first.

        Raises:
            Timeout, ClosedError, OwnershipError: as `receive`.
        """
        check_count("limit", limit, 1, 2**63)
        check_wait("timeout", timeout)
        deadline = inf if timeout is None else time.monotonic() + timeout
        while self._receive_path.comes_in_columns and not self._ready:
            try:
                taken = self._receive_path.take_what_is_there(self, limit, time.monotonic() + PATIENCE)
            except zmq.ZMQError:
                self._check_open()
                raise
            if taken:
                return taken
            self._engine.tend()
            left = deadline - time.monotonic()
            if left <= 0:
                raise Timeout(f"no message in {timeout:g} s")
            self._waiter.wait(left)
        left = max(0.0, deadline - time.monotonic())
        return [*self.receive_many(limit, None if timeout is None else left)]

    def __iter__(self) -> Iterator[Message]:
        """Receive for ever, until the subscriber is closed or drained."""
        messages = self._iterate()
        if HOT is None:
            return messages
        return HOT.Iteration(
            twin=messages,
            ready=self._ready,
            waiting=self._waiting,
            take=self._engine.take,
            engine=self._engine,
            socket=self,
            again=zmq.Again,
            error=zmq.ZMQError,
        )

    def _iterate(self) -> Iterator[Message]:
        ready, take = self._ready, self._engine.take
        waiting = self._waiting
        while True:
            if ready:
                # Its handlers have been called.
                yield first_of(ready)
                continue
            if waiting:
                unpacked = first_of(waiting)
                if unpacked.route.is_only_listed or self._engine.dispatch(unpacked):
                    yield unpacked
                continue
            if self._engine.must_check:
                if self._engine.is_drained and not self._engine.has_some:
                    return
                self._engine.check_behind_what_came()
                if ready:
                    continue
            try:
                message = take(self, 0)
            except zmq.Again:
                # RCVTIMEO is for the calls of pyzmq.
                self._engine.tend()
                continue
            except zmq.ZMQError:
                if not self.closed:
                    raise
                return
            if message is not None and (message.route.is_only_listed or self._engine.dispatch(message)):
                yield message

    def run(self, timeout: float | None = None) -> int:
        """Call handlers for what arrives, until nothing has for a while; other messages wait in line.

        Args:
            timeout: seconds of silence after which to return; None runs until the subscriber is closed.

        Returns:
            How many messages were delivered.

        Raises:
            OwnershipError: another thread is using it, or it was made before a fork.
        """
        before = self.stats.delivered
        while True:
            seen = self.stats.delivered
            try:
                self._ready.append(self._next_forever() if timeout is None else self._next_within(timeout))
            except ClosedError:
                return self.stats.delivered - before
            except Timeout:
                if self.stats.delivered == seen:
                    return self.stats.delivered - before

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every publisher has answered: what any of them publishes from then on is not lost.

        There is at least one for each endpoint connected to. Behind a proxy those count that have
        answered anything so far. Messages that come meanwhile wait in line.

        Args:
            timeout: seconds; None waits for ever, 0 only looks.

        Raises:
            Timeout: some publisher has not answered in that time; says what is missing.
            PermissionDenied: a publisher denies a pattern, or does not trust the key of this subscriber.
            ProtocolError: a publisher refuses a pattern; says which.
            ValueError: without `filtering="publisher"`, as a plain publisher cannot answer.
            ClosedError: the subscriber is closed.
        """
        self._waiter.run(wait_ready(self._engine, self._attachments, timeout))

    def drain(self, timeout: float = 1.0) -> None:
        """Stop asking, and deliver what is there: handlers are called, the rest is still to be received.

        Iteration ends after the last message, and `receive` raises `ClosedError`.

        Args:
            timeout: seconds for which publishers that filter are waited for, so that nothing on its way
                is lost; 0.25 at most for those that it has connected to and never heard. A plain one does
                not answer: what is here counts.

        Raises:
            ClosedError: the subscriber is closed.
            OwnershipError: another thread is using it.
        """
        self._waiter.run(drain(self._engine, self._attachments.connections, timeout))

    def _next_within(self, timeout: float) -> Message:
        check_wait("timeout", timeout)
        now = time.monotonic()
        # What is there comes also when there is no time to wait.
        try:
            return self._next(_NOBLOCK, now + max(timeout, PATIENCE))
        except zmq.Again:
            pass
        return self._next_until(now + timeout, timeout)

    def _next_forever(self) -> Message:
        try:
            return self._next(0)
        except zmq.Again:
            # RCVTIMEO is for the calls of pyzmq.
            self._engine.tend()
        return self._next_until(inf, inf)

    def _next_until(self, deadline: float, timeout: float) -> Message:
        while (left := deadline - time.monotonic()) > 0:
            try:
                self._waiter.wait(left)
                return self._next(_NOBLOCK, deadline)
            except zmq.Again:
                self._engine.tend()
        raise Timeout(f"no message in {timeout:g} s")

    def _next(self, flags: int, until: float | None = None) -> Message:
        """Take messages until one is for the caller; see `SubscriberEngine.next`.

        With `until=-inf` it looks for `PATIENCE` from when something has come that is for nobody: as a rule
        the clock need not be read.
        """
        waiting = self._waiting
        try:
            message = first_of(waiting) if waiting else self._engine.take(self, flags, until)
            if message is not None and message.route.is_only_listed:
                return message
            if until == -inf:
                until = time.monotonic() + PATIENCE
            return self._engine.next(flags, until, message)
        except zmq.Again:
            raise
        except zmq.ZMQError:
            self._check_open()
            raise

    # the pyzmq surface -----------------------------------------------------------------------------------

    def recv_multipart(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """Receive the frames of the next message that a subscription wants.

        Args:
            flags: 0 or `zmq.NOBLOCK`.
            copy: False for `zmq.Frame` objects in place of bytes.
            track: as in pyzmq.

        Raises:
            zmq.Again: there is none, with NOBLOCK or when RCVTIMEO is over.
            zmq.ZMQError: the socket is closed.
        """
        if self._rest:
            frames = list(self._rest)
            self._rest.clear()
        elif self._ready:
            frames = self._ready.popleft().frames
        else:
            frames = self._wanted_frames(flags)
        return frames if copy else as_frame_objects(frames)

    def _wanted_frames(self, flags: int) -> list[bytes]:
        limit = self._receive_path.limit
        try:
            if self._engine.must_check:
                self._engine.check_behind_what_came()
            if self._ready:
                return self._ready.popleft().frames
            if flags & _NOBLOCK:
                message = self._next(_NOBLOCK, -inf)
            else:
                message = self._next_forever() if limit < 0 else self.receive(limit / 1000)
        except Timeout:
            raise zmq.Again from None
        except ClosedError:
            raise zmq.ZMQError(zmq.ENOTSOCK) from None
        return message.frames

    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """Receive one frame of a message that a subscription wants; RCVMORE tells whether more follow."""
        if not self._rest:
            self._rest.extend(self.recv_multipart(flags))
        frame = self._rest.popleft()
        return frame if copy else as_frame_objects([frame, *self._rest])[0]

    def recv_into(self, buffer: Any, /, *, nbytes: int = 0, flags: int = 0) -> int:
        """Receive one frame, as `recv` does, into a buffer; gives the frame's size in bytes."""
        return copy_into(buffer, self.recv(flags), nbytes)

    def poll(self, timeout: int | None = None, flags: int = zmq.POLLIN) -> int:
        """Wait for something to read, as `zmq.Socket.poll`: milliseconds, and a hint only.

        A message that no pattern wants makes the socket readable too, unless publishers filter.
        `receive(timeout=…)` and `oz.Poller` know better.
        """
        if flags & zmq.POLLIN and self._engine.has_news:
            return int(zmq.POLLIN)
        if flags & zmq.POLLIN and self._engine.declarer.has_duties:
            return poll_messages(self, timeout, flags)
        with self._guard:
            return super().poll(timeout, flags)

    def close(self, linger: int | None = None, *, timeout: float | None = None) -> None:
        """Close. A second call does nothing.

        Args:
            linger: as in pyzmq, milliseconds.
            timeout: the same in seconds; a subscriber has nothing to send but subscriptions.

        Raises:
            OwnershipError: another thread is using it.
        """
        if self._close_socket(0 if linger is None else linger, timeout):
            self._end_context(0)
