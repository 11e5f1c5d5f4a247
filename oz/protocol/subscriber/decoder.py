"""The batch decoder: what a subscriber does with batches and control records."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from oz.errors import ProtocolError
from oz.message import (
    BARE,
    Arrival,
    Extras,
    Gap,
    LoneMessage,
    Message,
    MessageBatch,
    RichMessage,
    RoutedMessage,
)
from oz.protocol.subscriber.dedupe import Repeats
from oz.protocol.subscriber.receiver import Receiver
from oz.protocol.subscriber.sequences import Source, find
from oz.protocol.subscriber.streams import Stream, Streams
from oz.protocol.subscriber.subscriptions import Route, Subscription
from oz.wire.batch import (
    CHUNK_FIELD,
    CONTROL,
    HEAD_SIZE,
    LAST_VALUES,
    SHORT,
    Head,
    key_size,
    parse_body,
    parse_chunk,
    parse_control,
    parse_head,
    read_lone,
)
from oz.wire.codec import Codec
from oz.wire.extras import decode_extras
from oz.wire.keys import OWN

_log = logging.getLogger("oz.subscriber")

_BYTES_ONLY = {bytes}

OnGap = Callable[[Gap], Any]


class BatchDecoder(Receiver):
    """Takes batches apart; the messages wait in line.

    Attributes:
        streams: what is subscribed to.
        waiting: messages that were unpacked and are still to be given.
        in_batches: whether those that need no look at each wait as one `MessageBatch`.
    """

    __slots__ = ("_on_gap", "in_batches", "streams", "waiting")

    def __init__(self, streams: Streams, codec: Codec | None = None, on_gap: OnGap | None = None) -> None:
        """Start without subscriptions.

        Args:
            streams: what is subscribed to.
            codec: decodes payloads.
            on_gap: called with each gap, before any message behind it is given.
        """
        super().__init__(codec)
        self.streams = streams
        # Typed as most callers see it: a MessageBatch waits only while in_batches is set.
        self.waiting: deque[Message] = deque()
        self.in_batches = False
        self._on_gap = on_gap

    def accept(self, frames: list[bytes], time_ns: int) -> Message | None:
        """Take in one frame, with the large payloads behind it; what it held waits in line.

        Returns:
            The message, where it was the only one and the next in order; otherwise None: see `waiting`,
            and the receive buffers of the streams.
        """
        frame = frames[0]
        if (
            len(frame) <= SHORT
            and not self.in_batches
            and (message := self._accept_one(frame, time_ns)) is not None
        ):
            return message
        try:
            size = key_size(frame)
            head = parse_head(frame, size)
            stream = self.streams.by_key.get(frame[:size])
            if stream is None:
                # What was on its way when the subscription ended.
                self.stats.received += head.count
                self.stats.filtered += head.count
            elif head.flags & CONTROL:
                self._take_control(stream, head, frame, size, time_ns)
            else:
                self._take_messages(stream, head, frames, size + HEAD_SIZE, time_ns)
        except ProtocolError as error:
            self.stats.received += 1
            self.stats.malformed += 1
            kind = "batch" if frame.startswith(OWN) else "plain"
            self._warn_once(kind, "a frame is malformed and is skipped: %s", error)
        return None

    def _accept_one(self, frame: bytes, time_ns: int) -> Message | None:
        """Take in a frame of one message that has nothing special: the short way, for round trips."""
        lone = read_lone(frame)
        if lone is None or self._decode is not None or self.waiting:
            return None
        key, origin, epoch, sequence, subject, payload = lone
        stream = self.streams.by_key.get(key)
        if stream is None or stream.receive_buffer is not None:
            return None
        source = stream.sources.get(origin)
        if source is None or source.epoch != epoch or source.expected != sequence or source.unreported:
            return None
        route = stream.table.routes.get(subject)
        if route is None or not route.is_clear:
            return None
        source.expected = sequence + 1
        source.heard_at = time_ns
        stats = self.stats
        stats.received += 1
        stats.delivered += 1
        return LoneMessage(route.subject, payload, route, origin, sequence, time_ns)

    def next(self) -> Message | None:
        """Return a message that is there, if any; one that a stream holds back comes after all others."""
        if self.waiting:
            return self.waiting.popleft()
        for stream in self.streams.buffered:
            assert stream.receive_buffer is not None
            message = stream.receive_buffer.pop()
            if message is not None:
                return message
        return None

    def rest(self, stream: Stream) -> Iterator[Message]:
        """Return what is in line, and what a stream holds back."""
        while self.waiting:
            yield self.waiting.popleft()
        while stream.receive_buffer is not None and (message := stream.receive_buffer.pop()) is not None:
            yield message

    def retain(self, is_wanted: Callable[[Message], bool]) -> None:
        """Keep only those messages in line that are still wanted."""
        kept = [message for message in self.waiting if is_wanted(message)]
        self.waiting.clear()
        self.waiting.extend(kept)
        for stream in self.streams.buffered:
            assert stream.receive_buffer is not None
            stream.receive_buffer.retain([message for message in stream.receive_buffer if is_wanted(message)])

    # control ---------------------------------------------------------------------------------------------

    def _take_control(self, stream: Stream, head: Head, frame: bytes, size: int, time_ns: int) -> None:
        body = parse_control(frame, size)
        if stream.has_ended(head.origin, head.epoch):
            # A goodbye that is said again, for those who may have been left out.
            return
        live = body.get("live")
        source = find(stream.sources, head.origin)
        self._advance(stream, source, head, time_ns)
        if live is not None and head.epoch == source.epoch:
            source.answered = frozenset(live)
            source.refused = body.get("refused", {})
            source.paths = body.get("paths", 0)
        if body.get("bye") is True:
            # It closed in order, and is not to be waited for.
            stream.end(head.origin, head.epoch)

    def _advance(self, stream: Stream, source: Source, head: Head, time_ns: int) -> int:
        """Record where the key stands; return how many messages of the batch were here before."""
        # What comes behind a goodbye did not begin with its source here, as on a key that others read too.
        joins_late = stream.is_shared or stream.has_ended(head.origin, head.epoch)
        lost, seen = source.advance(head, time_ns, is_shared=joins_late)
        if lost != 0:
            self._report(stream, source, head.origin, lost, head.sequence)
        return seen

    def lose_track(self, origin: bytes, besides: Stream | None, *, is_in_place: bool) -> None:
        """Report that messages of a publisher may be missing which nobody counted.

        Args:
            origin: the publisher.
            besides: a stream that it sends nothing on.
            is_in_place: it has only begun, for another one that is gone; the same is reported once more
                before its first message. Otherwise it is gone itself, as far as it was there and has not said
                goodbye; that is reported once, unless it has been heard since.
        """
        for stream in self.streams.by_key.values():
            if stream is besides or not (is_in_place or origin in stream.sources):
                continue
            source = find(stream.sources, origin)
            source.is_in_place = is_in_place
            if stream.only_answers and not is_in_place:
                continue
            if is_in_place or source.missed_at != source.heard_at:
                source.missed_at = source.heard_at
                self._report(stream, source, origin, None)

    def _report(
        self, stream: Stream, source: Source, origin: bytes, lost: int | None, sequence: int = 0
    ) -> None:
        if lost is not None:
            self.stats.lost += lost
            source.unreported += lost
        subscriptions = tuple(stream.table)
        only = subscriptions[0] if len(subscriptions) == 1 else None
        gap = Gap(origin, only, lost, sequence=None if lost is None else sequence - lost)
        if self._on_gap is None:
            if not source.is_reported:
                source.is_reported = True
                _log.warning("%s messages from publisher %s were lost", lost or "some", origin.hex())
            return
        try:
            self._on_gap(gap)
        except Exception:
            _log.exception("on_gap raised on %r", gap)

    # messages --------------------------------------------------------------------------------------------

    def _take_messages(self, stream: Stream, head: Head, frames: list[bytes], at: int, time_ns: int) -> None:
        number: int | None = None
        if head.flags & LAST_VALUES:
            number = parse_chunk(frames[0], at)
            at += CHUNK_FIELD
        body = parse_body(frames[0], at, head.count)
        self._take_all(stream, head, (body[0::2], body[1::2], frames[1:], len(frames[0])), time_ns, number)

    def _take_all(
        self,
        stream: Stream,
        head: Head,
        content: tuple[list[Any], list[Any], list[bytes], int],
        time_ns: int,
        number: int | None = None,
    ) -> None:
        """Put messages in line.

        Args:
            stream: what they came on.
            head: which they are.
            content: their subjects and payloads, the large payloads that came by themselves, and the size
                of the frame that the others came in.
            time_ns: when they came.
            number: the chunk that last values are for.

        Raises:
            ProtocolError: something in them is malformed; none was taken then.
        """
        subjects, payloads, attached, size = content
        routes, is_clear, is_text = self._find_routes(stream, subjects)
        is_plain = set(map(type, payloads)) == _BYTES_ONLY and self._decode is None
        if not is_plain:
            bodies = _open_all(payloads, attached)
        # Nothing can be malformed from here on, so that what is counted in the sequence is what was taken.
        source = find(stream.sources, head.origin)
        only = None if number is None else self._members(stream, source, number)
        seen = self._advance(stream, source, head, time_ns)
        self.stats.received += head.count
        if seen >= head.count:
            self.stats.filtered += head.count
            return
        arrival = Arrival(head.origin, head.sequence, time_ns, source.unreported, seen)
        if is_plain and is_clear and not seen and only is None:
            if self.in_batches and stream.receive_buffer is None and stream.table.only_lists:
                source.unreported = 0
                self.stats.delivered += head.count
                batch = MessageBatch(subjects, payloads, routes, arrival, is_text=is_text, size=size)
                self.waiting.append(batch)  # type: ignore[arg-type]
                return
            names = [route.subject for route in routes]
            places = range(len(names))
            messages: list[Message] = list(
                map(RoutedMessage, names, payloads, routes, repeat(arrival), places)
            )
        else:
            if is_plain:
                bodies = [(payload, None) for payload in payloads]
            # Last values are given again on purpose.
            messages = self._select(routes, bodies, arrival, only, stream.repeats if only is None else None)
            self.stats.filtered += seen
        if messages:
            source.unreported = 0
        self.stats.delivered += len(messages)
        if stream.receive_buffer is None:
            self.waiting.extend(messages)
        else:
            dropped = stream.receive_buffer.put(messages)
            self.stats.delivered -= dropped
            self.stats.dropped += dropped

    def _members(self, stream: Stream, source: Source, number: int) -> set[Subscription]:
        """Return the subscriptions that last values are for: nobody, if they were given them before."""
        chunk = self.streams.chunk(stream, number)
        if chunk is None or source.served.setdefault(chunk.root, number) != number:
            # Declared again because an answer was late or lost: it is served again too.
            return set()
        return {subscription for subscription, _ in chunk.members}

    def _find_routes(self, stream: Stream, subjects: list[Any]) -> tuple[list[Route], bool, bool]:
        """Return the route of each subject, and tell whether all are clear, and whether all are text."""
        table = stream.table
        try:
            routes: list[Any] = list(map(table.routes.get, subjects))
        except TypeError:
            raise ProtocolError("a subject in a batch is not bytes") from None
        if None not in routes:
            return routes, not table.unclear, not table.undecoded
        for place, route in enumerate(routes):
            if route is None:
                if type(subjects[place]) is not bytes or subjects[place].startswith(OWN):
                    raise ProtocolError("a subject in a batch is not bytes, or one of oz's own keys")
                routes[place] = table.routes.get(subjects[place]) or table.route(subjects[place])
        # Not by what the table counts: it may have been full, and have forgotten some of them.
        is_clear = all(route.is_clear for route in routes)
        return routes, is_clear, all(route.is_text for route in routes)

    def _select(
        self,
        routes: list[Route],
        bodies: list[tuple[Any, Extras | None]],
        arrival: Arrival,
        only: set[Subscription] | None,
        repeats: Repeats | None,
    ) -> list[Message]:
        """Make the messages that are new, wanted and can be decoded."""
        messages: list[Message] = []
        for place in range(arrival.first, len(routes)):
            route = routes[place] if only is None else _narrow(routes[place], only)
            if not route.is_clear and not self._is_wanted(route):
                continue
            body, extras = bodies[place]
            if not messages:
                # What was lost shows at the first that is delivered.
                arrival.first = place
            message = self._make(route, body, extras, arrival, place)
            if message is None or (repeats is not None and self._is_repeated(message, repeats)):
                continue
            messages.append(message)
        return messages

    def _is_repeated(self, message: Message, repeats: Repeats) -> bool:
        if message.message_id is None or repeats.add(message.message_id):
            return False
        self.stats.repeated += 1
        return True

    def _make(
        self, route: Route, body: Any, extras: Extras | None, arrival: Arrival, place: int
    ) -> Message | None:
        payload = body[0] if type(body) is list else body
        if self._decode is not None:
            try:
                payload = self._decode(payload)
            except Exception as error:
                self.stats.malformed += 1
                self._warn_once("codec", "a payload does not decode and is skipped: %r", error)
                return None
        if extras is None and payload is body:
            return RoutedMessage(route.subject, payload, route, arrival, place)
        return RichMessage(route.subject, payload, route, body, extras or BARE, arrival, place)


def _narrow(route: Route, only: set[Subscription]) -> Route:
    """Make a route that leads to some subscriptions only."""
    subscriptions = tuple(one for one in route.subscriptions if one in only)
    return Route(route.subject, subscriptions, route.timed_out, is_text=route.is_text)


def _open_all(payloads: list[Any], attached: list[bytes]) -> list[tuple[Any, Extras | None]]:
    """Return the bytes and the extras of each payload.

    Raises:
        ProtocolError: one is not of a form that payloads have, or a large one is missing.
    """
    large = iter(attached)
    return [_open(payload, large) for payload in payloads]


def _open(payload: Any, large: Any) -> tuple[Any, Extras | None]:
    extras = None
    if type(payload) is list:
        if len(payload) != 2:
            raise ProtocolError("a payload with extras is not payload and map")
        payload, extras = payload[0], decode_extras(payload[1])
        if type(payload) is list:
            if not payload or set(map(type, payload)) != _BYTES_ONLY:
                raise ProtocolError("the frames of a payload are not bytes")
            return payload, extras
    if payload is None:
        payload = next(large, None)
    if type(payload) is not bytes:
        raise ProtocolError("a payload is not bytes, or a large one is missing")
    return payload, extras
