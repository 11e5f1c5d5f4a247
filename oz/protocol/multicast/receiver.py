"""The receiver of a multicast subscriber."""

from __future__ import annotations

from typing import Any

from oz.errors import ProtocolError
from oz.logs import peer_logger
from oz.protocol.messages import LoneMessage, Message
from oz.protocol.subscriber.columns import BatchColumns
from oz.protocol.subscriber.contradictions import Doubt
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.losses import OnGap
from oz.protocol.subscriber.sequences import Source
from oz.protocol.subscriber.stream import Stream
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Route
from oz.security.limits import DEFAULT_LIMITS, Limits
from oz.wire.batch import CONTROL, Head
from oz.wire.codec import Codec
from oz.wire.datagram import CRC_SIZE, parse, parse_control, parse_messages
from oz.wire.keys import DeliveryOptions

_log = peer_logger("oz.subscriber")

JOINING = 0.5
"""Seconds for which a subscriber may still be joining: what was sent then may have been before it joined."""

_STEADY_NS = 50_000_000
"""Nanoseconds by which two records may differ on when a publisher began, and by which one may be wrong. By
more does the later one of two that have waited, or that PGM has repaired: it has waited for less long."""


class HeardSender(Source):
    """One publisher, as it is heard over multicast.

    Attributes:
        to: the group and port that it says it sends to; None before it said anything.
        rate: the kilobits a second that it says it sends.
        first: the number of the first message that was heard of, until it is known whether those before
            it were lost or came before this subscriber did; None from then on.
        began_by: when it began at the latest, by its last record, in nanoseconds since 1970.
        has_left: it said goodbye.
        quiet: for how many seconds it said that nothing can be heard, as a large message is on its way.
        quiet_at: when it said so, in nanoseconds; only while nothing came since, it still holds.
    """

    __slots__ = ("began_by", "first", "has_left", "quiet", "quiet_at", "rate", "to")

    def __init__(self) -> None:
        """Nothing is known yet."""
        super().__init__()
        self.to: str | None = None
        self.rate = 0
        self.first: int | None = None
        self.began_by: int | None = None
        self.has_left = False
        self.quiet = 0.0
        self.quiet_at = 0


class MulticastReceiver(BatchDecoder):
    """Takes multicast frames apart; the messages wait in line.

    All of a publisher's messages are numbered together, and a subscriber takes in all of them: so it knows
    of every loss, though not what the subject was. What no pattern matches is counted as filtered.

    Attributes:
        senders: what is known of each publisher, by origin.
        joined_at: when this subscriber began to listen, in nanoseconds since 1970.
        idle_at: when nothing was left to read, the last time that somebody looked; it begins with joined_at.
        corrupt: frames that were damaged.
    """

    __slots__ = ("_routes", "_stream", "corrupt", "idle_at", "joined_at", "senders")

    def __init__(
        self,
        streams: Streams,
        codec: Codec | None = None,
        on_gap: OnGap | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Start without subscriptions; see `BatchDecoder`. No stream is ever declared."""
        super().__init__(streams, codec, on_gap, limits)
        self._routes = self.table.routes
        # Others hear it too, so it did not begin with this subscriber.
        self._stream = Stream(b"", DeliveryOptions(), is_shared=True, dedupe=streams.dedupe)
        self._stream.table = self.table
        streams.by_key[b""] = self._stream
        self.senders: dict[bytes, HeardSender] = {}
        self._stream.sources = self.senders  # type: ignore[assignment]
        self.joined_at = self.idle_at = 0
        self.corrupt = 0

    def accept(self, frames: list[bytes], time_ns: int) -> Message | None:
        """Take in one frame; what it held waits in line.

        Returns:
            The message, where it was the only one and the next in order; otherwise None: see `waiting`.
        """
        frame = frames[0]
        try:
            prefix, head, at = parse(frame)
        except ProtocolError as error:
            # Not `received`: what it held is found missing by its number, and counted as lost.
            self.corrupt += 1
            self.stats.malformed += 1
            self.refusals.warn_once("frame", "a frame is dropped: %s", error)
            return None
        sender = self.senders.get(head.origin) or self._add(head, time_ns)
        route = self._routes.get(prefix)
        known = hash(frame)
        if route is not None and self._is_common(sender, route, head):
            self._remember(known)
            return self._take_lone_of(sender, route, head, frame[at:-CRC_SIZE], time_ns)
        try:
            if head.flags & CONTROL:
                self._take_record(sender, head, parse_control(frame, at), time_ns)
            elif known in self.given:
                self._pass_over(self._stream, head, time_ns)
            else:
                subjects, payloads = parse_messages(frame, prefix, at, head)
                columns = BatchColumns(subjects, payloads, [], len(frame), self._stream.table)
                self._take_columns(self._stream, head, columns, time_ns, known)
        except ProtocolError as error:
            self.stats.malformed += 1
            self.refusals.warn_once("body", "a frame is dropped: %s", error)
        return None

    def _add(self, head: Head, time_ns: int) -> HeardSender:
        """Begin to listen to a publisher that was not heard before."""
        self.losses.make_room(self._stream, time_ns)
        sender = self.senders[head.origin] = HeardSender()
        sender.epoch = head.epoch
        sender.since = sender.first_at = time_ns
        sender.expected = sender.first = head.sequence
        if head.sequence:
            sender.doubt = Doubt(time_ns, head.sequence)
        return sender

    def _take_lone_of(
        self, sender: HeardSender, route: Route, head: Head, payload: bytes, time_ns: int
    ) -> Message | None:
        """Take in a lone message, which is the next in order and has nothing special."""
        sender.expected = head.sequence + 1
        sender.heard_at = time_ns
        stats = self.stats
        stats.received += 1
        if not route.subscriptions:
            stats.filtered += 1
            return None
        stats.delivered += 1
        return LoneMessage(route.subject, payload, route, payload, head.origin, head.sequence, time_ns)

    def _is_common(self, sender: HeardSender, route: Route, head: Head) -> bool:
        """Tell whether a message is one for the short way."""
        if head.flags or sender.expected != head.sequence or sender.epoch != head.epoch:
            return False
        if route.is_clear:
            return not (sender.unreported or self.waiting or self.in_batches or self.decode)
        return not (route.subscriptions or route.timed_out or route.is_malformed)

    def _take_record(self, sender: HeardSender, head: Head, body: dict[Any, Any], time_ns: int) -> None:
        """Take in where a publisher stands."""
        is_believed = self.losses.advance(self._stream, sender, head, time_ns)
        sender.to, sender.rate = body["to"], body["rate"]
        # An end whose number is not believed is none: what was lost before it would be told by nobody.
        sender.has_left = is_believed and body.get("bye") is True
        sender.quiet, sender.quiet_at = body.get("quiet", 0.0), time_ns
        if sender.first is not None:
            self._judge_beginning(sender, head.origin, round(1e9 * body["age"]), time_ns)

    def _judge_beginning(self, sender: HeardSender, origin: bytes, age: int, time_ns: int) -> None:
        """Find out whether what came before the first message that was heard of was lost.

        By when a record was read its publisher seems to have begun too late, by as long as the record has
        waited. So what was lost is counted once two agree that have come since nothing was left to read. And
        too early, where what its publisher had to send went faster than it thought: so two also have to
        agree that nothing is missing.

        Args:
            sender: the publisher.
            origin: its name.
            age: nanoseconds since it began, by its record.
            time_ns: when that was read.
        """
        before, began_by, began_from = sender.began_by, time_ns - age, self.idle_at - age
        sender.began_by = began_by
        if not sender.first:
            sender.first = None
        elif before is None or before - began_by > _STEADY_NS:
            return
        elif self._has_begun_before(began_by):
            if began_by - before <= _STEADY_NS:
                sender.first = None
        elif not self._has_begun_before(began_from):
            missed, sender.first = sender.first, None
            # While this subscriber was joining nobody can tell what was lost.
            is_known = began_from > self.joined_at + round(1e9 * JOINING)
            self.losses.report(self._stream, sender, origin, missed if is_known else None, missed)

    def _has_begun_before(self, at: int) -> bool:
        """Tell whether a publisher that began at this time did so before this subscriber listened."""
        return at <= self.joined_at - _STEADY_NS

    def note_idle(self, time_ns: int) -> None:
        """Record that nothing is left to read.

        Who has left by then says no more: whether its first messages were lost is not found out any more.
        """
        self.idle_at = time_ns
        for origin, sender in self.senders.items():
            if sender.has_left and sender.first is not None:
                sender.first = None
                if sender.began_by is None or not self._has_begun_before(sender.began_by):
                    self.doubt(origin)

    def doubt(self, origin: bytes) -> None:
        """Report that messages of a publisher may be missing which nobody counted; it has gone silent.

        Args:
            origin: the publisher; nothing is said where it is not known any more.
        """
        sender = self.senders.get(origin)
        if sender is None:
            return
        if self.losses.has_callback:
            self.losses.report(self._stream, sender, origin, None)
        else:
            # Nothing is known to be lost yet; what is, is still logged once.
            _log.warning("messages from publisher %s may be missing: it fell silent", origin.hex())
