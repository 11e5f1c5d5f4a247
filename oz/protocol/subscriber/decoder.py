"""The batch decoder: what a subscriber does with batches and control records.

A message takes one of two paths. A lone frame, of one short message that is the next in order, becomes that
message at once: round trips are made of these. All else comes as a batch, which is taken in as
`BatchColumns`, and messages are made of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from oz.errors import ProtocolError
from oz.message import BARE
from oz.protocol.messages import Arrival, LoneMessage, Message, RichMessage
from oz.protocol.stats import SubscriberStats
from oz.protocol.subscriber.columns import BatchColumns, read_columns
from oz.protocol.subscriber.given_frames import FRAMES, GivenFrames, fingerprint
from oz.protocol.subscriber.losses import Losses, OnGap
from oz.protocol.subscriber.publishers import Answers
from oz.protocol.subscriber.refusals import Refusals
from oz.protocol.subscriber.sequences import Source
from oz.protocol.subscriber.stream import Stream
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.security.limits import DEFAULT_LIMITS, Limits
from oz.security.publish_access import PublishAccess
from oz.wire.batch import (
    CHUNK_FIELD,
    CONTROL,
    HEAD_SIZE,
    HEARTBEAT_ORIGIN,
    HEARTBEAT_SIZE,
    LAST_VALUES,
    SHORT,
    Head,
    key_size,
    parse_chunk,
    parse_control,
    parse_head,
    read_lone,
)
from oz.wire.codec import Codec
from oz.wire.extras import decode_extras
from oz.wire.keys import OWN, STREAM_SIZE
from oz.wire.positions import parse_positions

_AWAY_NS = 2_000_000_000
"""Nanoseconds without a record, which comes every second, after which a publisher is looked at anew."""


class BatchDecoder:
    """Takes batches apart; the messages wait in line.

    Attributes:
        stats: what is counted.
        refusals: what becomes of messages that go to fewer than they might.
        streams: what is subscribed to.
        waiting: messages that were unpacked and are still to be given.
        access: what publishers may publish; None where they may everything.
        answers: what publishers say of declarations.
        decode: decodes payloads, if there is a codec.
        losses: follows the sequences, and tells what was lost.
        given: the frames that were given lately.
    """

    __slots__ = (
        "_is_wanted", "_recent", "access", "answers", "decode", "given", "losses", "refusals", "stats",
        "streams", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        streams: Streams,
        codec: Codec | None = None,
        on_gap: OnGap | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Start without subscriptions.

        Args:
            streams: what is subscribed to.
            codec: decodes payloads.
            on_gap: called with each gap, before any message behind it is given.
            limits: how many publishers are kept in mind.
        """
        self.stats = SubscriberStats()
        self.refusals = Refusals(self.stats)
        self._is_wanted = self.refusals.is_wanted
        self.decode = codec.decode if codec is not None else None
        self.streams = streams
        self.waiting: deque[Message] = deque()
        self.access: PublishAccess | None = None
        self.answers = Answers()
        self.losses = Losses(streams, self.stats, on_gap, self.refusals, limits.sources)
        self.given = GivenFrames()
        self._recent = self.given.recent

    def accept(self, frames: list[bytes], time_ns: int) -> Message | None:
        """Take in one frame, with the large payloads behind it; what it held waits in line.

        Returns:
            The message, where it was the only one and the next in order; None otherwise: see `waiting`.
        """
        frame = frames[0]
        size = len(frame)
        if size == HEARTBEAT_SIZE and self.access is None and self._is_heard_again(frame, time_ns):
            return None
        if size <= SHORT and (message := self._take_lone(frame, time_ns)) is not None:
            return message
        try:
            size = key_size(frame)
            head = parse_head(frame, size)
            stream = self.streams.by_key.get(frame[:size])
            if self.access is not None and not self.access.owns(head.origin, head.count or 1):
                self.stats.received += head.count
                return None
            if stream is None:
                # What was on its way when the subscription ended.
                self.stats.received += head.count
                self.stats.filtered += head.count
            elif head.flags & CONTROL:
                self._take_control(stream, head, frames, size + HEAD_SIZE, time_ns)
            else:
                self._take_batch(stream, head, frames, size + HEAD_SIZE, time_ns)
        except ProtocolError as error:
            self.stats.received += 1
            self.stats.malformed += 1
            kind = "batch" if frame.startswith(OWN) else "plain"
            self.refusals.warn_once(kind, "a frame is malformed and is skipped: %s", error)
        return None

    def _take_lone(self, frame: bytes, time_ns: int) -> Message | None:
        """Take in a lone frame, if it is one and the next in order."""
        lone = read_lone(frame)
        if lone is None or self.waiting or self.access is not None:
            return None
        key, origin, epoch, sequence, subject, payload, fields, position = lone
        stream = self.streams.by_key.get(key)
        if stream is None:
            return None
        source = stream.sources.get(origin)
        if source is None or source.epoch != epoch or source.expected != sequence or source.has_loss_to_show:
            return None
        shown = payload
        try:
            extras = BARE if fields is None else decode_extras(fields)
            if self.decode is not None:
                shown = self.decode(payload)
        except Exception:
            # Whoever reads it the long way says what it is.
            return None
        # Answers come on a subject of their own each, which is never remembered yet.
        route = stream.table.routes.get(subject) or stream.table.route(subject)
        if not route.is_clear:
            return None
        source.expected = sequence + 1
        source.heard_at = time_ns
        recent = self._recent
        recent.add(hash(frame))
        if len(recent) >= FRAMES:
            self.forget_frames()
        stats = self.stats
        stats.received += 1
        stats.delivered += 1
        if fields is None:
            return LoneMessage(route.subject, shown, route, payload, origin, sequence, time_ns, position)
        arrival = Arrival(origin, sequence, time_ns, 0, 0, (position,))
        return RichMessage(route.subject, shown, route, payload, extras, arrival, 0)

    def retain(self, is_wanted: Callable[[Message], bool]) -> None:
        """Keep only those messages in line that are still wanted."""
        kept = [message for message in self.waiting if is_wanted(message)]
        self.waiting.clear()
        self.waiting.extend(kept)

    # control ---------------------------------------------------------------------------------------------

    def _is_heard_again(self, frame: bytes, time_ns: int) -> bool:
        """Take in a heartbeat that is the last one of its publisher again; tell whether it is.

        Of whoever publishes nothing, one is as the other, and most of what an idle node reads are these.
        """
        stream = self.streams.by_key.get(frame[:STREAM_SIZE])
        source = None if stream is None else stream.sources.get(frame[HEARTBEAT_ORIGIN])
        if source is None or source.heartbeat != frame or time_ns - source.heard_at >= _AWAY_NS:
            return False
        source.heard_at = time_ns
        return True

    def _take_control(self, stream: Stream, head: Head, frames: list[bytes], at: int, time_ns: int) -> None:
        body = parse_control(frames[0], at)
        is_goodbye = body.get("bye") is True
        if self.losses.is_late(stream, head, time_ns, is_goodbye=is_goodbye):
            # A goodbye that is said again, for those who may have been left out.
            return
        live = body.get("live")
        source = self.losses.find(stream, head.origin, time_ns)
        if body or time_ns - source.heard_at >= _AWAY_NS:
            self.streams.note_news()
        # Whoever says goodbye in an epoch that nothing came of has said nothing before.
        is_end = is_goodbye and source.epoch in (None, head.epoch)
        self.losses.advance(stream, source, head, time_ns)
        source.position = head.position
        if live is not None and (head.epoch == source.epoch or source.is_contested):
            self.answers.take(stream, source, body)
        if not body and source.doubt is None:
            # It says the same when it comes again, whatever comes in between: sequences and epochs grow.
            source.heartbeat = frames[0]
        elif is_goodbye and source.is_contested:
            self.stats.contradictions += 1
        elif is_end:
            # It closed in order, and is not to be waited for.
            stream.end(head.origin)

    # a batch, as columns ---------------------------------------------------------------------------------

    def _take_batch(self, stream: Stream, head: Head, frames: list[bytes], at: int, time_ns: int) -> None:
        if self.losses.is_late(stream, head, time_ns):
            # A slower path brings it behind the goodbye: it came by the other one, or was reported as lost.
            self.stats.received += head.count
            self.stats.filtered += head.count
            return
        known = fingerprint(frames)
        if known in self.given:
            self._pass_over(stream, head, time_ns)
            return
        number: int | None = None
        if head.flags & LAST_VALUES:
            number = parse_chunk(frames[0], at)
            at += CHUNK_FIELD
        positions = parse_positions(frames[0], at, head.position, head.width, head.count)
        at += head.width * (head.count - 1)
        columns = read_columns(frames[0], at, head.count, frames[1:], stream.table)
        if self.access is not None:
            columns.deny(self.access.denied(columns.subjects, columns.extras))
        self._take_columns(stream, head, columns, time_ns, known, number, positions)

    def _pass_over(self, stream: Stream, head: Head, time_ns: int) -> None:
        """Take in a frame that was given: it came by another way too."""
        self.stats.received += head.count
        self.stats.filtered += head.count
        source = stream.sources.get(head.origin)
        if source is not None:
            source.heard_at = time_ns

    def _remember(self, known: int) -> None:
        """Remember that a frame was given, and forget old ones when there are many."""
        self._recent.add(known)
        if len(self._recent) >= FRAMES:
            self.forget_frames()

    def forget_frames(self) -> None:
        """Forget all frames but those that were given lately."""
        self.given.turn()
        for stream in self.streams.by_key.values():
            for source in stream.sources.values():
                source.forget_frames()

    def _take_columns(
        self,
        stream: Stream,
        head: Head,
        columns: BatchColumns,
        time_ns: int,
        known: int,
        number: int | None = None,
        positions: Sequence[int] | None = None,
    ) -> None:
        """Put messages in line. Nothing in them is malformed: what is counted in the sequence is taken.

        Args:
            stream: what they came on.
            head: which they are.
            columns: the messages.
            time_ns: when they came.
            known: what their frame is known by.
            number: the chunk that last values are for.
            positions: of each message, where the publisher gives them.
        """
        source = self.losses.find(stream, head.origin, time_ns)
        only = None if number is None else self._members(stream, source, number)
        is_new: bool | None = None
        try:
            is_new = self.losses.advance(stream, source, head, time_ns)
            self.stats.received += head.count
            if not is_new:
                self.stats.filtered += head.count
                return
            self._remember(known)
            arrival = Arrival(head.origin, head.sequence, time_ns, source.unreported, 0, positions)
            line = self._select(columns, arrival, only)
            if line:
                source.show_loss()
        except BaseException:
            # A signal handler has raised: nobody gets any of it, and its place in the sequence is taken.
            self._remember(known)
            lost = None if is_new is None else head.count * is_new
            self.losses.report(stream, source, head.origin, lost, head.sequence + head.count)
            raise
        self.stats.delivered += len(line)
        self.waiting.extend(line)

    def _members(self, stream: Stream, source: Source, number: int) -> set[Subscribed]:
        """Return the subscriptions that last values are for: nobody, if they have them or never asked."""
        chunk = stream.chunk(number)
        if chunk is None or not chunk.wants_last_value:
            # Somebody else has asked for them in the name of the stream.
            return set()
        if source.served.setdefault(chunk.root, number) != number:
            # Declared again because an answer was late or lost: it is served again too.
            return set()
        return {subscription for subscription, _ in chunk.members}

    def _select(self, columns: BatchColumns, arrival: Arrival, only: set[Subscribed] | None) -> list[Message]:
        """Make the messages that are new, wanted and can be decoded."""
        messages: list[Message] = []
        for place in range(len(columns.routes)):
            route = columns.routes[place]
            if only is not None:
                route = route.narrowed_to(only)
            if not route.is_clear and not self._is_wanted(route):
                continue
            if not messages:
                # What was lost shows at the first that is delivered.
                arrival.first = place
            body = columns.payloads[place]
            payload = body[0] if type(body) is list else body
            if self.decode is not None:
                try:
                    payload = self.decode(payload)
                except Exception as error:
                    self.stats.malformed += 1
                    self.refusals.warn_once("codec", "a payload does not decode and is skipped: %r", error)
                    continue
            messages.append(columns.message(place, route, payload, arrival))
        return messages
