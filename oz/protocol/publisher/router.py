"""The router of a publisher: it learns from the keys of its subscribers who wants what.

Every subscription passes through `Router.learn`, which is the one place that accepts or refuses it. How long
what they ask for lasts is in `lifetimes`, and who wants a subject in `interest`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from oz.errors import PatternError, ProtocolError
from oz.protocol.declared import restore
from oz.protocol.prefix_counts import NOTHING, Keys
from oz.protocol.publisher.interest import InterestTable, InterestWatcher, Recipients
from oz.protocol.publisher.lifetimes import Lifetimes
from oz.protocol.publisher.stream import NAME_SIZE, AcceptedChunk, OutStream
from oz.protocol.stats import PublisherStats
from oz.subjects.index.patterns import PatternIndex
from oz.wire import keys
from oz.wire.keys import OWN, Declaration, DeliveryOptions

_log = logging.getLogger("oz.publisher")

MOMENTS = 4
"""Moments of a second at which nodes tell streams where they stand."""

MAX_PATTERNS = 4_000_000
MAX_CHUNKS = 65_536
"""What one publisher takes on, chunks for each stream; more is refused, and the answer says so."""


class Router:
    """The interests of all subscribers of one publisher.

    Attributes:
        interest: who wants what.
        find: works out who wants a subject; that of `interest`.
        lifetimes: how long.
        streams: those of subscribers that have this publisher filter, by key; those of `lifetimes`.
        plain: the interests of plain subscriptions; those of `interest`.
        stats: what is counted.
        to_answer: streams that are to be told where they stand; those of `lifetimes`.
        to_serve: chunks that asked for last values and have not been given them.
    """

    __slots__ = (
        "_moment", "_reports_malformed", "find", "interest", "lifetimes", "plain", "stats", "streams",
        "to_answer", "to_serve",
    )  # fmt: skip

    def __init__(
        self,
        origin: bytes,
        stats: PublisherStats,
        *,
        index: PatternIndex | None = None,
        watcher: InterestWatcher | None = None,
    ) -> None:
        """Start without subscribers.

        Args:
            origin: 16 bytes that name this publisher.
            stats: where to count.
            index: finds the patterns that match; an ordinary one unless given.
            watcher: looks at the interests as they come and go.
        """
        self.stats = stats
        self.interest = InterestTable(stats, PatternIndex(cache_size=0) if index is None else index, watcher)
        self.lifetimes = Lifetimes(origin, self.interest)
        self.find: Callable[[bytes, bytes], Recipients] = self.interest.find
        self.plain = self.interest.plain
        self.streams = self.lifetimes.streams
        self.to_answer = self.lifetimes.to_answer
        self.to_serve: list[tuple[OutStream, int]] = []
        self._reports_malformed = True
        self._moment = origin[0] % MOMENTS / MOMENTS

    # who wants what --------------------------------------------------------------------------------------

    def counted(self) -> Iterable[OutStream]:
        """Return the streams on which an application's messages go out: not those that show presence."""
        watcher = self.interest.watcher
        return [
            one
            for one in self.streams.values()
            if one.has_messages and (watcher is None or not watcher.is_presence(one))
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
        """Return the streams that are to be told then."""
        watcher, streams = self.interest.watcher, self.streams.values()
        return streams if watcher is None else watcher.to_tell(streams)

    # counting --------------------------------------------------------------------------------------------

    def count(self, subject: bytes | None, plain: bytes | None, known: Recipients | None = None) -> int:
        """Count the subscribers that declared themselves, and the plain subscriptions.

        Args:
            subject: count only those that want it; None counts all.
            plain: the same with the delimiter.
            known: what `find` has given for it, if no interest has changed since.
        """
        if subject is None or plain is None:
            streams = [one for one in self.streams.values() if one.patterns or one.delivery.is_shared]
        else:
            recipients = self.find(subject, plain) if known is None else known
            streams = [*recipients.streams, *(one for choice in recipients.choices for one in choice.members)]
            streams = [one for one in streams if not one.ending or one.still_wants(subject)]
        own = {one.name[:NAME_SIZE] for one in streams if not one.is_shared and one.vanished_at is None}
        shared = sum(one.listeners > 0 for one in streams if one.is_shared) if subject is not None else 0
        return len(own) + shared + self.plain.count(plain)

    def renumber(self, stream: OutStream) -> None:
        """Begin to count a stream anew; see `Lifetimes.renumber`."""
        self.lifetimes.renumber(stream)

    def expire(self, now: float) -> None:
        """End what was to end by now; see `Lifetimes.expire`."""
        self.lifetimes.expire(now)

    # what subscribers ask for ----------------------------------------------------------------------------

    def learn(self, frame: bytes, now: float) -> Keys:
        """Take in a subscription frame.

        Args:
            frame: 1 or 0, and the key. Source: ZeroMQ RFC 29.
            now: monotonic seconds.

        Returns:
            What ZeroMQ is to send to the connection that it came from, or no longer.
        """
        key, comes = frame[1:], frame[:1] == b"\x01"
        if not comes and frame[:1] != b"\x00":
            return NOTHING
        if not key.startswith(OWN):
            self.interest.changed()
            self.plain.learn(frame)
            return self.plain.keys(key, comes=comes)
        try:
            return self._learn_own(key, now, comes=comes)
        except ProtocolError as error:
            self.stats.malformed += 1
            if self._reports_malformed:
                self._reports_malformed = False
                _log.warning("a subscriber sent a key that is malformed and is skipped: %s", error)
            return NOTHING

    def _learn_own(self, key: bytes, now: float, *, comes: bool) -> Keys:
        kind = key[:3]
        if kind == keys.STREAM:
            stream = (
                self.lifetimes.stream(keys.parse_stream(key), key, DeliveryOptions())
                if comes
                else self.streams.get(key)
            )
            return self._listen(stream, now, comes=comes)
        if kind == keys.PATTERN:
            stream = self.lifetimes.pattern_stream(key) if comes else self.streams.get(key)
            return self._listen(stream, now, comes=comes)
        if kind != keys.DECLARATION:
            raise ProtocolError(f"keys of kind {kind[2:]!r} are not known here")
        declaration = keys.parse_declaration(key)
        if comes:
            return self._declare(declaration, now)
        return self._take_back(declaration, now)

    def has_learned(self, chunks: Mapping[bytes, int]) -> bool:
        """Tell whether all that a subscriber asks for has arrived here.

        Args:
            chunks: the number of the newest chunk of each of its streams, by name.
        """
        found = ((self.streams.get(keys.stream_key(name)), number) for name, number in chunks.items())
        return all(stream is not None and stream.newest >= number for stream, number in found)

    def _listen(self, stream: OutStream | None, now: float, *, comes: bool) -> Keys:
        if stream is None:
            return NOTHING
        if comes:
            if not stream.listeners:
                # Its patterns may have come before. Only now does anything reach it.
                self.interest.changed()
                self.lifetimes.take_up(stream)
            stream.listeners += 1
            self.lifetimes.returned(stream, now)
            self.to_answer[stream] = None
            return Keys(wanted=(stream.key,))
        stream.listeners = max(0, stream.listeners - 1)
        if not stream.listeners:
            # Its declarations came over the same connections. A proxy whose subscribers die by the dozen
            # does not pass on all that they take back.
            for number in list(stream.chunks):
                self.lifetimes.withdraw(stream, number, now)
        self.lifetimes.check_held(stream, now)
        return Keys(dropped=(stream.key,))

    def _declare(self, declaration: Declaration, now: float) -> Keys:
        key = keys.stream_key(declaration.stream)
        if declaration.is_closing:
            return self._say_goodbye(self.streams.get(key), declaration, now)
        stream = self.lifetimes.stream(declaration.stream, key, declaration.delivery)
        self.lifetimes.returned(stream, now)
        self.to_answer[stream] = None
        if stream.send_buffer:
            # Whoever takes a subscription back is given first what waits for it: the answer says that it was.
            stream.answer_from = stream.send_buffer.end(stream)
        number = declaration.chunk
        chunk = stream.chunks.get(number)
        if chunk is None and (chunk := stream.ending.pop(number, None)) is not None:
            # A proxy may not have passed on that it was taken back.
            chunk.holders = 0
        if chunk is None and number not in stream.refused:
            if len(stream.chunks) + len(stream.ending) + len(stream.refused) >= MAX_CHUNKS:
                raise ProtocolError(f"a stream has {MAX_CHUNKS} declarations, and may have no more")
            chunk = self._accept(stream, declaration)
        stream.newest = max(stream.newest, number)
        if chunk is None:
            return Keys(wanted=(key,))
        stream.chunks[number] = chunk
        chunk.holders += 1
        # The key itself too: a proxy at its high-water mark may have dropped it.
        return Keys(wanted=(key, *(shared.key for shared in chunk.shared)))

    def _refusal(self, stream: OutStream, declaration: Declaration) -> str | None:
        """Say why the subscriber of a stream gets nothing, if so; then it keeps nothing that it has."""
        watcher, name = self.interest.watcher, stream.name[:NAME_SIZE]
        if watcher is None:
            return None
        if watcher.finds_stranger(name, declaration.patterns):
            for one in [one for one in self.streams.values() if one.name[:NAME_SIZE] == name and one.chunks]:
                self.lifetimes.forget(one, 0.0)
        return watcher.refusal(name)

    def _accept(self, stream: OutStream, declaration: Declaration) -> AcceptedChunk | None:
        """Take on what a chunk asks for, or refuse all of it."""
        refusal = self._refusal(stream, declaration)
        if refusal is not None:
            stream.refused[declaration.chunk] = refusal
            return None
        try:
            if self.interest.pattern_count + len(declaration.patterns) > MAX_PATTERNS:
                raise ProtocolError(
                    f"this publisher has {self.interest.pattern_count} patterns and takes no more"
                )
            patterns = tuple(restore(one) for one in declaration.patterns)
            shared: tuple[OutStream, ...] = ()
            if stream.delivery.is_shared:
                shared = tuple(
                    self.lifetimes.pattern_stream(keys.pattern_key(one)) for one in declaration.patterns
                )
        except (PatternError, ProtocolError) as error:
            stream.refused[declaration.chunk] = str(error)
            return None
        chunk = AcceptedChunk(patterns, declaration.wants_last_value)
        if stream.delivery.is_shared:
            chunk.shared = shared
            for one in shared:
                one.listeners += 1
                self.to_answer[one] = None
        else:
            for pattern in patterns:
                self.interest.add(stream, pattern)
        if declaration.wants_last_value:
            self.to_serve.append((stream, declaration.chunk))
        return chunk

    def _take_back(self, declaration: Declaration, now: float) -> Keys:
        stream = self.streams.get(keys.stream_key(declaration.stream))
        if stream is None:
            return NOTHING
        stream.refused.pop(declaration.chunk, None)
        chunk = stream.chunks.get(declaration.chunk)
        if chunk is not None:
            chunk.holders -= 1
            if not chunk.holders:
                self.lifetimes.withdraw(stream, declaration.chunk, now)
        elif declaration.chunk in stream.ending:
            ending = stream.ending[declaration.chunk]
            ending.holders = max(0, ending.holders - 1)
        self.lifetimes.check_held(stream, now)
        return NOTHING

    def _say_goodbye(self, stream: OutStream | None, declaration: Declaration, now: float) -> Keys:
        if stream is None:
            return NOTHING
        stream.is_closing = True
        # Its policy ends with it, though its key may stand for a moment longer.
        self.interest.leave_group(stream)
        self.lifetimes.end_chunks(stream, now)
        stream.chunks[declaration.chunk] = AcceptedChunk((), wants_last_value=False, holders=1)
        self.to_answer[stream] = None
        return NOTHING
