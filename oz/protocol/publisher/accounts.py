"""The accounts of connections at a publisher: what each holds, and who may take what back.

ZeroMQ hands up every unsubscription that a peer sends, also of what only others have subscribed to. So each
key is remembered with the connections that hold it, and only those can take it back. When a connection ends,
libzmq itself takes back what it held, and does not say which connection that was.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection
from math import inf
from typing import Any, NamedTuple

from oz.protocol.publisher.backlog import Backlog

_SCANNED = 64
"""One in so many holders of a key may have ended before all of them are looked at."""


class Peer(NamedTuple):
    """The connection that a frame came over, as its socket tells.

    Attributes:
        descriptor: its file descriptor.
        inode: what tells it from others that have that number at other times; None when it is closed already.
        key: the public key that the peer has proved to have; None without CURVE.
    """

    descriptor: int
    inode: int | None
    key: str | None = None


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
        backlog: what waits to be sent to it.
        is_limited: whether limits hold for it: not for what is inside the process.
        refused: the keys that it asked for in vain.
        read: the bytes of its frames that were read, with what goes with them over the wire.
        uncounted: what ZeroMQ has read of it besides, and at which `read` that was found.
        has_ended: it stands for all that have ended, and what they take back by that.
    """

    __slots__ = (
        "backlog", "beating", "has_ended", "is_limited", "key", "key_bytes", "keys", "own_streams", "pattern_weight",
        "patterns", "peer", "plain", "plain_bytes", "read", "refused", "refused_bytes", "streams",
        "uncounted", "waiting", "waiting_bytes",
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
        self.key = key if peer is None else peer.key
        self.is_limited = is_limited or peer is not None
        self.has_ended = False
        self.backlog = Backlog(unsent)
        self.refused: set[bytes] = set()
        self.read, self.uncounted = 0, (0, 0)
        self.keys = self.streams = self.plain = self.plain_bytes = 0
        self.key_bytes = self.refused_bytes = 0
        self.own_streams = self.beating = self.patterns = self.pattern_weight = 0
        self.waiting: deque[Any] = deque()
        self.waiting_bytes = 0

    @property
    def name(self) -> bytes:
        """A name of the connection; empty where ZeroMQ does not tell."""
        return b"" if self.peer is None else b"%d:%d" % (self.peer.descriptor, self.peer.inode or 0)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left of it."""
        return not (self.keys or self.waiting or self.own_streams or self.patterns)

    def hold(self, size: int, *, is_stream: bool, is_plain: bool, by: int = 1) -> None:
        """Count a key of so many bytes in, or out with `by` -1."""
        self.keys += by
        self.streams += by * is_stream
        if is_plain:
            self.plain += by
            self.plain_bytes += by * size
        else:
            self.key_bytes += by * size


class _Several:
    """The holders of one key that several hold, or did, or that was asked for several times.

    Attributes:
        known: the accounts, and how often each asked for it: a proxy that is verbose passes on each time.
        inside: how many inside the process, of which nothing is told.
        unknown: of those that had closed before what they said was read how many, by their descriptors.
        ended: how many of the known have ended, and it was not found out which.
    """

    __slots__ = ("ended", "inside", "known", "unknown")

    def __init__(self, known: Account | None) -> None:
        self.known: dict[Account, int] = {} if known is None else {known: 1}
        self.inside = 0
        self.unknown: Counter[int] = Counter()
        self.ended = 0

    @property
    def count(self) -> int:
        """The number of times that it is held."""
        return self.inside + self.unknown.total() + sum(self.known.values()) - self.ended

    def find_ended(self, is_alive: IsAlive) -> list[Account]:
        """Find out which have ended, as far as that is known by now; return those that hold it no more.

        Whoever holds it several times holds it once less by one end: what was read late may be of others.
        """
        gone = []
        for one in [one for one in self.known if one.peer is not None and not is_alive(one.peer)]:
            less = min(self.ended, self.known[one])
            self.ended -= less
            self.known[one] -= less
            if not self.known[one]:
                del self.known[one]
                gone.append(one)
        if not self.inside and self.ended >= self.unknown.total():
            # They are of none else then.
            self.ended -= self.unknown.total()
            self.unknown.clear()
        return gone


class KeyHolders:
    """The holders of all keys."""

    __slots__ = ("_holders", "_is_alive", "_refused", "_refused_unknown")

    def __init__(self, is_alive: IsAlive) -> None:
        """Start without keys.

        Args:
            is_alive: tells whether a connection is still there.
        """
        self._is_alive = is_alive
        # Most keys have one holder, which stands for itself: an object for each would take the most of it.
        self._holders: dict[bytes, Account | _Several] = {}
        self._refused: dict[bytes, int] = {}
        self._refused_unknown: dict[bytes, Counter[int]] = {}

    def __len__(self) -> int:
        """Count the keys that anybody holds."""
        return len(self._holders)

    def held(self) -> list[bytes]:
        """Return the keys that anybody holds."""
        return list(self._holders)

    def accounts(self, key: bytes) -> list[Account]:
        """Return the connections that hold a key, as far as they are known."""
        found = self._holders.get(key)
        if found is None:
            return []
        return list(found.known) if isinstance(found, _Several) else [found]

    def holds(self, key: bytes, account: Account, peer: Peer | None) -> bool:
        """Tell whether a connection holds a key; those inside the process are believed that they do."""
        found = self._holders.get(key)
        if account.peer is None:
            is_unknown = isinstance(found, _Several) and peer is not None and peer.descriptor in found.unknown
            return peer is None or is_unknown
        return found is account or (isinstance(found, _Several) and account in found.known)

    def hold_alone(self, key: bytes, accounts: Collection[Account]) -> bool:
        """Tell whether nobody but some connections holds a key, as far as that is known.

        Args:
            key: the key.
            accounts: of the connections.
        """
        found = self._holders.get(key)
        if not isinstance(found, _Several):
            return found is None or found in accounts
        others = {one: times for one, times in found.known.items() if one not in accounts}
        if any(one.peer is not None and self._is_alive(one.peer) for one in others):
            return False
        left = found.inside + found.unknown.total() + sum(others.values()) - found.ended
        several = {one.is_limited for one in accounts if one.peer is None}
        if True in several:
            # All of which nothing was read are closed by now.
            left -= found.unknown.total()
        if False in several:
            left -= min(1, found.inside)
        return left <= 0

    def add(self, key: bytes, account: Account, peer: Peer | None) -> bool:
        """Record that a connection has asked for a key; tell whether it is known and did not hold it before.

        Args:
            key: the key.
            account: of the connection.
            peer: the connection; None inside the process, where nothing is told of it.
        """
        found = self._holders.get(key)
        if found is None and account.peer is not None:
            self._holders[key] = account
            return True
        if not isinstance(found, _Several):
            found = self._holders[key] = _Several(found)
        if account.peer is None:
            if peer is None:
                found.inside += 1
            else:
                found.unknown[peer.descriptor] += 1
            return False
        before = found.known.get(account, 0)
        found.known[account] = before + 1
        return not before

    def refuse(self, key: bytes, account: Account, peer: Peer | None) -> None:
        """Record that a connection was refused a key: when it ends, libzmq takes that back all the same."""
        if key not in account.refused:
            if account.peer is not None:
                account.refused.add(key)
            elif peer is not None:
                self._refused_unknown.setdefault(key, Counter())[peer.descriptor] += 1
            self._refused[key] = self._refused.get(key, 0) + 1

    def _was_refused(self, key: bytes) -> bool:
        """Tell whether one connection was refused a key that has not ended, and count it out."""
        count = self._refused.pop(key, 0)
        if count > 1:
            self._refused[key] = count - 1
        else:
            self._refused_unknown.pop(key, None)
        return count > 0

    def take_back(self, key: bytes, account: Account) -> tuple[int, list[Account]]:
        """Take a key from a connection that asked for that.

        Returns:
            How many holders there are less by it, and the accounts that do not hold it any more.
        """
        if key in account.refused:
            account.refused.remove(key)
            # Unless another has ended meanwhile, and was taken for this one.
            return (0, []) if self._was_refused(key) else self.end_one(key)
        found = self._holders.get(key)
        if found is account:
            del self._holders[key]
            return 1, [account]
        if not isinstance(found, _Several) or account not in found.known:
            return 0, []
        less, gone = 0, found.find_ended(self._is_alive) if found.ended else []
        count = found.known.get(account, 0)
        if count:
            found.known[account] = count - 1
            if count == 1:
                del found.known[account]
                gone.append(account)
            if found.ended:
                # It may be the one that was taken to have ended: rather an interest that lasts too long.
                found.ended -= 1
            else:
                less = 1
        return less, gone + self._settle(key, found)

    def take_back_closed(self, key: bytes, descriptor: int) -> tuple[int, list[Account]]:
        """Take a key from a connection that asked for that, and had closed before anything of it was read.

        Returns:
            The same as `take_back`.
        """
        found, refused = self._holders.get(key), self._refused_unknown.get(key)
        if isinstance(found, _Several) and descriptor in found.unknown:
            gone = found.find_ended(self._is_alive) if found.ended else []
            less = 0
            if descriptor in found.unknown:
                _take_one(found.unknown, descriptor)
                # It may be the one that was taken to have ended.
                less, found.ended = (0, found.ended - 1) if found.ended else (1, 0)
            return less, gone + self._settle(key, found)
        if refused is not None and descriptor in refused:
            _take_one(refused, descriptor)
            self._was_refused(key)
        return 0, []

    def end_one(self, key: bytes) -> tuple[int, list[Account]]:
        """Take a key from a connection that has ended, or of which nothing is told.

        Returns:
            How many holders there are less by it, and the accounts that do not hold it any more, as far as
            that is known.
        """
        found = self._holders.get(key)
        is_sure = isinstance(found, Account) and found.peer is not None and not self._is_alive(found.peer)
        # Whoever was refused it may have ended: rather an interest that lasts too long.
        if not is_sure and self._was_refused(key):
            return 0, []
        if found is None:
            return 1, []
        if not isinstance(found, _Several):
            del self._holders[key]
            return 1, [found]
        gone: list[Account] = []
        found.ended += 1
        if found.inside or found.ended > len(found.known) // _SCANNED:
            gone = found.find_ended(self._is_alive)
        if found.ended and found.inside:
            found.ended -= 1
            found.inside -= 1
        return 1, gone + self._settle(key, found)

    def _settle(self, key: bytes, found: _Several) -> list[Account]:
        """Forget a key that nobody holds any more; return those who were not known to have ended."""
        if found.count > 0:
            return []
        del self._holders[key]
        return list(found.known)


def _take_one(counter: Counter[int], descriptor: int) -> None:
    counter[descriptor] -= 1
    if not counter[descriptor]:
        del counter[descriptor]
