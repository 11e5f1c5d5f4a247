"""The acceptance of declarations: what a publisher accepts of them, and why it refuses the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import compress
from typing import NamedTuple

from oz.errors import PatternError, ProtocolError
from oz.logs import peer_logger
from oz.protocol.publisher.accounts import Account
from oz.protocol.publisher.interest import InterestTable, suspension
from oz.protocol.publisher.lifetimes import Lifetimes
from oz.protocol.publisher.stream import NAME_SIZE, AcceptedChunk, OutStream
from oz.security.access import Access
from oz.security.limits import Limits
from oz.subjects.pattern import Pattern, weight_of
from oz.wire import keys
from oz.wire.declared import restoring
from oz.wire.denials import Denial
from oz.wire.keys import Declaration, Declared

_log = peer_logger("oz.publisher")

MOST_IN_CHUNK = 2_048
"""Patterns in a chunk; more is refused, and the answer says so."""

Restored = dict[Declared, Pattern]
"""Patterns that were compiled already."""


class FrameState(NamedTuple):
    """The state of a frame that a publisher has read, beside its bytes.

    Attributes:
        restored: those of its patterns that were compiled already.
        kept: how many messages had gone into the last values when it was read.
        declaration: what it declares; None where nobody has looked yet.
    """

    restored: Restored
    kept: int
    declaration: Declaration | None = None


class Acceptance:
    """Accepts declarations, as far as limits and permissions let it, or refuses them.

    Attributes:
        access: who may ask for what; None where everybody may for everything.
        to_serve: chunks that asked for last values and have not been given them; for each of their patterns
            the count of the last message that does not come to them by itself.
        kept: tells how many messages have gone into the last values so far.
        last_denied: what was denied last, in words; empty before.
    """

    __slots__ = ("_interest", "_lifetimes", "_limits", "access", "kept", "last_denied", "to_serve")

    def __init__(self, interest: InterestTable, lifetimes: Lifetimes, limits: Limits) -> None:
        """Start with nothing.

        Args:
            interest: who wants what; takes in what is accepted.
            lifetimes: the streams.
            limits: how much a connection may ask for, and all together.
        """
        self._interest = interest
        self._lifetimes = lifetimes
        self._limits = limits
        self.to_serve: list[tuple[OutStream, int, tuple[int, ...]]] = []
        self.kept: Callable[[], int] = int
        self.access: Access | None = None
        self.last_denied = ""

    def restore(self, declaration: Declaration, account: Account, read: FrameState) -> Iterator[None]:
        """Compile the patterns of a declaration, in steps that take a few milliseconds at most."""
        patterns = declaration.patterns if self._too_many(declaration, account) is None else ()
        steps = restoring(patterns, self._lifetimes.room(account))
        with suppress(PatternError):
            for one, pattern in zip(patterns, steps, strict=True):
                read.restored[one] = pattern
                if self.access is not None and account.is_limited:
                    # It is remembered.
                    self.access.denial(account.key or "", (pattern,), declaration.delivery.group)
                yield

    def accept(
        self, stream: OutStream, declaration: Declaration, place: int, account: Account, read: FrameState
    ) -> AcceptedChunk | None:
        """Take on what a chunk asks for, as far as it is permitted, or refuse all of it."""
        refusal = self._refusal(stream, declaration) or self._too_many(declaration, account)
        if refusal is not None:
            stream.refuse(declaration.chunk, refusal)
            return None
        try:
            patterns = tuple(restoring(declaration.patterns, self._lifetimes.room(account), read.restored))
            granted, denial = self._permitted(patterns, account, stream.delivery.group)
            if denial is not None:
                self.deny(account, denial)
                if not any(granted):
                    stream.refuse(declaration.chunk, denial)
                    return None
                patterns = tuple(compress(patterns, granted))
            shared: tuple[OutStream, ...] = ()
            if stream.delivery.is_shared:
                shared = tuple(
                    self._lifetimes.pattern_stream(keys.pattern_key(one), account)
                    for one in compress(declaration.patterns, granted)
                )
        except (PatternError, ProtocolError) as error:
            stream.refuse(declaration.chunk, str(error))
            return None
        stream.refused.pop(declaration.chunk, None)
        if denial is not None:
            stream.refused[declaration.chunk] = denial
        chunk = AcceptedChunk(patterns, account=account)
        account.patterns += len(patterns)
        account.pattern_weight += sum(map(weight_of, patterns))
        before = (self.kept(),) * len(patterns)
        if stream.delivery.is_shared:
            chunk.shared = shared
            # ZeroMQ was told of their keys when the declaration was read: since then comes what is published
            # on one that somebody listened to already.
            before = tuple(max(read.kept, one.since) if one.listeners else self.kept() for one in shared)
            self._listen_with_others(stream, declaration.chunk, place, chunk)
        else:
            for pattern in patterns:
                self._interest.add(stream, pattern)
        if declaration.wants_last_value:
            self.to_serve.append((stream, place, before))
        return chunk

    def _listen_with_others(self, stream: OutStream, number: int, place: int, chunk: AcceptedChunk) -> None:
        """Let a chunk of a stream listen on the shared patterns that it declares."""
        for one in chunk.shared:
            if not one.listeners:
                one.since = self.kept()
            one.listeners += 1
            one.sharers[chunk] = (stream, place)
            self._lifetimes.to_answer[one] = None
            for pattern in one.suspended:
                stream.refused[number] = suspension(pattern)
        # Their numbers must be known when the declaration is answered.
        self._lifetimes.to_answer.move_to_end(stream)

    def _refusal(self, stream: OutStream, declaration: Declaration) -> str | None:
        """Say why the subscriber of a stream gets nothing, if so; then it keeps nothing that it has."""
        watcher, name = self._interest.watcher, stream.name[:NAME_SIZE]
        if watcher is None:
            return None
        if watcher.finds_stranger(name, declaration.patterns):
            for one in [
                one for one in self._lifetimes.streams.values() if one.name[:NAME_SIZE] == name and one.chunks
            ]:
                self._lifetimes.forget(one, 0.0)
        return watcher.refusal(name)

    def _too_many(self, declaration: Declaration, account: Account) -> str | None:
        """Say why a chunk asks for too many patterns, if so."""
        count, limits = len(declaration.patterns), self._limits
        if count > MOST_IN_CHUNK:
            return f"a declaration of {count} patterns; one may have {MOST_IN_CHUNK}"
        if self._interest.pattern_count + count > limits.all_patterns:
            return f"this publisher has {self._interest.pattern_count} patterns and takes no more"
        if account.is_limited and account.patterns + count > limits.patterns:
            return (
                f"your connection has {account.patterns} patterns at this publisher, which allows one "
                f"{limits.patterns:g}: ask for fewer, or give it other limits (docs/limits.md)"
            )
        return None

    def _permitted(
        self, patterns: Collection[Pattern], account: Account, group: str
    ) -> tuple[list[bool], Denial | None]:
        """Tell of each pattern of a chunk whether it is permitted, and why the first is not that is not.

        A chunk may be of several subscriptions, and those that are permitted have what they asked for.
        """
        if self.access is None or not account.is_limited:
            return [True] * len(patterns), None
        who = account.key or ""
        denials = [self.access.denial(who, (one,), group) for one in patterns]
        return [one is None for one in denials], next(filter(None, denials), self.access.denial(who, ()))

    def deny(self, account: Account, denial: Denial) -> None:
        """Count and log a subscription that is denied."""
        self._interest.stats.denied += 1
        self.last_denied = f"key {account.key} may not subscribe to what it asks for: {denial}"
        _log.warning("%s", self.last_denied)
