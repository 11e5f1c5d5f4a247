"""Whose the streams of a publisher are, and which keys their subscribers may have, where it has permissions.

A stream belongs to the public key that asked for it first: nobody else may listen on it or declare for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from oz.protocol.prefix_counts import KeyChanges
from oz.protocol.publisher.accounts import Account
from oz.protocol.publisher.key_holders import KeyHolders
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.stream import NAME_SIZE, OutStream
from oz.security.access import Access
from oz.wire import keys
from oz.wire.denials import Denial
from oz.wire.keys import OWN

MOST_OWNERS = 65_536
"""Subscribers that are remembered with their public keys, until those that are gone are forgotten."""


class KeyOwnership:
    """Decides which keys the connections of one publisher may have."""

    __slots__ = ("_access", "_holders", "_owners", "_router")

    def __init__(self, access: Access, router: Router, holders: KeyHolders) -> None:
        """Start with no owner.

        Args:
            access: who may ask for what.
            router: has the streams.
            holders: who holds which key.
        """
        self._access = access
        self._router = router
        self._holders = holders
        self._owners: dict[bytes, str] = {}

    def denial(self, key: bytes, who: str) -> Denial | None:
        """Say why the holder of a public key may not subscribe to a key, if so.

        What a declaration asks for is decided later, a little at a time.
        """
        if not key.startswith((keys.STREAM, keys.DECLARATION)):
            return self._access.denial_of_key(who, key)
        denial = self._access.denial(who, ())
        if denial is not None:
            # Before anything is its own.
            return denial
        if self.is_taken(key, who):
            return Denial("this stream is somebody else's")
        if len(self._owners) >= MOST_OWNERS:
            there = {one.name[:NAME_SIZE] for one in self._router.streams.values()}
            self._owners = {one: key for one, key in self._owners.items() if one in there}
        # From now on: what it asks for waits to be looked at, and others may be quicker.
        self._owners.setdefault(_subscriber_of(key), who)
        return None

    def is_taken(self, key: bytes, who: str | None) -> bool:
        """Tell whether a key names a stream of somebody with another public key."""
        if not key.startswith((keys.STREAM, keys.DECLARATION)):
            return False
        return self._owners.get(_subscriber_of(key), who) != who or self._is_of_another(_stream_key(key), who)

    def _is_of_another(self, stream_key: bytes, who: str | None) -> bool:
        """Tell whether a stream is of somebody with another public key."""
        stream = self._router.streams.get(stream_key)
        owners = self._holders.accounts(stream_key)
        return any(one.key != who for one in (owners if stream is None else (*owners, stream.account)))

    def permitted(self, granted: KeyChanges, account: Account) -> KeyChanges:
        """Take out the keys of shared patterns that a declaration asks for and its sender may not have."""
        if not account.is_limited:
            return granted
        wanted = (
            one
            for one in granted.wanted
            if not one.startswith(keys.PATTERN) or self._access.denial_of_key(account.key or "", one) is None
        )
        return KeyChanges(wanted=tuple(wanted), dropped=granted.dropped)

    def losers(self, accounts: Iterable[Account], now: float) -> set[Account]:
        """Return the connections that hold what they may not have any more, and forget their streams.

        Args:
            accounts: all that are known.
            now: monotonic seconds.
        """
        lost = {one for one in accounts if self._access.denial(one.key or "", ())}
        for key in self._holders.held():
            if key[: len(OWN) + 1] not in (keys.STREAM, keys.DECLARATION):
                for one in self._holders.accounts(key):
                    if one not in lost and self._access.denial_of_key(one.key or "", key):
                        lost.add(one)
        for stream in list(self._router.streams.values()):
            if losers := self._losers_of(stream):
                # What was its own is served for a while to whoever connects again.
                self._router.lifetimes.forget(stream, now)
                lost |= losers
        return lost

    def _losers_of(self, stream: OutStream) -> set[Account]:
        """Return the connections that may not have any more what they have declared on a stream."""
        group = stream.delivery.group
        return {
            chunk.account
            for chunk in (*stream.chunks.values(), *stream.ending.values())
            if chunk.account is not None
            and chunk.account.is_limited
            and self._access.denial(chunk.account.key or "", chunk.patterns, group)
        }


def _stream_key(key: bytes) -> bytes:
    """Return the key of the stream that a key names, which is one of a stream or a declaration."""
    return key if key.startswith(keys.STREAM) else keys.stream_key(keys.stream_of(key))


def _subscriber_of(key: bytes) -> bytes:
    """Return what the names of all streams of one subscriber begin with: nodes tell by that what is of it."""
    return _stream_key(key)[len(keys.STREAM) :][:NAME_SIZE]
