"""The blocking publisher."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import zmq

from oz.sync.publisher_engine import ThreadedPublisher
from oz.transport.publisher.closing import PartRead
from oz.transport.publisher.front import PublisherSocket
from oz.transport.publisher.options import PublisherOptions
from oz.transport.publisher.publish import as_pair, by_fields


class Publisher(PublisherSocket):
    """Publishes messages by subject; in place of a `zmq.PUB` socket.

    Several threads may publish on one. Plain ZeroMQ subscribers get `[subject, payload]`; subscribers
    with publisher-side filtering get batches of what they want. The methods of `zmq.Socket` are there too,
    with their own meaning and units.

    Its own handle, which code in C takes (`zmq.Poller`, `zmq.proxy`, `Socket.shadow`), is a PUB that no
    thread of oz's uses: it can be polled and sent into like any PUB. All else is done by the engine.
    """

    _engine: ThreadedPublisher

    # Code that waits for the handle asks these of the handle too.
    _own_options = frozenset(int(one) for one in (zmq.TYPE, zmq.FD, zmq.EVENTS))

    def _begin(self, options: PublisherOptions) -> None:
        self._engine = engine = ThreadedPublisher(options)
        try:
            zmq.Socket.__init__(self, engine.context, zmq.PUB)
            engine.serve(self)
        except BaseException:
            self.close(0)
            raise
        self._register()
        self._take_shortcuts()

    def _take_shortcuts(self) -> None:
        """Have the methods that send lead to the engine at once, where no subclass has its own.

        They become attributes of this object: looking up those of a ZeroMQ socket costs 0.07 µs each.
        """
        kind, engine, own = type(self), self._engine, self.__dict__
        send, send_multipart = engine.quick_sends()
        # Not by the engine's own `publish`, the short way, which leads to this.
        self._publish_fields = by_fields(engine.publish_slowly)
        publish = engine.quick_publish(self._publish_fields)
        if kind.publish is Publisher.publish and publish is not None:
            own["publish"] = publish
        if kind.flush is Publisher.flush:
            own["flush"] = engine.flush_now
        if kind.send is Publisher.send:
            own["send"] = send
        if kind.send_multipart is Publisher.send_multipart:
            own["send_multipart"] = send_multipart

    def publish(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
        message_id: bytes | tuple[bytes, int] | None = None,
    ) -> None:
        """Publish one message.

        Args:
            subject: a full subject, valid in the publisher's dialect.
            payload: bytes, or a list of them for several frames; with a codec any value that it encodes.
            headers: text to text, bytes, numbers, truth values or None. Only subscribers that have the
                publisher filter get them.
            key: what sticky queue groups go by, in place of the subject.
            message_id: what a repeat is known by to those with `dedupe`: up to 64 bytes, or a pair of such
                bytes and a number.

        Raises:
            SubjectError: the dialect does not allow the subject, or a `_LOCAL.` one would leave this host.
            WouldBlock: a subscriber is at its high-water mark, unless `on_full` is `"drop"`.
            ProtocolError: the subject begins with the two bytes that open oz's own keys.
            ValueError: a frame is larger than `Limits.message_size`, and somebody wants it.
            ClosedError: the publisher is closed.
            OwnershipError: the publisher was made before a fork.
        """
        self._publish_fields(subject, payload, headers=headers, key=key, message_id=message_id)

    def publish_many(self, pairs: Iterable[tuple[str | bytes, Any]]) -> int:
        """Publish messages one after another.

        Args:
            pairs: of subject and payload.

        Returns:
            How many were published. All before the first that raises are.

        Raises:
            SubjectError, WouldBlock, ProtocolError, ClosedError, OwnershipError: as `publish`.
            TypeError: something is no pair; or as `publish`.
        """
        count = 0
        # An attribute of a socket costs about as much as a message that joins others.
        publish = self.publish
        with self.batch():
            for pair in pairs:
                try:
                    subject, payload = pair if type(pair) is tuple else as_pair(pair)
                except ValueError:
                    subject, payload = as_pair(pair)
                publish(subject, payload)
                count += 1
        return count

    def flush(self) -> None:
        """Send now what waits for others to make a batch.

        Raises:
            ClosedError: the publisher is closed.
            OwnershipError: it was made before a fork.
        """
        self._engine.flush_now()

    def wait_for_subscribers(
        self, n: int = 1, subject: str | bytes | None = None, timeout: float | None = None
    ) -> None:
        """Wait until subscriptions have arrived: what is published after it is not lost to a slow start.

        Args:
            n: how many subscriptions to wait for; a subscriber has one for each prefix that it asks
                for, and behind a proxy equal ones count once.
            subject: count only those that let this subject through.
            timeout: seconds; None waits for ever, 0 only looks.

        Raises:
            Timeout: there were fewer in that time.
            SubjectError: the dialect does not allow the subject.
            ClosedError: the publisher is closed.
        """
        self._engine.wait_for_subscribers(n, subject, timeout)

    def close(self, linger: int | None = None, *, timeout: float | None = None) -> None:
        """Close, and send what is still to be sent. A second call does nothing.

        With a context of its own the publisher waits until all is sent or the time is over. With yours
        it sets LINGER and returns; your context's `term()` waits then.

        Args:
            linger: as in pyzmq, milliseconds; -1 waits for ever. Ctrl-C ends that, and what is unsent
                is lost when the process ends.
            timeout: the same in seconds; default 5 with a context of its own, else what LINGER is.

        In the child of a fork it does nothing.
        """
        if self._engine.is_foreign:
            return
        # First, so that nothing more comes from it; what has come goes on to subscribers.
        zmq.Socket.close(self)
        self._engine.close(linger, timeout=timeout)

    def __del__(self) -> None:
        """Close a publisher that the program dropped."""
        if "_engine" in self.__dict__ and not self._engine.closed:
            warnings.warn(f"Unclosed socket {self}", ResourceWarning, stacklevel=2, source=self)
            self._engine.close_dropped()
        super().__del__()

    def _close_read(self, timeout: float) -> PartRead:
        """Close one with a context of its own, and wait until subscribers have read all; tell which have."""
        zmq.Socket.close(self)
        return self._engine.close_read(timeout)
