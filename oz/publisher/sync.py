"""The publisher whose calls block."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from oz.compiled import HOT
from oz.numbers import check_count, check_wait
from oz.publisher.base import PublisherBase, PublishingBase
from oz.publisher.engine import UNKNOWN, Engine
from oz.publisher.thread import ThreadLifetime
from oz.transport.waiting import wait_in_thread

_MAX_COUNT = 2**31


class Publishing(PublishingBase):
    """Blocking publish calls that `oz.Publisher` and `oz.Node` share."""

    def publish(
        self,
        subject: str | bytes,
        payload: Any = b"",
        *,
        headers: dict[str, Any] | None = None,
        key: str | bytes | None = None,
        id: bytes | tuple[bytes, int] | None = None,
    ) -> None:
        """Publish one message.

        Args:
            subject: full subject, valid in the dialect of the publisher.
            payload: bytes, or a value for the codec.
            headers: dict from header names to values; a value is text, bytes, a number, a boolean or None. Plain
                subscribers get no headers.
            key: a sticky queue group sends all messages with the same key to the same member; None uses the subject
                as the key.
            id: id of the message. Subscribers with `dedupe` drop a message whose id they have received before. An id
                is at most 64 bytes, or a pair of at most 64 bytes and a number.

        Raises:
            SubjectError: the dialect does not allow the subject.
            PermissionDenied: `security` names a permissions file that denies the subject to the publisher's key.
                A file that does not mention this key denies nothing.
            WouldBlock: a subscriber is full. With `on_full="raise"` the error is raised at once, with
                `on_full="block"` after `send_timeout` seconds.
            TypeError: the payload is not bytes and there is no codec, or another argument is not allowed.
            ValueError: the payload has more bytes than `limits.message_bytes`, or another argument is not
                allowed.
            ClosedError: the publisher is closed.
            OwnershipError: the publisher was created before a fork, and this process is the child.
        """
        # Each read of an attribute of `self` is slow, because the class defines `__getattr__`: read only `_engine`.
        engine = self._engine
        try:
            way = engine.quick[subject]
        except (KeyError, TypeError):
            # TypeError: a bytearray has no hash.
            way = UNKNOWN
        if (
            headers is None
            and key is None
            and id is None
            and type(payload) is bytes
            and len(payload) <= engine.max_fast_bytes
        ):
            if type(way) is tuple and way:
                waiting = engine.waiting
                if not engine.is_pressed:
                    if not waiting:
                        engine.begin_batch(way, payload)
                        return
                    # `extend` needs no lock, because it is one C call under the GIL; see `oz.publisher.engine`.
                    streams, raw = way
                    waiting.extend((streams, raw, payload, None))
                    if engine.is_resting or len(waiting) >= engine.full_length:
                        engine.appended()
                    return
            elif way is None:
                # No lock: CPython switches threads only at calls and jumps, and this statement contains neither.
                engine.batcher.unmatched += 1
                return
            elif type(way) is bytes and engine.send_plain(way, payload):
                return
        self._publish(subject, payload, headers, key, id)

    def _publish(self, subject: Any, payload: Any, headers: Any, key: Any, message_id: Any) -> None:
        engine = self._engine
        message = engine.prepare(subject, payload, headers, key, message_id)
        if not engine.offer(message):
            wait_in_thread(engine.waiters, engine.room(message))

    def publish_many(self, pairs: Iterable[tuple[str | bytes, Any]]) -> int:
        """Publish messages one after another, in batches.

        Args:
            pairs: pairs (subject, payload).

        Returns:
            Number of published messages. If `publish` raises for a message, all earlier messages are still published.

        Raises:
            ConfigurationError: an element is not a pair.
            TypeError: the argument is a mapping or text.
            Exception: any error of `publish`.
        """
        self._check_pairs(pairs)
        count = 0
        with self.batch():
            for element in pairs:
                try:
                    subject, payload = element
                except (TypeError, ValueError):
                    raise self._no_pair(element, count) from None
                self.publish(subject, payload)
                count += 1
        return count

    def flush(self) -> None:
        """Send all messages that wait in a batch.

        Raises:
            ClosedError, OwnershipError: see `publish`.
        """
        self._engine.flush()

    def wait_for_subscribers(
        self, subject: str | bytes | None = None, *, count: int = 1, timeout: float | None = 10.0
    ) -> None:
        """Wait until subscriptions have arrived. Messages that are published afterwards reach these subscribers.

        A subscriber with a connected link counts as one. A plain subscriber counts as one for each of its
        subscriptions. Equal subscriptions behind the same proxy together count as one.

        Args:
            subject: count only subscribers that receive this subject.
            count: number of subscribers to wait for.
            timeout: seconds to wait; None waits for ever, 0 only checks.

        Raises:
            Timeout: fewer subscribers than `count` were found within `timeout` seconds.
            SubjectError, ClosedError, OwnershipError: see `publish`.
        """
        check_count("count", count, 1, _MAX_COUNT)
        check_wait("timeout", timeout)
        wait_in_thread(self._engine.waiters, self._engine.subscribers(subject, count, timeout))


if HOT is not None:
    Publishing.publish = HOT.PublishMethod(twin=Publishing.publish, owner=PublishingBase)  # type: ignore[method-assign]


class Publisher(Publishing, PublisherBase):
    """Publishes messages by subject.

    Subscribers that use oz connect over links: the publisher filters their messages, and after a lost connection the
    link resumes without loss. Plain ZeroMQ subscribers get `[subject, payload]`. Several threads may publish with one
    object. A signal handler must not use a publisher.
    """

    def _begin(self, engine: Engine) -> None:
        self._life = ThreadLifetime(engine)

    def _start(self) -> None:
        self._life.start()

    def _abort(self) -> None:
        self._life.close(0.0)

    def _drop(self) -> None:
        self._life.drop()

    def close(self, *, timeout: float | None = 5.0) -> int:
        """Close the publisher. A second call does nothing. In the child of a fork, `close` does nothing.

        The call waits until all messages for connected subscribers are sent. Then the call waits for acknowledgements
        from each subscriber that sends a frame at least once a second. In groups with `ack="handled"` the call waits
        until the members have handled their messages. If a member is lost, `close` waits until the messages of this
        member have moved to another member that can receive them.

        Args:
            timeout: maximum time in seconds for the whole call. None waits until connected members of groups have
                handled their messages. Subscribers without a group must have received their messages, or have been
                silent for `resume_seconds`.

        Returns:
            Number of messages that subscribers have not acknowledged. A message for a group with `ack="handled"` counts
            until a member has handled it.
        """
        check_wait("timeout", timeout)
        return self._life.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
