"""The router of a publisher: it learns from the keys of its subscribers who wants what.

Every subscription passes through `Router.learn`. What of it counts is in `acceptance`, how long that lasts in
`lifetimes`, and who wants a subject in `interest`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from oz.errors import ProtocolError
from oz.logs import peer_logger
from oz.protocol.prefix_counts import NOTHING, KeyChanges
from oz.protocol.publisher.acceptance import Acceptance, FrameState
from oz.protocol.publisher.accounts import Account
from oz.protocol.publisher.interest import InterestTable, InterestWatcher, Recipients
from oz.protocol.publisher.lifetimes import Lifetimes
from oz.protocol.publisher.pattern_time import PatternTime
from oz.protocol.publisher.stream import NAME_SIZE, AcceptedChunk, OutStream
from oz.protocol.stats import PublisherStats
from oz.security.limits import DEFAULT_LIMITS, Limits
from oz.subjects.index.patterns import PatternIndex
from oz.wire import keys
from oz.wire.keys import OWN, Declaration

_log = peer_logger("oz.publisher")

MOMENTS = 4
"""Moments of a second at which nodes tell streams where they stand."""

MAX_CHUNKS = 8_192
"""Chunks of a stream; more is refused, and the answer says so."""


class Router:
    """The interests of all subscribers of one publisher.

    Attributes:
        interest: who wants what.
        acceptance: decides what of a declaration counts.
        find: works out who wants a subject; that of `interest`.
        hold_alone: tells whether nobody but some connections holds a key, as far as that is known.
        lifetimes: how long.
        streams: those of subscribers that have this publisher filter, by key; those of `lifetimes`.
        plain: the interests of plain subscriptions; those of `interest`.
        stats: what is counted.
        to_answer: streams that are to be told where they stand; those of `lifetimes`.
        reports_malformed: whether the next key that is malformed is logged.
    """

    __slots__ = (
        "_moment", "_others", "_passed_over", "acceptance", "find", "hold_alone", "interest", "lifetimes",
        "plain", "reports_malformed", "stats", "streams", "to_answer",
    )  # fmt: skip

    def __init__(
        self,
        origin: bytes,
        stats: PublisherStats,
        *,
        index: PatternIndex | None = None,
        watcher: InterestWatcher | None = None,
        pattern_time: PatternTime | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Start without subscribers.

        Args:
            origin: 16 bytes that name this publisher.
            stats: where to count.
            index: finds the patterns that match; an ordinary one unless given.
            watcher: looks at the interests as they come and go.
            pattern_time: how long patterns may take; for ever unless given.
            limits: how much a connection may ask for, and all together.
        """
        self.stats = stats
        self._others = Account()
        self.hold_alone: Callable[[bytes, Collection[Account]], bool] = lambda key, accounts: True
        index = PatternIndex(cache_size=0) if index is None else index
        self.interest = InterestTable(stats, index, watcher, pattern_time)
        self.lifetimes = Lifetimes(origin, self.interest, limits)
        self.find: Callable[[bytes], Recipients] = self.interest.find
        self.plain = self.interest.plain
        self.streams = self.lifetimes.streams
        self.to_answer = self.interest.to_answer = self.lifetimes.to_answer
        self.acceptance = Acceptance(self.interest, self.lifetimes, limits)
        self.reports_malformed = True
        # Keys that were asked for and not taken on, as the limits did not allow it, and how often: ZeroMQ has
        # them all the same, and whoever asked takes them back.
        self._passed_over: Counter[bytes] = Counter()
        self._moment = origin[0] % MOMENTS / MOMENTS

    # who wants what --------------------------------------------------------------------------------------

    def counted(self) -> Iterable[OutStream]:
        """Return the streams on which an application's messages go out.

        Those that show presence are none, nor is one that asks for nothing: a stranger who listens on the key
        of a member of a queue group is not to have losses counted for it alone.
        """
        watcher = self.interest.watcher
        return [
            one
            for one in self.streams.values()
            if one.has_messages
            and (one.is_shared or one.asks or one.is_closing)
            and (watcher is None or not watcher.is_presence(one))
        ]

    # telling where streams stand ------------------------------------------------------------------------

    def next_beat(self, now: float, period: float) -> float:
        """Return when the streams are to be told next where they stand.

        Nodes of one host share a clock: each has one of a few moments, the same for both its publishers, so
        that whoever hears many of them wakes up that often.

        Args:
            now: monotonic seconds.
            period: seconds.
        """
        if self.interest.watcher is None:
            return now + period
        moment = self._moment * period
        return ((now - moment) // period + 1) * period + moment

    def to_tell(self) -> Iterable[OutStream]:
        """Return the streams that are to be told then, beside those of a crowd that have their turn."""
        watcher, streams = self.interest.watcher, self.lifetimes.beating
        return streams if watcher is None else watcher.to_tell(streams)

    # counting --------------------------------------------------------------------------------------------

    def count(self, subject: bytes | None, known: Recipients | None = None) -> int:
        """Count the subscribers that declared themselves, and the plain subscriptions.

        Args:
            subject: count only those that want it; None counts all.
            known: what `find` has given for it, if no interest has changed since.
        """
        if subject is None:
            streams = [one for one in self.streams.values() if one.patterns or one.delivery.is_shared]
        else:
            recipients = self.find(subject) if known is None else known
            streams = recipients.all_streams
            streams = [one for one in streams if not one.ending or one.still_wants(subject)]
        own = {one.name[:NAME_SIZE] for one in streams if not one.is_shared and one.vanished_at is None}
        shared = sum(one.listeners > 0 for one in streams if one.is_shared) if subject is not None else 0
        return len(own) + shared + self.plain.count(subject)

    def renumber(self, stream: OutStream) -> None:
        """Begin to count a stream anew; see `Lifetimes.renumber`."""
        self.lifetimes.renumber(stream)

    def expire(self, now: float) -> None:
        """End what was to end by now; see `Lifetimes.expire`."""
        self.lifetimes.expire(now)

    # what subscribers ask for ----------------------------------------------------------------------------

    def learn(
        self, frame: bytes, now: float, account: Account | None = None, read: FrameState | None = None
    ) -> KeyChanges:
        """Take in a subscription frame.

        Args:
            frame: 1 or 0, and the key. Source: ZeroMQ RFC 29.
            now: monotonic seconds.
            account: of the connection that it came over; None where nobody knows that.
            read: what was found out when it was read, and since; then `granted` was asked, too.

        Returns:
            What ZeroMQ is to send to the connection that it came from, or no longer, unless that was said.
        """
        key, comes = frame[1:], frame[:1] == b"\x01"
        if not comes and frame[:1] != b"\x00":
            return NOTHING
        if not key.startswith(OWN):
            self.interest.changed()
            self.plain.learn(frame)
            return self.plain.keys(key, comes=comes)
        try:
            state = read or FrameState({}, self.acceptance.kept())
            self._learn_own(key, now, account or self._others, state, comes=comes)
        except ProtocolError as error:
            self.stats.malformed += 1
            if comes:
                self._passed_over[key] += 1
            else:
                # It is as malformed when it is taken back, which ends what is remembered of it.
                self._was_passed_over(key)
            if self.reports_malformed:
                self.reports_malformed = False
                _log.warning("a subscriber sent a key that is malformed and is skipped: %s", error)
            return NOTHING
        return self.granted(key, comes=comes) if read is None else NOTHING

    def learn_stepwise(self, frame: bytes, now: float, account: Account) -> Iterator[None]:
        """Take in a subscription frame whose key is oz's, in steps that take a few milliseconds at most.

        Args:
            frame: as `learn` is given it.
            now: monotonic seconds.
            account: of the connection that it came over.
        """
        return self._steps(frame, now, account, FrameState({}, self.acceptance.kept()))

    def _steps(self, frame: bytes, now: float, account: Account, read: FrameState) -> Iterator[None]:
        if frame[:4] == b"\x01" + keys.DECLARATION:
            with suppress(ProtocolError):
                declaration = keys.parse_declaration(frame[1:])
                read = FrameState({}, read.kept, declaration)
                yield from self.acceptance.restore(declaration, account, read)
        self.learn(frame, now, account, read)

    def granted(self, key: bytes, *, comes: bool) -> KeyChanges:
        """Say what ZeroMQ is to send to a connection, or no longer, for a key of oz's, whatever it means."""
        if key[:3] != keys.DECLARATION:
            if not keys.may_carry(key):
                return NOTHING
            return KeyChanges(wanted=(key,)) if comes else KeyChanges(dropped=(key,))
        if not comes or keys.is_goodbye(key) or not keys.names_stream(key):
            return NOTHING
        # The stream's key too, and those of shared patterns: a proxy that is full may have dropped them.
        with suppress(ProtocolError):
            shared = keys.parse_declaration(key).patterns if keys.is_shared(key) else ()
            return KeyChanges(
                wanted=(keys.stream_key(keys.stream_of(key)), *(keys.pattern_key(one) for one in shared))
            )
        return NOTHING

    def refuse(self, key: bytes, reason: str) -> None:
        """Tell the stream of a declaration that it is refused, if there is such a stream."""
        if not key.startswith(keys.DECLARATION):
            return
        stream = self.streams.get(keys.stream_key(keys.stream_of(key)))
        if stream is not None and len(stream.refused) < MAX_CHUNKS:
            stream.refuse(keys.chunk_of(key), reason)
            self.to_answer[stream] = None

    def _learn_own(self, key: bytes, now: float, account: Account, read: FrameState, *, comes: bool) -> None:
        kind, stream = key[:3], None if comes else self.streams.get(key)
        if kind in (keys.STREAM, keys.PATTERN):
            if comes and kind == keys.STREAM:
                stream = self.lifetimes.stream(keys.parse_stream(key), key, None, account)
            elif comes:
                stream = self.lifetimes.pattern_stream(key, account)
            self._listen(stream, key, now, account, comes=comes)
        elif kind != keys.DECLARATION:
            raise ProtocolError(f"keys of kind {kind[2:]!r} are not known here")
        elif comes:
            self._declare(read.declaration or keys.parse_declaration(key), key, now, account, read)
        else:
            self._take_back(keys.parse_declaration(key), key, now, is_cut=account.has_ended)

    def has_learned(self, chunks: Mapping[bytes, int]) -> bool:
        """Tell whether all that a subscriber asks for has arrived here.

        Args:
            chunks: the number of the newest chunk of each of its streams, by name.
        """
        found = ((self.streams.get(keys.stream_key(name)), number) for name, number in chunks.items())
        return all(stream is not None and stream.newest >= number for stream, number in found)

    def _was_passed_over(self, key: bytes) -> bool:
        """Tell whether somebody has asked for a key in vain and not taken it back, and count that out."""
        if not self._passed_over[key]:
            return False
        self._passed_over[key] -= 1
        if not self._passed_over[key]:
            del self._passed_over[key]
        return True

    def _listen(
        self, stream: OutStream | None, key: bytes, now: float, account: Account, *, comes: bool
    ) -> None:
        was_in_vain = not comes and self._was_passed_over(key)
        if stream is None:
            return
        if comes:
            if not stream.listeners:
                # Its patterns may have come before. Only now does anything reach it.
                self.interest.changed()
                self.lifetimes.take_up(stream)
                stream.since = self.acceptance.kept()
            stream.listeners += 1 + self._passed_over.pop(key, 0)
            self.lifetimes.returned(stream, now, account)
            self.to_answer[stream] = None
            return
        stream.listeners = max(0, stream.listeners - (not was_in_vain))
        if not stream.listeners:
            # Its declarations came over the same connections. A proxy whose subscribers die by the dozen
            # does not pass on all that they take back.
            for number in list(stream.chunks):
                self.lifetimes.withdraw(stream, number, now)
        self.lifetimes.check_held(stream, now)

    def _declare(
        self, declaration: Declaration, key: bytes, now: float, account: Account, read: FrameState
    ) -> None:
        content, stream_key = hash(key), keys.stream_key(declaration.stream)
        if declaration.is_closing:
            self._say_goodbye(self.streams.get(stream_key), declaration, content, now, account)
            return
        stream = self.lifetimes.stream(declaration.stream, stream_key, declaration.delivery, account)
        self.lifetimes.returned(stream, now, account)
        self.to_answer[stream] = None
        if stream.send_buffer:
            # Whoever takes a subscription back is given first what waits for it: the answer says that it was.
            stream.answer_from = stream.send_buffer.end(stream)
        place = stream.place(declaration.chunk, content)
        chunk = stream.come_back(place)
        if chunk is None:
            if stream.is_crowded(MAX_CHUNKS, account):
                raise ProtocolError(f"a stream has {MAX_CHUNKS} declarations, and may have no more")
            chunk = self.acceptance.accept(stream, declaration, place, account, read)
        stream.newest = max(stream.newest, declaration.chunk)
        if chunk is None:
            self._passed_over[key] += 1
            return
        stream.hold(place, chunk, content)
        chunk.holders += self._passed_over.pop(key, 0)
        if chunk.patterns:
            self.interest.join_group(stream)

    def _take_back(self, declaration: Declaration, key: bytes, now: float, *, is_cut: bool) -> None:
        stream = self.streams.get(keys.stream_key(declaration.stream))
        was_in_vain = self._was_passed_over(key)
        if stream is None:
            return
        stream.refused.pop(declaration.chunk, None)
        if not was_in_vain:
            self._count_out(stream, stream.place(declaration.chunk, hash(key)), now, is_cut=is_cut)
        self.lifetimes.check_held(stream, now)

    def _count_out(self, stream: OutStream, place: int, now: float, *, is_cut: bool) -> None:
        """Count one less who has declared a chunk."""
        chunk = stream.chunks.get(place)
        if chunk is not None:
            chunk.holders -= 1
            if not chunk.holders:
                self.lifetimes.withdraw(stream, place, now, is_cut=is_cut)
                if is_cut:
                    # By another connection it may ask for it again, once it knows.
                    self.to_answer[stream] = None
        elif (ending := stream.ending.get(place)) is not None:
            ending.holders = max(0, ending.holders - 1)

    def _say_goodbye(
        self, stream: OutStream | None, declaration: Declaration, content: int, now: float, account: Account
    ) -> None:
        if stream is None:
            return
        if account not in stream.goodbyes:
            # Connections that come, say goodbye and end, while another holds the stream, would pile up here.
            stream.goodbyes = (*(one for one in stream.goodbyes if not one.has_gone), account)
        if self.hold_alone(stream.key, stream.goodbyes):
            stream.is_closing = True
            # Its policy ends with it, though its key may stand for a moment longer.
            self.interest.leave_group(stream)
            self.lifetimes.end_chunks(stream, now)
        else:
            # Another connection has it too; it wants the rest, until it says goodbye as well.
            self.lifetimes.end_chunks_of(stream, account, now)
        place = stream.place(declaration.chunk, content)
        stream.hold(place, stream.come_back(place) or AcceptedChunk((), account=account), content)
        self.to_answer[stream] = None
