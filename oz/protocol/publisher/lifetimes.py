"""The lifetimes of streams: from the first key to the last, and a time of grace after a cut connection."""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import NamedTuple

from oz.errors import PatternError, ProtocolError
from oz.protocol.publisher.accounts import Account
from oz.protocol.publisher.interest import InterestTable
from oz.protocol.publisher.stream import AcceptedChunk, OutStream
from oz.security.limits import Limits
from oz.subjects.pattern import weight_of
from oz.wire import keys
from oz.wire.declared import restoring
from oz.wire.keys import DeliveryOptions

GRACE = 30.0
"""Seconds for which a stream whose connection was cut is kept, and its sequence counted on."""

VANISHED_KEPT = 1_000
"""Streams kept so at most; the one cut first is forgotten first."""

WITHDRAWAL_DELAY = 1.0
"""Seconds after which a chunk that was taken back ends: by then it is known whether its stream was cut."""


FEW = 4
"""Streams that one connection began first, and that are told every second where they stand."""


class _Numbering(NamedTuple):
    """The numbering of a member of a queue group that was cut off."""

    epoch: int
    sequence: int
    cut_at: float


class Lifetimes:
    """The streams of one publisher.

    Attributes:
        streams: those of subscribers that have this publisher filter, by key.
        beating: those that are told every second where they stand.
        crowd: the others, of connections that have more than a few; they are told in turn.
        to_answer: streams that are to be told where they stand.
        vanished: those whose last connection was cut, and that are kept for a while.
        withdrawn: those with chunks that nobody holds any more.
        cut_members: the numbering of members of queue groups that were cut off, by key.
    """

    __slots__ = (
        "_interest",
        "_limits",
        "_number",
        "_origin",
        "beating",
        "crowd",
        "cut_members",
        "streams",
        "to_answer",
        "vanished",
        "withdrawn",
    )

    def __init__(self, origin: bytes, interest: InterestTable, limits: Limits) -> None:
        """Start without any.

        Args:
            origin: 16 bytes that name the publisher.
            interest: what the streams ask for.
            limits: how many there may be.
        """
        self._origin = origin
        self._limits = limits
        self._interest = interest
        self.streams: dict[bytes, OutStream] = {}
        self.beating: dict[OutStream, None] = {}
        self.crowd: OrderedDict[OutStream, None] = OrderedDict()
        self.to_answer: OrderedDict[OutStream, None] = OrderedDict()
        self._number = 0
        self.vanished: dict[OutStream, None] = {}
        self.withdrawn: dict[OutStream, None] = {}
        self.cut_members: dict[bytes, _Numbering] = {}

    # beginning -------------------------------------------------------------------------------------------

    def stream(
        self, name: bytes, key: bytes, delivery: DeliveryOptions | None, account: Account
    ) -> OutStream:
        """Return a stream, which begins if it is not there.

        Args:
            name: its id.
            key: its key.
            delivery: the delivery options that were declared; None where nothing was said of them.
            account: of the connection that has asked for it.

        Raises:
            ProtocolError: there are too many.
        """
        stream = self.streams.get(key)
        if stream is None:
            delivery = delivery or DeliveryOptions()
            self._make_room(account, is_shared=delivery.is_shared and name == key)
            self._number += 1
            stream = self.streams[key] = OutStream(name, key, delivery, self._origin, self._number, account)
            account.own_streams += not stream.is_shared
            account.patterns += stream.is_shared
            if account.is_limited and account.beating >= FEW:
                self.crowd[stream] = None
            else:
                account.beating += 1
                self.beating[stream] = None
            if (before := self.cut_members.pop(key, None)) is not None:
                stream.number(self._origin, before.epoch, before.sequence)
        else:
            if stream.is_closing and account not in stream.goodbyes:
                self._reopen(stream)
            if delivery is not None and delivery != stream.delivery and not stream.asks:
                # Its own key came first, and says nothing of delivery options; nor does a goodbye.
                self._interest.leave_group(stream)
                stream.delivery = delivery
        if stream.patterns:
            # Not before: who is refused what it asks for has no say in how the group is served.
            self._interest.join_group(stream)
        return stream

    def _reopen(self, stream: OutStream) -> None:
        """Go on with a stream for another connection than that which has said goodbye for all that held it.

        Its subscriber may have been cut off, and somebody else have said goodbye in its name.
        """
        stream.is_closing, stream.goodbyes = False, ()
        self._number_anew(stream)

    def _make_room(self, account: Account, *, is_shared: bool) -> None:
        """Refuse a stream that is one too many.

        Raises:
            ProtocolError: it is.
        """
        limits = self._limits
        if len(self.streams) >= (limits.all_patterns if is_shared else limits.all_streams):
            raise ProtocolError(f"this publisher has {len(self.streams)} streams and takes no more")
        has, most = account.own_streams, limits.streams
        if is_shared:
            has, most = account.patterns, limits.patterns
        if account.is_limited and has >= most:
            raise ProtocolError(f"a connection has {has} streams or shared patterns, and may have {most:g}")

    def room(self, account: Account) -> float:
        """Return the bytes of memory that more patterns of a connection may take, as estimated."""
        return self._limits.pattern_weight - account.pattern_weight if account.is_limited else inf

    def pattern_stream(self, key: bytes, account: Account) -> OutStream:
        """Return the stream of a shared pattern, which begins if it is not there.

        Raises:
            ProtocolError: the pattern is not valid, or there are too many streams.
        """
        known = self.streams.get(key)
        if known is not None:
            return known
        try:
            (pattern,) = restoring([keys.parse_pattern(key)], self.room(account))
        except PatternError as error:
            raise ProtocolError(f"a shared pattern is not valid: {error}") from None
        stream = self.stream(key, key, DeliveryOptions(is_shared=True), account)
        account.pattern_weight += weight_of(pattern)
        self._interest.add(stream, pattern)
        return stream

    def renumber(self, stream: OutStream) -> None:
        """Begin to count a stream anew: its subscriber learns that it missed some, but not how many."""
        self.cut_members.clear()
        self._number_anew(stream)

    def _number_anew(self, stream: OutStream) -> None:
        self._number += 1
        stream.number(self._origin, self._number)
        stream.unsent.clear()
        stream.send_buffer = None
        stream.is_full = False
        self.to_answer[stream] = None

    # ending ----------------------------------------------------------------------------------------------

    def withdraw(self, stream: OutStream, number: int, now: float, *, is_cut: bool = False) -> None:
        """Record that nobody holds a chunk any more.

        Args:
            stream: the stream.
            number: of the chunk.
            now: monotonic seconds.
            is_cut: its last connection has ended. Somebody else may hold the stream, who only listens.
        """
        if stream.delivery.group:
            self._end_chunk(stream, stream.chunks.take(number), now)
            return
        # The stream's own key may be taken back in a moment: then its connection was cut, and what it
        # wanted is still to be counted.
        chunk = stream.ending[number] = stream.chunks.take(number)
        chunk.ends_at = now + (GRACE if is_cut else WITHDRAWAL_DELAY)
        self.withdrawn[stream] = None

    def take_up(self, stream: OutStream) -> None:
        """Keep what a stream asks for whose own key has come again, as far as a connection holds it still.

        A subscriber that connects anew sends its declarations first and the stream's own key last. The end of
        its old connection may come between the two, and takes back what both had declared only once.
        """
        for number in [one for one, chunk in stream.ending.items() if chunk.holders]:
            stream.chunks[number] = stream.ending.take(number)

    def end_chunks(self, stream: OutStream, now: float) -> None:
        """End all that a stream asks for."""
        for chunk in [*stream.chunks.take_all(), *stream.ending.take_all()]:
            self._end_chunk(stream, chunk, now)

    def end_chunks_of(self, stream: OutStream, account: Account, now: float) -> None:
        """End all that a stream asks for by one connection alone."""
        for number, chunk in list(stream.chunks.items()):
            if chunk.account is account and chunk.holders <= 1:
                self._end_chunk(stream, stream.chunks.take(number), now)

    def _end_chunk(self, stream: OutStream, chunk: AcceptedChunk, now: float) -> None:
        """End a chunk that was taken from its stream already."""
        if chunk.account is not None:
            chunk.account.patterns -= len(chunk.patterns)
            chunk.account.pattern_weight -= sum(map(weight_of, chunk.patterns))
        for shared in chunk.shared:
            shared.listeners = max(0, shared.listeners - 1)
            shared.sharers.pop(chunk, None)
            self.check_held(shared, now)
        if stream.delivery.is_shared:
            return
        for pattern in chunk.patterns:
            self._interest.remove(stream, pattern)

    def forget(self, stream: OutStream, now: float) -> None:
        """End a stream: if it comes back, it is another one."""
        if stream.is_gone:
            return
        stream.is_gone = True
        stream.account.own_streams -= not stream.is_shared
        stream.account.patterns -= stream.is_shared
        if self.crowd.pop(stream, stream) is stream:
            del self.beating[stream]
            stream.account.beating -= 1
        self.end_chunks(stream, now)
        for pattern in stream.patterns:
            if stream.is_shared:
                stream.account.pattern_weight -= weight_of(pattern)
            self._interest.drop(stream, pattern)
        self.streams.pop(stream.key, None)
        self.vanished.pop(stream, None)
        self.withdrawn.pop(stream, None)
        self.to_answer.pop(stream, None)
        self._interest.leave_group(stream)
        self._interest.changed()

    def expire(self, now: float) -> None:
        """End what was to end by now: chunks that were taken back, streams whose time of grace is over."""
        for stream in list(self.withdrawn):
            self._expire_chunks(stream, now)
        for stream in list(self.vanished):
            if stream.vanished_at is None or now - stream.vanished_at < GRACE:
                break
            self.forget(stream, now)
        for key, before in list(self.cut_members.items()):
            if now - before.cut_at < GRACE:
                break
            del self.cut_members[key]

    def _expire_chunks(self, stream: OutStream, now: float) -> None:
        if stream.vanished_at is None and not stream.is_gone:
            for number in [one for one, chunk in stream.ending.items() if chunk.ends_at <= now]:
                self._end_chunk(stream, stream.ending.take(number), now)
        if not stream.ending:
            self.withdrawn.pop(stream, None)

    # cut off and back ------------------------------------------------------------------------------------

    def check_held(self, stream: OutStream, now: float) -> None:
        """See whether any connection still has a part of a stream."""
        if stream.is_gone or stream.vanished_at is not None:
            return
        if stream.is_closing and not stream.listeners:
            self.forget(stream, now)
        elif not stream.is_held:
            if stream.delivery.group or stream.is_shared:
                # A group's share moves on. Those who were cut off still hold the patterns that they share.
                if stream.delivery.group:
                    self._keep_numbering(stream, now)
                self.forget(stream, now)
                return
            stream.vanished_at = now
            stream.unsent.clear()
            self.to_answer.pop(stream, None)
            self.vanished[stream] = None
            self._presence_changed(stream)
            while len(self.vanished) > VANISHED_KEPT:
                self.forget(next(iter(self.vanished)), now)

    def _keep_numbering(self, stream: OutStream, now: float) -> None:
        """Remember what a member was given: when it comes back, it finds by that what it missed."""
        sequence = stream.send_buffer.end(stream) if stream.send_buffer else stream.sequence
        self.cut_members[stream.key] = _Numbering(stream.epoch, sequence, now)
        while len(self.cut_members) > VANISHED_KEPT:
            del self.cut_members[next(iter(self.cut_members))]

    def count_lost(self, stream: OutStream, count: int) -> bool:
        """Count messages that were for a member of a group which is gone, and that nobody else wants.

        Returns:
            Whether it was cut off, and finds that it missed them if it comes back; it may have left in order.
        """
        before = self.cut_members.get(stream.key)
        if before is None or before.epoch != stream.epoch:
            return False
        self.cut_members[stream.key] = before._replace(sequence=before.sequence + count)
        return True

    def returned(self, stream: OutStream, now: float, account: Account) -> None:
        """A connection has come back: what it does not declare again ends later."""
        if stream.vanished_at is None:
            return
        stream.account.own_streams -= 1
        account.own_streams += 1
        if stream in self.beating:
            stream.account.beating -= 1
            account.beating += 1
        stream.account = account
        stream.vanished_at = None
        self._presence_changed(stream)
        self.vanished.pop(stream, None)
        self.withdrawn[stream] = None
        for chunk in stream.ending.values():
            chunk.ends_at = now + GRACE

    def _presence_changed(self, stream: OutStream) -> None:
        """No interest has changed, as it is kept for a while; but a link may be down, or up again."""
        watcher = self._interest.watcher
        if watcher is not None and watcher.is_presence(stream):
            self._interest.changed()
