"""Queues of received messages: delivery to the queues, their limits, and acknowledgement of handled messages.

Theory of operation
-------------------
Messages of a subscription without a handler go to the queue of the subscriber (`shared`). When the program calls
`receive` of a subscription, or iterates over it, the subscription gets its own queue, and `Subscriber.receive` no
longer returns its messages. A subscription with a handler always has a queue. The exception is a subscription with
`inline`, which has no queue: the messages go to `Dispatcher.inline`, and the thread that reads the sockets calls the
handler.

A queue holds messages and gaps in order. The gap is reported when the program has received the messages before it. If
the affected subscriptions have different queues, no single queue can hold the gap. Then the gap goes to
`Dispatcher.reports`, and the engine reports the gap at once.

The queue of a subscription is full when it has `max_pending` messages. Then the option `overflow` decides:

- With None, `Dispatcher.is_full` makes the engine stop reading, so that messages wait at the publisher.
- With a policy, the queue drops messages and inserts a gap that reports the dropped messages.

A message with `ack="handled"` is handled when all queues that received the message have handled it. If the
subscription of a waiting message ends, the message is *abandoned*, so that later messages can be acknowledged
(`oz.subscriber.link.Marks`).
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, repeat
from operator import attrgetter
from typing import Any

from oz.compiled import HOT
from oz.message import Extras, Forwarded, Gap
from oz.subscriber.link import Link, Messages
from oz.subscriber.message import Arrival, HandledMessage, Message
from oz.subscriber.subscriptions import Subscription as Entry
from oz.subscriber.subscriptions import Subscriptions
from oz.wire.extras import decode_extras
from oz.wire.links import SID

SHARED_PENDING = 65_536
"""The engine stops reading when the queue of the subscriber holds this number of messages."""
GAPS = 1_000
"""The engine also stops reading when a queue with an overflow policy holds 2 × `max_pending` + `GAPS` items, because
the queue may contain many gaps."""
MAX_ROUTES = 65_536
"""Maximum number of subjects whose routes are cached for one stream."""
LONGEST_SUBJECT = 256
"""Maximum size in bytes of a subject whose route is cached, so that peers cannot fill the memory with long subjects."""
MAX_IDS = 262_144
"""Maximum number of message ids that `dedupe` remembers."""
MAX_FORWARDED = 65_536
"""Maximum number of forwarded messages that the subscriber remembers, so that it can drop the second copy of a message
that comes through two parallel forwarders."""
MAX_REASONS = 20
"""Maximum number of gap reasons that are counted separately."""

REMOVED = Gap(None, 0, 0, "")
"""Item that replaces a message after its subscription has ended or has got its own queue. Receivers skip the item."""

Direct = tuple[str, bytes, dict[Any, Any] | None]
"""Subject, payload and extras of a direct message. The extras are not checked yet."""

_new = tuple.__new__
_subject = attrgetter("subject")


@dataclass(slots=True)
class SubscriberStats:
    """Counters of a subscriber.

    Attributes:
        received: number of messages that arrived, without repeats.
        delivered: number of messages that a queue or an inline handler received.
        filtered: number of plain messages that matched a prefix, but no pattern.
        malformed: number of messages and frames that could not be decoded.
        dropped: number of messages that the full queue of a subscription dropped.
        lost: number of messages that gaps reported as lost or dropped.
        repeated: number of messages that arrived a second time, or whose id `dedupe` has seen before.
        unwanted: number of messages whose subscription has ended, or that another member of the group received.
        failed: number of handler calls that raised an exception.
        denied: number of received messages that their publisher's key was not allowed to publish.
    """

    received: int = 0
    delivered: int = 0
    filtered: int = 0
    malformed: int = 0
    dropped: int = 0
    lost: int = 0
    repeated: int = 0
    unwanted: int = 0
    failed: int = 0
    denied: int = 0


class Queue:
    """Messages and gaps that wait for one receiver.

    Attributes:
        items: messages and gaps in order.
        inbox: inbox of the subscription that owns the queue; None for the queue of the subscriber.
        work: list to which the queue appends itself for each item that a handler must receive; None without a handler.
        full: set to which the queue adds itself when the engine must stop reading.
    """

    __slots__ = ("dropped", "full", "inbox", "items", "max_pending", "overflow", "work")

    def __init__(
        self,
        inbox: Inbox | None = None,
        max_pending: int = SHARED_PENDING,
        overflow: str | None = None,
        work: deque[Queue] | None = None,
        *,
        full: set[Queue],
    ) -> None:
        self.inbox, self.max_pending, self.overflow, self.work = inbox, max_pending, overflow, work
        self.full = full
        self.items: deque[Message | Gap] = deque()
        self.dropped = 0

    def extend(self, messages: list[Message], origin: bytes | None) -> int:
        """Append messages; return the number of dropped messages.

        Args:
            messages: messages in order.
            origin: id of the publisher's process.
        """
        items = self.items
        if self.overflow is None or len(items) + len(messages) <= self.max_pending:
            # A single C call, so that a signal handler that raises cannot split a batch.
            items += messages
            if self.work is not None:
                self.work.extend(repeat(self, len(messages)))
            if self.overflow is None and len(items) >= self.max_pending:
                self.full.add(self)
            return 0
        before = self.dropped
        for message in messages:
            if len(items) < self.max_pending or self._make_space(message, origin):
                items.append(message)
                if self.work is not None:
                    self.work.append(self)
        return self.dropped - before

    def put_gap(self, gap: Gap) -> None:
        """Append a gap. With "drop_newest", add the gap to a similar gap at the end of the queue, if there is one.

        Gaps count for the limit of the queue like messages, because too many gaps would also fill the memory.
        """
        if self.overflow == "drop_newest" and self._join_last(gap):
            return
        self.items.append(gap)
        # A queue with an overflow policy has a higher limit, because new messages remove old items, but gaps do not.
        limit = self.max_pending if self.overflow is None else 2 * self.max_pending + GAPS
        if len(self.items) >= limit:
            self.full.add(self)
        if self.work is not None:
            self.work.append(self)

    def _join_last(self, gap: Gap) -> bool:
        """Find a gap with the same origin and reason behind the last message, and join the two gaps.

        Returns:
            False if there is no similar gap.
        """
        try:
            for place in count(-1, -1):
                last = self.items[place]
                if not isinstance(last, Gap):
                    break
                if (last.origin, last.reason) == (gap.origin, gap.reason):
                    self.items[place] = _joined(last, gap)
                    return True
        except IndexError:
            # The queue has no message, or another thread has removed the item.
            pass
        return False

    def _make_space(self, message: Message, origin: bytes | None) -> bool:
        """Apply the overflow policy to a full queue. Return whether the queue now has space for the new message."""
        items = self.items
        if self.overflow == "drop_newest":
            self._count_drop(message)
            self.put_gap(Gap(origin, 1, 0, "full"))
            return False
        dropped, origins = 0, set()
        if self.overflow == "conflate":
            for replaced in self._conflate(message.subject):
                origins.add(replaced.origin)
                dropped += 1
        # Gaps with other reasons than "full" stay at the front of the queue.
        kept: list[Gap] = []
        while items and len(items) + len(kept) >= self.max_pending:
            try:
                oldest = items.popleft()
            except IndexError:
                # Another thread has received the last item.
                break
            if isinstance(oldest, Message):
                self._count_drop(oldest)
                origins.add(oldest.origin)
                dropped += 1
            elif oldest.count is not None and oldest.reason == "full":
                origins.add(oldest.origin)
                dropped += oldest.count
            elif kept and kept[-1].origin == oldest.origin and kept[-1].reason == oldest.reason:
                kept[-1] = _joined(kept[-1], oldest)
            else:
                kept.append(oldest)
        if dropped:
            # Report all publishers in one gap, because gaps need space in the queue.
            items.appendleft(Gap(origins.pop() if len(origins) == 1 else None, dropped, 0, "full"))
        items.extendleft(reversed(kept))
        return True

    def _conflate(self, subject: str) -> list[Message]:
        """Drop all messages with `subject`, and keep only the newest message of each other subject.

        Other threads receive items from the left end without the lock. If another thread has taken an item meanwhile,
        the queue has space, and nothing is dropped.

        Returns:
            The dropped messages.
        """
        before = list(self.items)
        kept: deque[Message | Gap] = deque()
        seen = {subject}
        dropped = []
        for item in reversed(before):
            if isinstance(item, Message):
                if item.subject in seen:
                    dropped.append(item)
                    continue
                seen.add(item.subject)
            kept.appendleft(item)
        try:
            # CPython switches threads and runs signal handlers only at calls and jumps. Therefore the check and the
            # call of `__init__`, which replaces all items, are one step.
            if self.items[0] is before[0]:
                self.items.__init__(kept)  # type: ignore[misc]
            else:
                return []
        except IndexError:
            return []
        for message in dropped:
            self._count_drop(message)
        return dropped

    def _count_drop(self, message: Message) -> None:
        self.dropped += 1
        # With `ack="handled"`, later messages cannot be acknowledged before this message.
        message.ack()


class Inbox:
    """Receiver of the messages of one subscription.

    Attributes:
        entries: the subscription's patterns, as entries of `Subscriptions`.
        handle: `Subscription` object of the program. For a node this is a weak reference, because the node's thread
            refers to the inbox, and must not keep the program's object alive.
        handler: function called with each message, or None.
        is_inline: whether the thread that reads the sockets calls the handler directly.
        queue: own queue of the subscription; None if its messages go to the queue of the subscriber.
        limit: the subscription ends after this number of messages; None without a limit.
        delivered: number of delivered messages, counted only if there is a limit.
        dropped: number of messages that publishers have dropped for the subscription.
        falls_back: whether the subscription may use plain connections.
        is_active: whether the subscription still receives messages.
        is_removed: whether `unsubscribe` has ended the subscription, so that its waiting messages are dropped.
        replier: function of a node that sends a reply. Its arguments are the request, the payload and the headers.
            None without a node.
    """

    __slots__ = (
        "__weakref__",
        "_handle",
        "delivered",
        "dropped",
        "entries",
        "falls_back",
        "handler",
        "is_active",
        "is_handled",
        "is_inline",
        "is_removed",
        "limit",
        "queue",
        "replier",
    )

    def __init__(
        self,
        handler: Callable[[Message], Any] | None = None,
        *,
        is_inline: bool = False,
        is_handled: bool = False,
        limit: int | None = None,
        falls_back: bool = True,
    ) -> None:
        self.entries: list[Entry] = []
        self._handle: Any = None
        self.handler, self.is_inline, self.is_handled = handler, is_inline, is_handled
        self.queue: Queue | None = None
        self.limit, self.delivered, self.dropped = limit, 0, 0
        self.falls_back, self.is_active, self.is_removed = falls_back, True, False
        self.replier: Callable[[Message, Any, dict[str, Any] | None], Any] | None = None

    @property
    def handle(self) -> Any:
        """`Subscription` object of the program; None if the program has deleted the object of a node."""
        found = self._handle
        return found() if isinstance(found, weakref.ref) else found

    @handle.setter
    def handle(self, handle: Any) -> None:
        self._handle = handle

    @property
    def is_over(self) -> bool:
        """Whether the subscription has received `limit` messages, and must end."""
        return self.limit is not None and self.delivered >= self.limit


class Route:
    """Receivers of messages with one subject in one stream.

    Attributes:
        subject: subject as text.
        inboxes: inboxes whose patterns match the subject.
        queues: queues to which each message can be appended without more checks. Empty if `Dispatcher.put` must check
            each message.
        target: the queue in `queues`, if there is exactly one; otherwise None.
    """

    __slots__ = ("inboxes", "queues", "subject", "target")

    def __init__(self, subject: str, inboxes: tuple[Inbox, ...], queues: tuple[Queue, ...]) -> None:
        self.subject, self.inboxes, self.queues = subject, inboxes, queues
        self.target = queues[0] if len(queues) == 1 else None


class Routes(dict[bytes, Route]):
    """Dict from subjects to the cached routes of one stream.

    Attributes:
        target: queue that is the `target` of all routes of the stream; None if the routes have different targets.
        cache: cache that C code uses, or None.
    """

    __slots__ = ("_is_new", "cache", "target")

    def __init__(self) -> None:
        super().__init__()
        self.cache = None if HOT is None else HOT.Subjects()
        self.target: Queue | None = None
        self._is_new = True

    def update_target(self, route: Route) -> None:
        """Update `target` for a new route. The caller does this for each route, even if `store` does not cache it."""
        if self._is_new:
            self.target, self._is_new = route.target, False
        elif route.target is not self.target:
            self.target = None

    def store(self, subject: bytes, route: Route) -> None:
        """Cache a route, if its subject is not longer than `LONGEST_SUBJECT`."""
        if len(subject) <= LONGEST_SUBJECT:
            if len(self) >= MAX_ROUTES:
                self.clear()
            self[subject] = route


class Dispatcher:
    """Delivers batches and gaps to the queues of a subscriber.

    Attributes:
        shared: queue of the subscriber.
        work: queues with items for handlers. A queue is in this list one time for each item, in the order of the
            items.
        inline: pairs of inbox and message for inline handlers, in order.
        decode: function of the codec that decodes a payload, or None.
        reports: gaps that the engine must report at once.
        finished: inboxes that have received `limit` messages, and must end.
        stats: counters of the subscriber.
        lost: dict from the reason of gaps to the number of missing messages.
        unknown_losses: dict from the reason of gaps to the number of gaps whose number of messages is unknown.
        on_direct: function called with the link and a list of direct messages; None if direct messages are unwanted.
            It is called under the engine's lock, and must not raise.
        on_marked: function called under the engine's lock with each message that has headers; None if no message is
            traced.
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        *,
        decode: Callable[[bytes], Any] | None = None,
        dedupe: bool = False,
    ) -> None:
        """Start without queues.

        Args:
            subscriptions: subscriptions of the subscriber.
            decode: function of the codec that decodes a payload, or None.
            dedupe: whether to drop a message whose id was received before.
        """
        self._subscriptions, self.decode = subscriptions, decode
        self._ids: dict[Any, None] | None = {} if dedupe else None
        self._forwarded: dict[tuple[int, bytes, bytes, int], None] = {}
        self._full: set[Queue] = set()
        self.shared = Queue(full=self._full)
        self.work: deque[Queue] = deque()
        self.inline: deque[tuple[Inbox, Message]] = deque()
        self.reports: deque[Gap] = deque()
        self.finished: list[Inbox] = []
        self.inboxes: dict[Inbox, None] = {}
        self.stats = SubscriberStats()
        self.lost: dict[str, int] = {}
        self.unknown_losses: dict[str, int] = {}
        self._routes: dict[int, Routes] = {}
        self._plain_routes: dict[bytes, Route] = {}
        self._queues: dict[tuple[Inbox, ...], tuple[Queue, ...]] = {}
        self._own: dict[Queue, None] = {}
        self.on_direct: Callable[[Link, list[Direct]], object] | None = None
        self.on_marked: Callable[[Message], object] | None = None

    # inboxes

    def add(self, inbox: Inbox, max_pending: int, overflow: str | None, *, has_work: bool = True) -> None:
        """Add an inbox. The caller has added its entries to the subscriptions.

        Args:
            inbox: inbox to add.
            max_pending: maximum number of messages in the inbox's own queue.
            overflow: overflow policy of the inbox's own queue, or None.
            has_work: whether to add the inbox's queue to `work` for each message for the handler.
        """
        self.inboxes[inbox] = None
        if inbox.handler is not None and not inbox.is_inline:
            self._add_queue(inbox, max_pending, overflow, self.work if has_work else None)
        self.forget()

    def own_queue(self, inbox: Inbox, max_pending: int, overflow: str | None) -> Queue:
        """Return the inbox's own queue. The first call moves the inbox's messages out of `shared`."""
        if inbox.queue is not None:
            return inbox.queue
        queue = self._add_queue(inbox, max_pending, overflow, None)
        for place, item in self._shared_items():
            if not isinstance(item, Message) or inbox not in item.route.inboxes:
                continue
            rest: Message | Gap = REMOVED
            left: list[int] = []
            if any(receiver.queue is None for receiver in item.route.inboxes):
                rest = item
                if isinstance(item, HandledMessage):
                    left = item.arrival.left or [1]
                    left[0] += 1
                    rest = item = _delivery(item, left)
            if self._replace_shared(place, rest):
                queue.items.append(_delivery(item, left or None))
            elif left:
                left[0] -= 1
        self._trim_shared()
        self.forget()
        return queue

    def _add_queue(
        self, inbox: Inbox, max_pending: int, overflow: str | None, work: deque[Queue] | None
    ) -> Queue:
        inbox.queue = Queue(inbox, max_pending, overflow, work, full=self._full)
        self._own[inbox.queue] = None
        return inbox.queue

    def remove(self, inbox: Inbox) -> None:
        """Remove an inbox, and its waiting messages that no other inbox receives."""
        self.inboxes.pop(inbox, None)
        inbox.is_active, inbox.is_removed = False, True
        queue = inbox.queue
        if queue is not None:
            self._own.pop(queue, None)
            self._full.discard(queue)
            # Another thread may receive the last message meanwhile.
            with suppress(IndexError):
                while True:
                    self.abandon(queue.items.popleft())
        else:
            for place, item in self._shared_items():
                if (
                    isinstance(item, Message)
                    and all(
                        receiver.is_removed or receiver.queue is not None for receiver in item.route.inboxes
                    )
                    and self._replace_shared(place, REMOVED)
                ):
                    self.abandon(item)
            self._trim_shared()
        self.forget()

    def _shared_items(self) -> list[tuple[int, Message | Gap]]:
        """Return the items of `shared`, each with its negative index.

        Other threads take messages from the left end without the lock, and a signal handler may raise at any time.
        Negative indexes stay valid, and items that stay in the queue are never moved.
        """
        items = list(self.shared.items)
        return list(enumerate(items, -len(items)))

    def _replace_shared(self, place: int, item: Message | Gap) -> bool:
        """Replace an item of `shared`; return False if another thread has taken it."""
        try:
            self.shared.items[place] = item
        except IndexError:
            return False
        return True

    def _trim_shared(self) -> None:
        """Delete the removed items at the right end, which would otherwise count as waiting messages."""
        items = self.shared.items
        with suppress(IndexError):
            while items[-1] is REMOVED:
                items.pop()

    def abandon(self, item: Message | Gap) -> None:
        """Record that one queue will not handle a message, because its subscription has ended; see `Link.abandon`."""
        if isinstance(item, HandledMessage):
            arrival = item.arrival
            if self._is_last(item):
                arrival.link.abandon(arrival.epoch, arrival.stream, item.sequence)

    def forget(self) -> None:
        """Clear the cached routes, because the subscriptions have changed."""
        self._routes = {}
        self._plain_routes = {}
        self._queues = {}

    @property
    def is_full(self) -> bool:
        """Whether the engine must stop reading, because a queue without an overflow policy is full."""
        for queue in [*self._full]:
            if len(queue.items) < queue.max_pending:
                self._full.discard(queue)
        return bool(self._full)

    def pending(self, inbox: Inbox) -> int:
        """Return the number of messages that wait for an inbox."""
        items = list((inbox.queue or self.shared).items)
        if inbox.queue is not None:
            return sum(isinstance(item, Message) for item in items)
        return sum(isinstance(item, Message) and inbox in item.route.inboxes for item in items)

    # messages of links

    def deliver(
        self,
        link: Link,
        effect: Messages,
        time_ns: int,
        gap: int,
        acknowledge: Callable[[Message], object],
    ) -> None:
        """Deliver messages of a link.

        Args:
            link: link over which the messages arrived.
            effect: messages that have arrived.
            time_ns: time at which the batch was read, in nanoseconds since 1970.
            gap: number of messages that were lost directly before the first message.
            acknowledge: function that must be called for each handled message, if the stream has `ack="handled"`.
        """
        stream, content = effect.stream, effect.content
        routes = self._routes.get(stream)
        if routes is None:
            routes = self._routes[stream] = Routes()
        count = len(effect.positions)
        self.stats.received += count
        options = self._subscriptions.options_of(stream)
        is_handled = options is not None and options.handled
        arrival = Arrival(
            link.origin, time_ns, effect.is_redelivered, link, link.epoch, stream, None,
            acknowledge if is_handled else None, effect.sequence, effect.positions, gap,
        )  # fmt: skip
        kind = HandledMessage if is_handled else Message
        if HOT is not None and type(content) is not list and self.decode is None:
            made = HOT.make_messages(content, routes.cache, routes, self.find, stream, kind, arrival)
            self._put_all(routes.target, made, link.origin)
            return
        flat = effect.flat
        subjects, payloads, extras = flat[0::3], flat[1::3], flat[2::3]
        if extras.count(None) == count and self.decode is None:
            found: list[Any] = list(map(routes.get, subjects))
            if None in found:
                find = self.find
                found = [
                    route or find(routes, stream, subject, None)
                    for route, subject in zip(found, subjects, strict=True)
                ]
            fields = zip(map(_subject, found), payloads, found, repeat(arrival), range(count), strict=False)
            messages: list[Message] = list(map(_new, repeat(kind), fields))
            self._put_all(routes.target, messages, link.origin)
        else:
            messages = self._rich_messages(
                routes, stream, effect, arrival, subjects, payloads, extras, is_handled
            )
            if messages:
                arrival.gap_offset = messages[0].offset
            self._put_all(None, messages, link.origin)

    def deliver_direct(self, link: Link, effect: Messages) -> None:
        """Deliver messages of the direct stream.

        Args:
            link: link over which the messages arrived.
            effect: messages that have arrived.
        """
        count = len(effect.positions)
        self.stats.received += count
        if self.on_direct is None:
            self.stats.unwanted += count
            return
        self.stats.delivered += count
        flat = effect.flat
        subjects = [subject.decode("utf-8", "surrogateescape") for subject in flat[0::3]]
        self.on_direct(link, list(zip(subjects, flat[1::3], flat[2::3], strict=True)))
        # Confirm the frame now, so that the messages are not delivered again if a signal handler raises later.
        link.confirm_frame()

    def _put_all(self, target: Queue | None, messages: list[Message], origin: bytes | None) -> None:
        """Deliver messages to their queues.

        Args:
            target: queue that receives all messages; None if the messages have different queues.
            messages: messages in order.
            origin: id of the publisher's process.
        """
        if target is not None:
            self._extend(target, messages, origin)
            return
        at = 0
        while at < len(messages):
            if HOT is not None:
                end = HOT.put_messages(messages, at)
                self.stats.delivered += end - at
                if end == len(messages):
                    return
                at = end
            message = messages[at]
            queues = message.route.queues
            if not queues:
                self.put(message)
            for place, queue in enumerate(queues):
                self._extend(queue, [message], origin, is_first=not place)
            at += 1

    def _rich_messages(
        self,
        routes: Routes,
        stream: int,
        effect: Messages,
        arrival: Arrival,
        subjects: list[bytes],
        payloads: list[bytes],
        extras: list[Any],
        is_handled: bool,
    ) -> list[Message]:
        """Return message objects for messages with extras or a codec. Report a gap for a message that is malformed."""
        kind = HandledMessage if is_handled else Message
        messages = []
        for offset in range(len(subjects)):
            subject, payload, found = subjects[offset], payloads[offset], extras[offset]
            sequence = effect.sequence + offset
            fields: Extras | None = None
            value: Any = payload
            try:
                if found is not None:
                    fields = decode_extras(found)
                if self.decode is not None:
                    value = self.decode(payload)
            except Exception:
                # A codec of the program may raise any exception.
                self.stats.malformed += 1
                if is_handled:
                    arrival.link.abandon(arrival.epoch, stream, sequence)
                self.put_gap(Gap(arrival.origin, 1, 0, "malformed"), stream)
                continue
            sid = None if found is None else found.get(SID)
            if fields is not None and self.is_repeat(stream, fields, arrival.is_redelivered, sid, subject):
                self.stats.repeated += 1
                if is_handled:
                    arrival.link.handled(arrival.epoch, stream, sequence)
                continue
            if sid is not None:
                route = self._make_route(stream, subject, found)
            else:
                route = routes.get(subject) or self.find(routes, stream, subject, None)
            body = None if self.decode is None else payload
            message = _new(kind, (route.subject, value, route, arrival, offset, fields, body))
            messages.append(message)
            if self.on_marked is not None and fields is not None and fields.headers is not None:
                self.on_marked(message)
        return messages

    def is_repeat(
        self,
        stream: int,
        fields: Extras,
        is_redelivered: bool,
        sid: int | None = None,
        subject: bytes = b"",
    ) -> bool:
        """Return whether a stream has received a message before. The id and the source of the message are remembered.

        Args:
            stream: stream number of the message.
            fields: optional fields of the message, among them its id and, for a forwarded message, its source.
            is_redelivered: whether another member of the group may have received the message. A redelivered message
                is never a repeat.
            sid: number of the only subscription that receives a last value; None for other messages.
            subject: subject of the message.
        """
        if (
            fields.forwarded is not None
            and not is_redelivered
            and self._came_before(stream, subject, fields.forwarded)
        ):
            return True
        ids = self._ids
        if ids is None or fields.message_id is None or is_redelivered:
            return False
        # The key includes the stream, because a publisher sends a copy of each message on each matching stream.
        found = stream, sid, fields.message_id
        if found in ids:
            return True
        ids[found] = None
        if sid is not None:
            ids[stream, None, fields.message_id] = None
        if len(ids) > MAX_IDS:
            del ids[next(iter(ids))]
        return False

    def _came_before(self, stream: int, subject: bytes, forwarded: Forwarded) -> bool:
        """Return whether a forwarded message has already arrived, and remember the message.

        The subject is compared too. Otherwise a key could suppress messages on subjects that it may not publish.
        """
        known, found = self._forwarded, (stream, subject, forwarded.origin, forwarded.position)
        if found in known:
            return True
        known[found] = None
        if len(known) > MAX_FORWARDED:
            del known[next(iter(known))]
        return False

    def routes_of(self, stream: int) -> Routes | None:
        """Return the cached routes of a stream, or None."""
        return self._routes.get(stream)

    def find(self, routes: Routes, stream: int, subject: bytes, extras: Any) -> Route:
        """Create and cache the route of a subject that is not cached, and return the route."""
        route = self._make_route(stream, subject, extras)
        routes.update_target(route)
        routes.store(subject, route)
        return route

    def _make_route(self, stream: int, subject: bytes, extras: Any) -> Route:
        entries = self._subscriptions.match(stream, subject, extras)
        inboxes = tuple([entry.owner for entry in entries])
        if len(inboxes) > 1:
            inboxes = tuple(dict.fromkeys(inboxes))
        return self._route_to(subject, inboxes)

    def _route_to(self, subject: bytes, inboxes: tuple[Inbox, ...]) -> Route:
        queues = self._queues.get(inboxes)
        if queues is None:
            found = dict.fromkeys(inbox.queue or self.shared for inbox in inboxes)
            is_simple = not any(
                inbox.is_inline or inbox.is_handled or inbox.limit is not None for inbox in inboxes
            )
            if len(self._queues) >= MAX_ROUTES:
                self._queues.clear()
            queues = self._queues[inboxes] = tuple(found) if is_simple else ()
        return Route(subject.decode("utf-8", "surrogateescape"), inboxes, queues)

    def put(self, message: Message) -> None:
        """Deliver one message to each queue and inline handler of its route."""
        queues: dict[int, Queue] = {}
        inline: list[Inbox] = []
        for inbox in message.route.inboxes:
            if not inbox.is_active or inbox.is_over:
                continue
            if inbox.limit is not None:
                inbox.delivered += 1
                if inbox.is_over:
                    self.finished.append(inbox)
            if inbox.is_inline:
                inline.append(inbox)
            else:
                queue = inbox.queue or self.shared
                queues[id(queue)] = queue
        deliveries = len(queues) + len(inline)
        if not deliveries:
            self.stats.unwanted += 1
            if isinstance(message, HandledMessage):
                arrival = message.arrival
                arrival.link.abandon(arrival.epoch, arrival.stream, message.sequence)
            return
        left = [deliveries] if deliveries > 1 and isinstance(message, HandledMessage) else None
        for inbox in inline:
            self.inline.append((inbox, _delivery(message, left)))
        self.stats.delivered += not queues
        for place, queue in enumerate(queues.values()):
            self._extend(queue, [_delivery(message, left)], message.arrival.origin, is_first=not place)

    def _extend(
        self, queue: Queue, messages: list[Message], origin: bytes | None, *, is_first: bool = True
    ) -> None:
        """Append messages to a queue. If several queues receive a message, only the first queue counts it."""
        dropped = queue.extend(messages, origin)
        self.stats.dropped += dropped
        self.stats.delivered += (len(messages) if is_first else 0) - dropped

    @staticmethod
    def _is_last(message: Message) -> bool:
        """Record that one queue has finished with a message; return whether all queues have finished."""
        arrival = message.arrival
        if arrival.left is None:
            return True
        if arrival.is_done:
            return False
        arrival.is_done = True
        arrival.left[0] -= 1
        return not arrival.left[0]

    def handled(self, message: Message) -> None:
        """Record that one queue has handled a message. A second call has no effect."""
        arrival = message.arrival
        if self._is_last(message):
            arrival.link.handled(arrival.epoch, arrival.stream, message.sequence)

    # plain messages

    def deliver_plain(
        self,
        batch: list[list[bytes]],
        time_ns: int,
        match: Callable[[bytes], tuple[Inbox, ...]],
        delimiter: bytes | None = None,
    ) -> int:
        """Deliver messages of a plain publisher; return the number of messages that match a pattern.

        Args:
            batch: list of messages, each a list of frames.
            time_ns: time at which the messages were read, in nanoseconds since 1970.
            match: function that returns the inboxes whose patterns match a subject.
            delimiter: bytes between subject and payload in messages of one frame; None for messages of two frames.
        """
        routes, decode, shared_arrival = self._plain_routes, self.decode, Arrival(None, time_ns)
        if HOT is not None and decode is None and delimiter is None:
            made = HOT.make_plain(
                batch, routes, lambda subject: self.plain_route(subject, match), shared_arrival
            )
            if made is not None:
                messages, common, filtered = made
                self.stats.received += len(batch)
                self.stats.filtered += filtered
                self._put_all(common, messages, None)
                return len(messages)
        wanted = 0
        pending: list[Message] = []
        before: Queue | None = None
        for frames in batch:
            self.stats.received += 1
            subject = frames[0]
            if delimiter is not None:
                subject, found, rest = subject.partition(delimiter)
                if not found:
                    self.stats.malformed += 1
                    continue
            route = routes.get(subject) or self.plain_route(subject, match)
            if not route.inboxes:
                self.stats.filtered += 1
                continue
            wanted += 1
            arrival, body = shared_arrival, None
            payload: Any = frames[1] if len(frames) > 1 else b""
            if delimiter is not None:
                payload = rest
            if len(frames) != 2 or delimiter is not None:
                arrival = Arrival(None, time_ns, frames=frames)
            if decode is not None:
                body = payload
                try:
                    payload = decode(payload)
                except Exception:
                    self.stats.malformed += 1
                    continue
            fields: tuple[Any, ...] = (route.subject, payload, route, arrival, 0)
            message = _new(Message, fields if body is None else (*fields, None, body))
            target = route.target
            if target is not before and pending and before is not None:
                self._extend(before, pending, None)
                pending = []
            before = target
            if target is None:
                self.put(message)
            else:
                pending.append(message)
        if pending and before is not None:
            self._extend(before, pending, None)
        return wanted

    def plain_route(self, subject: bytes, match: Callable[[bytes], tuple[Inbox, ...]]) -> Route:
        """Return the route of a subject from a plain or multicast publisher."""
        routes = self._plain_routes
        route = routes.get(subject)
        if route is None:
            route = self._route_to(subject, match(subject))
            if len(subject) <= LONGEST_SUBJECT:
                if len(routes) >= MAX_ROUTES:
                    routes.clear()
                routes[subject] = route
        return route

    def unmatched_subject(self) -> str | None:
        """Return a subject that arrived without a link and matches no pattern; None if no such subject is cached."""
        routes = reversed(self._plain_routes.values())
        return next((route.subject for route in routes if not route.inboxes), None)

    # gaps

    def put_gap(self, gap: Gap, stream: int | None) -> None:
        """Append a gap to the queue of the affected subscriptions, or to `reports` if they have several queues.

        Args:
            gap: gap to report.
            stream: number of the stream that lost messages; None if all streams may have lost messages.
        """
        losses = self.unknown_losses if gap.count is None else self.lost
        # Limit the number of reasons, because a forwarder passes on reasons from another bus, which can be any texts.
        reason = gap.reason if gap.reason in losses or len(losses) < MAX_REASONS else "other"
        losses[reason] = losses.get(reason, 0) + (1 if gap.count is None else gap.count)
        if gap.count is not None and gap.reason != "malformed":
            self.stats.lost += gap.count
        concerned = [
            inbox
            for inbox in self.inboxes
            if stream is None or any(entry.stream == stream for entry in inbox.entries)
        ]
        if stream is not None and gap.count is not None and gap.reason == "dropped":
            for inbox in concerned:
                inbox.dropped += gap.count
        queues = {None if inbox.is_inline else inbox.queue or self.shared for inbox in concerned}
        queue = queues.pop() if len(queues) == 1 else None
        if queue is None:
            self.reports.append(gap)
        else:
            queue.put_gap(gap)

    # interrupted frames

    def remove_from(self, link: Link, sequence: int) -> None:
        """Remove the messages of a link from a sequence number on, because their delivery was interrupted."""
        for queue in (self.shared, *self._own):
            items = queue.items
            while items:
                last = items[-1]
                if not isinstance(last, Message):
                    break
                arrival = last.arrival
                if arrival.link is not link or arrival.epoch != link.epoch:
                    break
                if last.sequence is None or last.sequence < sequence:
                    break
                items.pop()


def _joined(gap: Gap, other: Gap) -> Gap:
    """Return the sum of two gaps with the same origin and reason."""
    count = None if gap.count is None or other.count is None else gap.count + other.count
    return Gap(gap.origin, count, gap.recovered + other.recovered, gap.reason)


def _delivery(message: Message, left: list[int] | None) -> Message:
    """Return a copy of a message for one of several queues; return the message itself if `left` is None."""
    return message if left is None else message.for_delivery(message.arrival.copy(left))


if HOT is not None:
    HOT.know_subscriber(Message, HandledMessage, Route, Queue, Inbox)
