"""The accounts of connections at a publisher: what each holds and has asked for, and which hold up others.

What a connection was refused libzmq takes back all the same when it ends, and tells without saying whose that
was. So it is counted how many were refused each key and have not ended.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

from oz.protocol.publisher.backlog import Backlog
from oz.security.limits import Limits
from oz.transport.backend import Peer

IsAlive = Callable[[Peer], bool]


class Account:
    """The account of one connection.

    Attributes:
        peer: the connection; None for all those of which ZeroMQ tells nothing, as they are inside the process
            or had closed before anything of them was read.
        key: the public key of its peer; None without CURVE, and for what is inside the process.
        keys: the keys that it holds.
        key_bytes: the bytes of those of oz.
        streams: how many of them are streams.
        plain: how many of them are plain subscriptions.
        plain_bytes: the bytes of those.
        own_streams: the streams that it began.
        beating: how many of them, and of the shared patterns that it began, are told every second where they
            stand.
        patterns: the patterns that it has declared.
        pattern_weight: the bytes that those take, as estimated.
        refused_bytes: the bytes of what it asked for in vain.
        waiting: what it asked for and nobody has looked at yet.
        waiting_bytes: the bytes of those.
        name: a name of the connection; empty where ZeroMQ does not tell.
        backlog: what waits to be sent to it.
        is_limited: whether limits hold for it: not for what is inside the process.
        refused: the keys that it asked for in vain.
        refused_again: those that it holds, and how often it has asked for them once more in vain.
        read: the bytes of its frames that were read, with what goes with them over the wire.
        uncounted: what ZeroMQ has read of it besides, and at which `read` that was found.
        goodbyes: how many it said before it listened on the streams that they are of.
        has_ended: it stands for all that have ended, and what they take back by that.
    """

    __slots__ = (
        "backlog", "beating", "goodbyes", "has_ended", "is_limited", "key", "key_bytes", "keys", "name",
        "own_streams", "pattern_weight", "patterns", "peer", "plain", "plain_bytes", "read", "refused",
        "refused_again", "refused_bytes", "streams", "uncounted", "waiting", "waiting_bytes",
    )  # fmt: skip

    def __init__(
        self,
        peer: Peer | None = None,
        unsent: float = inf,
        *,
        key: str | None = None,
        is_limited: bool = False,
    ) -> None:
        """Begin with nothing.

        Args:
            peer: the connection; None for several, of which ZeroMQ tells nothing more.
            unsent: bytes that may wait to be sent to it.
            key: the public key of several.
            is_limited: whether several may have no more than limits and permissions allow; one may not.
        """
        self.peer = peer
        self.name = b"" if peer is None else b"%d:%d" % (peer.descriptor, peer.inode or 0)
        self.key = key if peer is None else peer.key
        self.is_limited = is_limited or peer is not None
        self.has_ended = False
        self.backlog = Backlog(unsent)
        self.refused: set[bytes] = set()
        self.refused_again: dict[bytes, int] = {}
        self.read, self.uncounted = 0, (0, 0)
        self.keys = self.streams = self.plain = self.plain_bytes = 0
        self.key_bytes = self.refused_bytes = self.goodbyes = 0
        self.own_streams = self.beating = self.patterns = self.pattern_weight = 0
        self.waiting: deque[Any] = deque()
        self.waiting_bytes = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left of it."""
        return not (self.keys or self.waiting or self.own_streams or self.patterns or self.goodbyes)

    @property
    def has_gone(self) -> bool:
        """Whether it is of one connection, and nothing is left of that: such a one does not come back."""
        return self.peer is not None and self.is_idle

    def hold(self, size: int, *, is_stream: bool, is_plain: bool, by: int = 1) -> None:
        """Count a key of so many bytes in, or out with `by` -1."""
        self.keys += by
        self.streams += by * is_stream
        if is_plain:
            self.plain += by
            self.plain_bytes += by * size
        else:
            self.key_bytes += by * size

    def refusal(self, limits: Limits, size: int, *, is_stream: bool, is_plain: bool) -> str | None:
        """Say why it may not have one more key of so many bytes, if so."""
        if not self.is_limited:
            return None
        if is_plain:
            if size > limits.plain_size:
                return f"a plain subscription of {size} bytes; one may have {limits.plain_size:g}"
            if self.plain >= limits.plain_subscriptions or self.plain_bytes + size > limits.plain_bytes:
                return f"it has {self.plain} plain subscriptions of {self.plain_bytes} bytes"
        elif self.key_bytes + size > limits.key_bytes:
            return f"it has keys of {self.key_bytes} bytes"
        elif (reason := self.refusal_to_wait(limits, size)) is not None:
            return reason
        elif is_stream and self.streams >= limits.streams:
            return f"it has {self.streams} streams"
        return None

    def refusal_to_wait(self, limits: Limits, size: int) -> str | None:
        """Say why no more key of so many bytes may wait to be looked at, if so."""
        if self.is_limited and self.waiting_bytes + size > limits.waiting_keys:
            return f"keys of {self.waiting_bytes} bytes wait to be looked at"
        return None


TOO_LONG = 1.0
"""Seconds for which more may wait for several connections than may for one."""

LOOK_EVERY = 0.1
"""Seconds between two looks at who takes nothing meanwhile."""


class SlowPeers:
    """Finds who holds up what several connections share: those that take next to nothing for a second."""

    __slots__ = ("_first", "_handed", "_looked_at", "_since")

    def __init__(self) -> None:
        """Start without suspicion."""
        self._first: dict[Peer, int] = {}
        self._handed = 0
        self._since = self._looked_at = inf

    def calm(self) -> None:
        """Record that no more waits than may."""
        self._since = inf

    def find(
        self,
        now: float,
        size: int,
        peers: Callable[[], Iterable[Peer]],
        taken: Callable[[Iterable[Peer]], Mapping[Peer, int]],
    ) -> list[Peer]:
        """Record that too much waits; return the connections that are to be ended for that.

        Args:
            now: monotonic seconds.
            size: bytes of the message that is handed over.
            peers: gives those that may be it.
            taken: gives the bytes taken so far by those of some for which something waits; 0 where nobody
                knows.
        """
        if self._since == inf:
            self._since = self._looked_at = now
            self._first, self._handed = dict(taken(peers())), 0
            return []
        self._handed += size
        if now - self._looked_at < LOOK_EVERY:
            return []
        self._looked_at = now
        still = taken(self._first)
        self._first = {one: self._first[one] for one in still}
        if now - self._since < TOO_LONG:
            return []
        self._since = inf
        # Whoever has taken half of what there was is slow, and is not what it waits for.
        return [one for one, first in self._first.items() if still[one] - first < self._handed / 2]


class KeyRefusals:
    """Counts who was refused which key, and has not ended.

    Attributes:
        counts: for each key how many.
        unknown: those that had closed before they were read, for each key by their descriptors.
    """

    __slots__ = ("_inside", "_spared", "counts", "unknown")

    def __init__(self) -> None:
        """Start without any."""
        self.counts: dict[bytes, int] = {}
        self.unknown: dict[bytes, Counter[int]] = {}
        # How many ends were taken for those of who was refused a key, and may have been of who held it.
        self._spared: Counter[bytes] = Counter()
        # The keys that somebody inside the process was refused, of whom nothing is told.
        self._inside: set[bytes] = set()

    def add(self, key: bytes, account: Account, peer: Peer | None) -> None:
        """Record that a connection was refused a key which it does not hold."""
        if account.peer is not None:
            account.refused.add(key)
        elif peer is not None:
            self.unknown.setdefault(key, Counter())[peer.descriptor] += 1
        else:
            self._inside.add(key)
        self.counts[key] = self.counts.get(key, 0) + 1

    def take(self, key: bytes) -> bool:
        """Tell whether one connection was refused a key that has not ended, and count it out."""
        count = self.counts.pop(key, 0)
        if count > 1:
            self.counts[key] = count - 1
        else:
            self.unknown.pop(key, None)
        return count > 0

    def is_unsure(self, key: bytes) -> bool:
        """Tell whether all that were refused a key have ended, as far as one can know: some were inside."""
        return key in self._inside and key not in self.counts

    def spare(self, key: bytes) -> None:
        """Record that an end was taken for that of who was refused a key."""
        self._spared[key] += 1

    def refusers(self, accounts: Iterable[Account]) -> dict[bytes, list[Account]]:
        """Return who was refused the keys of which an end was spared, and has not taken them back."""
        found: dict[bytes, list[Account]] = {}
        for one in accounts if self._spared else ():
            for key in one.refused & self._spared.keys():
                found.setdefault(key, []).append(one)
        return found

    def unknown_of(self, key: bytes) -> Counter[int]:
        """Return those that were refused a key and had closed before they were read, by their descriptors."""
        return self.unknown.get(key, Counter())

    def expect_again(self, key: bytes, ended: int, refused: int) -> None:
        """Count those in again that are still to end, where ends of who held the key were taken for theirs.

        Args:
            key: the key.
            ended: how many have ended that held it.
            refused: how many were refused it, and are known to be still to end.
        """
        # Where some are inside the process nobody knows how many of those have ended.
        uncounted = self._spared[key] if key in self._inside else max(0, refused - self.counts.get(key, 0))
        if again := min(ended, self._spared[key], uncounted):
            self._spared[key] -= again
            self.counts[key] = self.counts.get(key, 0) + again

    def settle(self, key: bytes) -> None:
        """Forget whose ends may have been spared for whom: nothing of the key is in doubt."""
        del self._spared[key]
        if key not in self.counts:
            self._inside.discard(key)
