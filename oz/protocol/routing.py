"""What a publisher knows of its subscribers: the keys it was sent, and whom that makes interested in what.

Every subscription passes through `Router.learn`, which is the one place that accepts or refuses it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from oz.errors import PatternError, ProtocolError
from oz.protocol.audience import Audience, Audiences
from oz.protocol.declared import restore
from oz.protocol.groups import Group
from oz.protocol.outgoing import Chunk, OutStream
from oz.protocol.plain import ALL_PLAIN, NOTHING, UNREACHABLE, Keys, PlainInterest
from oz.protocol.stats import PublisherStats
from oz.subjects.index import PatternIndex
from oz.subjects.pattern import Pattern
from oz.wire import keys
from oz.wire.keys import OWN, Declaration, Terms

__all__ = ["ALL_PLAIN", "GRACE", "UNREACHABLE", "WITHDRAWAL_DELAY", "Keys", "Router"]

_log = logging.getLogger("oz.publisher")

GRACE = 30.0
"""Seconds for which a stream whose connection was cut is kept, and its sequence counted on."""

VANISHED_KEPT = 1_000
"""Streams kept so at most; the one cut first is forgotten first."""

WITHDRAWAL_DELAY = 1.0
"""Seconds after which a chunk that was taken back ends: by then it is known whether its stream was cut."""

MOST_REPORTED = 1_000
"""Patterns that are reported by name when they run out of time; the counter tells of the rest."""

MAX_STREAMS = 65_536
MAX_PATTERNS = 4_000_000
MAX_CHUNKS = 65_536
"""What one publisher takes on, chunks for each stream; more is refused, and the answer says so."""

NAME_SIZE = 14
"""The part of a stream's id that all streams of one subscriber have in common."""


class Router:
    """The interests of all subscribers of one publisher.

    Attributes:
        plain: those of plain subscriptions.
        streams: those of subscribers that have this publisher filter, by key.
        stats: what is counted.
        to_answer: streams that are to be told where they stand.
        to_serve: chunks that asked for last values and have not been given them.
        has_changed: an interest came or went; whoever remembers audiences must forget them.
    """

    __slots__ = (
        "_audiences",
        "_groups",
        "_index",
        "_number",
        "_origin",
        "_pattern_count",
        "_reported",
        "_vanished",
        "_withdrawn",
        "has_changed",
        "plain",
        "stats",
        "streams",
        "to_answer",
        "to_serve",
    )

    def __init__(self, origin: bytes, stats: PublisherStats) -> None:
        """Start without subscribers.

        Args:
            origin: 16 bytes that name this publisher.
            stats: where to count.
        """
        self._origin = origin
        self.stats = stats
        self.plain = PlainInterest()
        self.streams: dict[bytes, OutStream] = {}
        self.to_answer: dict[OutStream, None] = {}
        self.to_serve: list[tuple[OutStream, int]] = []
        self.has_changed = False
        self._audiences = Audiences()
        self._groups: dict[str, Group] = {}
        self._index = PatternIndex(cache_size=0)
        self._number = 0
        self._pattern_count = 0
        self._vanished: dict[OutStream, None] = {}
        self._withdrawn: dict[OutStream, None] = {}
        self._reported: set[object] = set()

    # what arrives ----------------------------------------------------------------------------------------

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
            self._changed()
            self.plain.learn(frame)
            return self.plain.keys(key, comes=comes)
        try:
            return self._learn_own(key, now, comes=comes)
        except ProtocolError as error:
            self.stats.malformed += 1
            if "malformed" not in self._reported:
                self._reported.add("malformed")
                _log.warning("a subscriber sent a key that is malformed and is skipped: %s", error)
            return NOTHING

    def _learn_own(self, key: bytes, now: float, *, comes: bool) -> Keys:
        kind = key[:3]
        if kind == keys.STREAM:
            stream = self._stream(keys.parse_stream(key), key, Terms()) if comes else self.streams.get(key)
            return self._listen(stream, now, comes=comes)
        if kind == keys.PATTERN:
            stream = self._pattern_stream(key) if comes else self.streams.get(key)
            return self._listen(stream, now, comes=comes)
        if kind != keys.DECLARATION:
            raise ProtocolError(f"keys of kind {kind[2:]!r} are not known here")
        declaration = keys.parse_declaration(key)
        if comes:
            return self._declare(declaration, now)
        return self._take_back(declaration, now)

    def _listen(self, stream: OutStream | None, now: float, *, comes: bool) -> Keys:
        if stream is None:
            return NOTHING
        if comes:
            stream.listeners += 1
            self._returned(stream, now)
            self.to_answer[stream] = None
            return Keys(wanted=(stream.key,))
        stream.listeners = max(0, stream.listeners - 1)
        if not stream.listeners:
            # Its declarations came over the same connections. A proxy whose subscribers die by the dozen
            # does not pass on all that they take back.
            for number in list(stream.chunks):
                self._withdraw(stream, number, now)
        self._check_held(stream, now)
        return Keys(dropped=(stream.key,))

    def _declare(self, declaration: Declaration, now: float) -> Keys:
        key = keys.stream_key(declaration.stream)
        if declaration.is_leaving:
            return self._say_goodbye(self.streams.get(key), declaration, now)
        stream = self._stream(declaration.stream, key, declaration.terms)
        self._returned(stream, now)
        self.to_answer[stream] = None
        number = declaration.chunk
        chunk = stream.chunks.get(number) or stream.ending.pop(number, None)
        if chunk is None and number not in stream.refused:
            if len(stream.chunks) + len(stream.ending) + len(stream.refused) >= MAX_CHUNKS:
                raise ProtocolError(f"a stream has {MAX_CHUNKS} declarations, and may have no more")
            chunk = self._accept(stream, declaration)
        if chunk is None:
            return Keys(wanted=(key,))
        stream.chunks[number] = chunk
        chunk.holders += 1
        # The key itself too: a proxy at its high-water mark may have dropped it.
        return Keys(wanted=(key, *(shared.key for shared in chunk.shared)))

    def _accept(self, stream: OutStream, declaration: Declaration) -> Chunk | None:
        """Take on what a chunk asks for, or refuse all of it."""
        try:
            if self._pattern_count + len(declaration.patterns) > MAX_PATTERNS:
                raise ProtocolError(f"this publisher has {self._pattern_count} patterns and takes no more")
            patterns = tuple(restore(one) for one in declaration.patterns)
            shared: tuple[OutStream, ...] = ()
            if stream.terms.is_shared:
                shared = tuple(self._pattern_stream(keys.pattern_key(one)) for one in declaration.patterns)
        except (PatternError, ProtocolError) as error:
            stream.refused[declaration.chunk] = str(error)
            return None
        chunk = Chunk(patterns, declaration.wants_last_value)
        if stream.terms.is_shared:
            chunk.shared = shared
            for one in shared:
                one.listeners += 1
                self.to_answer[one] = None
        else:
            for pattern in patterns:
                self._add(stream, pattern)
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
                self._withdraw(stream, declaration.chunk, now)
        self._check_held(stream, now)
        return NOTHING

    def _withdraw(self, stream: OutStream, number: int, now: float) -> None:
        """Take note that nobody holds a chunk any more."""
        if stream.terms.group:
            self._end_chunk(stream, stream.chunks.pop(number), now)
            return
        # The stream's own key may be taken back in a moment: then its connection was cut, and what it
        # wanted is still to be counted.
        chunk = stream.ending[number] = stream.chunks.pop(number)
        chunk.holders = 0
        chunk.ends_at = now + WITHDRAWAL_DELAY
        self._withdrawn[stream] = None

    def _say_goodbye(self, stream: OutStream | None, declaration: Declaration, now: float) -> Keys:
        if stream is None:
            return NOTHING
        stream.is_leaving = True
        self._end_chunks(stream, now)
        stream.chunks[declaration.chunk] = Chunk((), wants_last_value=False, holders=1)
        self.to_answer[stream] = None
        return NOTHING

    # streams ---------------------------------------------------------------------------------------------

    def _stream(self, name: bytes, key: bytes, terms: Terms) -> OutStream:
        stream = self.streams.get(key)
        if stream is None:
            if len(self.streams) >= MAX_STREAMS:
                raise ProtocolError(f"this publisher has {MAX_STREAMS} streams and takes no more")
            self._number += 1
            stream = self.streams[key] = OutStream(name, key, terms, self._origin, self._number)
        elif not stream.chunks and not stream.ending and terms != stream.terms:
            # Its own key came first, and says nothing of terms.
            self._leave_group(stream)
            stream.terms = terms
        if stream.terms.group:
            self._groups.setdefault(stream.terms.group, Group(stream.terms.group)).join(
                stream, stream.terms.policy
            )
        return stream

    def renumber(self, stream: OutStream) -> None:
        """Begin to count a stream anew: its subscriber learns that it missed some, but not how many."""
        self._number += 1
        stream.number(self._origin, self._number)
        stream.unsent.clear()
        stream.held = None
        stream.is_full = False
        self.to_answer[stream] = None

    def _leave_group(self, stream: OutStream) -> None:
        group = self._groups.get(stream.terms.group)
        if group is not None:
            group.leave(stream)
            if not group:
                del self._groups[stream.terms.group]

    def _pattern_stream(self, key: bytes) -> OutStream:
        known = self.streams.get(key)
        if known is not None:
            return known
        try:
            pattern = restore(keys.parse_pattern(key))
        except PatternError as error:
            raise ProtocolError(f"a shared pattern is not valid: {error}") from None
        stream = self._stream(key, key, Terms(is_shared=True))
        self._add(stream, pattern)
        return stream

    def _add(self, stream: OutStream, pattern: Pattern) -> None:
        count = stream.patterns.get(pattern, 0)
        stream.patterns[pattern] = count + 1
        if count == 0:
            self._index.add(pattern, stream)
            self._pattern_count += 1
            self._changed()

    def _end_chunks(self, stream: OutStream, now: float) -> None:
        chunks = [*stream.chunks.values(), *stream.ending.values()]
        stream.chunks.clear()
        stream.ending.clear()
        for chunk in chunks:
            self._end_chunk(stream, chunk, now)

    def _end_chunk(self, stream: OutStream, chunk: Chunk, now: float) -> None:
        """End a chunk that was taken from its stream already."""
        for shared in chunk.shared:
            shared.listeners = max(0, shared.listeners - 1)
            self._check_held(shared, now)
        if stream.terms.is_shared:
            return
        for pattern in chunk.patterns:
            count = stream.patterns.pop(pattern) - 1
            if count:
                stream.patterns[pattern] = count
            else:
                self._index.discard(pattern, stream)
                self._pattern_count -= 1
                self._changed()

    def _returned(self, stream: OutStream, now: float) -> None:
        """A connection has come back: what it does not declare again ends later."""
        if stream.vanished_at is None:
            return
        stream.vanished_at = None
        self._vanished.pop(stream, None)
        self._withdrawn[stream] = None
        for chunk in stream.ending.values():
            chunk.ends_at = now + GRACE

    def _check_held(self, stream: OutStream, now: float) -> None:
        """See whether any connection still has a part of a stream."""
        if stream.is_gone or stream.vanished_at is not None:
            return
        if stream.is_leaving and not stream.listeners:
            self._forget(stream, now)
        elif not stream.is_held:
            if stream.terms.group or stream.is_shared:
                # A group's share moves on. Those who were cut off still hold the patterns that they share.
                self._forget(stream, now)
                return
            stream.vanished_at = now
            stream.unsent.clear()
            self.to_answer.pop(stream, None)
            self._vanished[stream] = None
            while len(self._vanished) > VANISHED_KEPT:
                self._forget(next(iter(self._vanished)), now)

    def _forget(self, stream: OutStream, now: float) -> None:
        stream.is_gone = True
        self._end_chunks(stream, now)
        for pattern in stream.patterns:
            self._index.discard(pattern, stream)
            self._pattern_count -= 1
        self.streams.pop(stream.key, None)
        self._vanished.pop(stream, None)
        self._withdrawn.pop(stream, None)
        self.to_answer.pop(stream, None)
        self._leave_group(stream)
        self._changed()

    def expire(self, now: float) -> None:
        """End what was to end by now: chunks that were taken back, streams whose time of grace is over."""
        for stream in list(self._withdrawn):
            self._expire_chunks(stream, now)
        for stream in list(self._vanished):
            if stream.vanished_at is None or now - stream.vanished_at < GRACE:
                break
            self._forget(stream, now)

    def _expire_chunks(self, stream: OutStream, now: float) -> None:
        if stream.vanished_at is None and not stream.is_gone:
            for number in [one for one, chunk in stream.ending.items() if chunk.ends_at <= now]:
                self._end_chunk(stream, stream.ending.pop(number), now)
        if stream.vanished_at is not None or not stream.ending:
            self._withdrawn.pop(stream, None)

    # who wants what --------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self.has_changed = True
        self._audiences.clear()

    def find(self, subject: bytes, plain: bytes) -> Audience:
        """Work out who wants a subject.

        Args:
            subject: its bytes.
            plain: what plain subscriptions are compared with: the subject and its delimiter, if any.
        """
        streams: Iterable[OutStream] = ()
        if self._pattern_count:
            found = self._index.find(subject)
            streams = found.values
            for pattern in found.timed_out:
                self._report_timeout(pattern, subject)
        return self._audiences.find(streams, self._groups, is_plain=self.plain.matches(plain))

    def _report_timeout(self, pattern: Pattern, subject: bytes) -> None:
        self.stats.timed_out += 1
        if pattern not in self._reported and len(self._reported) < MOST_REPORTED:
            self._reported.add(pattern)
            _log.warning(
                "pattern %r ran out of time on %r; its subscribers miss such messages", pattern, subject
            )

    def count(self, subject: bytes | None, plain: bytes | None) -> int:
        """Count the subscribers that declared themselves, and the plain subscriptions.

        Args:
            subject: count only those that want it; None counts all.
            plain: the same with the delimiter.
        """
        if subject is None or plain is None:
            streams = [one for one in self.streams.values() if one.patterns or one.terms.is_shared]
        else:
            audience = self.find(subject, plain)
            streams = [*audience.streams, *(one for choice in audience.choices for one in choice.members)]
        own = {one.name[:NAME_SIZE] for one in streams if not one.is_shared and one.vanished_at is None}
        shared = sum(one.listeners > 0 for one in streams if one.is_shared) if subject is not None else 0
        return len(own) + shared + self.plain.count(plain)
