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
    """Calls by which a publisher or a node publishes in threads."""

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
            headers: dict from text to text, bytes, numbers, truth values or None. Plain subscribers get no headers.
            key: key by which sticky queue groups choose a member; None for the subject.
            id: id by which subscribers with `dedupe` detect a repeated message: up to 64 bytes, or a pair of such
                bytes and a number.

        Raises:
            SubjectError: the dialect does not allow the subject.
            PermissionDenied: `security` names a file of permissions that denies the subject to the publisher's key.
                A file that does not mention this key denies nothing.
            WouldBlock: a subscriber is full, and `on_full` is "raise"; or `on_full` is "block", and the subscriber
                was still full after `send_timeout` seconds.
            TypeError: the payload is not bytes and there is no codec, or another argument is not allowed.
            ValueError: the payload has more bytes than `limits.message_bytes`, or another argument is not
                allowed.
            ClosedError: the publisher is closed.
            OwnershipError: the publisher was created before a fork, and this process is the child.
        """
        # Only one attribute of this object is read, because `__getattr__` makes each read slow.
        engine = self._engine
        try:
            way = engine.quick[subject]
        except (KeyError, TypeError):
            # A bytearray has no hash.
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
                    # One call of C: atomic under the GIL, so that no lock is needed; see `oz.publisher.engine`.
                    streams, raw = way
                    waiting.extend((streams, raw, payload, None))
                    if engine.is_resting or len(waiting) >= engine.full_length:
                        engine.appended()
                    return
            elif way is None:
                # CPython switches threads at calls and jumps only, so that no count is lost.
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
            Number of published messages. If one message causes an error, the messages before it are published.

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
        """Send the messages that wait for a batch.

        Raises:
            ClosedError, OwnershipError: see `publish`.
        """
        self._engine.flush()

    def wait_for_subscribers(
        self, subject: str | bytes | None = None, *, count: int = 1, timeout: float | None = 10.0
    ) -> None:
        """Wait until subscriptions have arrived. Messages that are published after this reach the subscribers.

        A link counts once while it is connected. A plain subscriber counts once for each of its subscriptions.
        Equal subscriptions behind a proxy count once.

        Args:
            subject: count only subscribers that receive this subject.
            count: number of subscribers to wait for.
            timeout: seconds to wait; None waits for ever, 0 only checks.

        Raises:
            Timeout: after the timeout there were fewer subscribers.
            SubjectError, ClosedError, OwnershipError: see `publish`.
        """
        check_count("count", count, 1, _MAX_COUNT)
        check_wait("timeout", timeout)
        wait_in_thread(self._engine.waiters, self._engine.subscribers(subject, count, timeout))


if HOT is not None:
    Publishing.publish = HOT.PublishMethod(twin=Publishing.publish, owner=PublishingBase)  # type: ignore[method-assign]


class Publisher(Publishing, PublisherBase):
    """Publishes messages by subject.

    Subscribers of oz have links: the publisher filters for them, and a link that was cut resumes without loss.
    Plain ZeroMQ subscribers get `[subject, payload]`. Several threads may publish with one object. A signal
    handler must not use a publisher.
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
        """Close. A second call does nothing, and so does a call in the child of a fork.

        The call waits until all messages for connected subscribers are sent. Then it waits for acknowledgements from
        each subscriber that sends a frame at least once a second. In groups with `ack="handled"` it waits until the
        members have handled their messages. If a member is lost, `close` waits until its messages have moved to
        another member that can receive them.

        Args:
            timeout: maximum time in seconds for the whole call. None waits until connected members have handled their
                messages, and until each other subscriber has its messages or was silent for `resume_seconds`.

        Returns:
            Number of messages that are not acknowledged, or that a group with `ack="handled"` has not handled.
        """
        check_wait("timeout", timeout)
        return self._life.close(timeout)

    def __enter__(self) -> Self:
        """Return the publisher; the `with` block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
