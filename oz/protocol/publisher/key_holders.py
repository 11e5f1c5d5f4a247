"""The holders of keys at a publisher: who may take what back.

ZeroMQ hands up every unsubscription that a peer sends, also of what only others have subscribed to. So each
key is remembered with the connections that hold it, and only those can take it back. When a connection ends,
libzmq itself takes back what it held, and does not say which connection that was.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection
from typing import NamedTuple

from oz.protocol.publisher.accounts import Account, IsAlive, KeyRefusals, Peer

_SCANNED = 64
"""One in so many holders of a key may have ended before all of them are looked at."""

SETTLED = 2
"""Looks, a second apart and each when all was read that had come, after which nothing comes any more of a
connection that had ended before them. Not seconds: a process that stands still does not hear of an end."""


class LeftBehind(NamedTuple):
    """A key of which something was left behind by connections that ended.

    Attributes:
        key: the key.
        less: how many less hold it.
        gone: the accounts that do not hold it any more.
    """

    key: bytes
    less: int
    gone: list[Account]


class _Doubt(NamedTuple):
    """Those who had ended at some look, and may have asked for a key more often than ZeroMQ takes it back.

    Attributes:
        looks: how many looks ago that was.
        known: of those that held it.
        unknown: of those that had closed before what they said was read, by their descriptors.
        refused: of those the ones that were refused it.
        refusers: the others that were refused it, where an end was taken for one of theirs.
    """

    looks: int
    known: tuple[Account, ...]
    unknown: Counter[int]
    refused: Counter[int]
    refusers: frozenset[Account]


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
    """Knows which connections hold each key of a publisher.

    Attributes:
        is_alive: tells whether a connection is still there.
        refusals: who was refused which key, and has not ended.
    """

    __slots__ = ("_doubts", "_holders", "is_alive", "refusals")

    def __init__(self, is_alive: IsAlive) -> None:
        """Start without keys.

        Args:
            is_alive: tells whether a connection is still there.
        """
        self.is_alive = is_alive
        # Most keys have one holder, which stands for itself: an object for each would take the most of it.
        self._holders: dict[bytes, Account | _Several] = {}
        self.refusals = KeyRefusals()
        # Keys of which more may be counted than ZeroMQ takes back: it takes back once what a connection has
        # asked for twice, and what was read late may have been said by another with the same descriptor.
        self._doubts: OrderedDict[bytes, _Doubt | None] = OrderedDict()

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
        if any(one.peer is not None and self.is_alive(one.peer) for one in others):
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
        if key in account.refused:
            # ZeroMQ takes back once what it was asked for twice.
            account.refused.remove(key)
            self._was_refused(key)
        found = self._holders.get(key)
        if peer is not None and peer.inode is None:
            # What it says next may be taken for that of another.
            self._doubts.setdefault(key, None)
        if found is None and account.peer is not None:
            self._holders[key] = account
            return True
        if not isinstance(found, _Several):
            found = self._holders[key] = _Several(found)
            self._doubts.setdefault(key, None)
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
        if account.peer is not None and self.holds(key, account, peer):
            # It takes that back too, and libzmq no more than once in the end.
            account.refused_again[key] = account.refused_again.get(key, 0) + 1
        elif key not in account.refused:
            self.refusals.add(key, account, peer)
            if account.peer is None and peer is not None:
                self._doubts.setdefault(key, None)

    def _was_refused(self, key: bytes) -> bool:
        """Tell whether one connection was refused a key that has not ended, and count it out."""
        was_refused = self.refusals.take(key)
        if self.refusals.is_unsure(key):
            # Another may be the one that has ended: until nothing is doubted.
            self._doubts.setdefault(key, None)
        return was_refused

    def take_back(self, key: bytes, account: Account) -> tuple[int, list[Account]]:
        """Take a key from a connection that asked for that.

        Returns:
            How many holders there are less by it, and the accounts that do not hold it any more.
        """
        if (again := account.refused_again.pop(key, 0)) > 0:
            if again > 1:
                account.refused_again[key] = again - 1
            return 0, []
        if key in account.refused:
            account.refused.remove(key)
            # Unless another has ended meanwhile, and was taken for this one.
            return (0, []) if self._was_refused(key) else self.end_one(key)
        found = self._holders.get(key)
        if found is account:
            del self._holders[key]
            return 1, [account]
        if not isinstance(found, _Several) or account not in found.known:
            if found is not None:
                # It may have been said by the one that had the descriptor before.
                self._doubts.setdefault(key, None)
            return 0, []
        less, gone = 0, found.find_ended(self.is_alive) if found.ended else []
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
        found, refused = self._holders.get(key), self.refusals.unknown.get(key)
        if isinstance(found, _Several) and descriptor in found.unknown:
            gone = found.find_ended(self.is_alive) if found.ended else []
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
        is_sure = isinstance(found, Account) and found.peer is not None and not self.is_alive(found.peer)
        # Whoever was refused it may have ended: rather an interest that lasts too long.
        if not is_sure and self._was_refused(key):
            self.refusals.spare(key)
            self._doubts.setdefault(key, None)
            return 0, []
        if found is None:
            return 1, []
        if not isinstance(found, _Several):
            del self._holders[key]
            return 1, [found]
        gone: list[Account] = []
        found.ended += 1
        if found.inside or found.ended > len(found.known) // _SCANNED:
            gone = found.find_ended(self.is_alive)
        if found.ended and found.inside:
            found.ended -= 1
            found.inside -= 1
        return 1, gone + self._settle(key, found)

    @property
    def has_doubts(self) -> bool:
        """Whether anything may have been left behind, now or later."""
        return bool(self._doubts)

    def sweep(self, most: int, accounts: Collection[Account] = ()) -> list[LeftBehind]:
        """Find what connections have left behind that asked for a key several times and ended long ago.

        Args:
            most: keys and their holders that are looked at; of the last key all.
            accounts: all that are known, of which some may have been refused keys.
        """
        found = []
        refusers = self.refusals.refusers(accounts)
        for _ in range(len(self._doubts)):
            if most <= 0:
                break
            key, doubt = self._doubts.popitem(last=False)
            holders = self._holders.get(key)
            most -= len(holders.known) + 1 if isinstance(holders, _Several) else 1
            doubt, left = self._look(key, doubt, refusers.get(key, []))
            if left is not None and (left.less or left.gone):
                found.append(left)
            if doubt is not None:
                self._doubts[key] = doubt
            else:
                self.refusals.settle(key)
        return found

    def _look(
        self, key: bytes, doubt: _Doubt | None, refusers: Collection[Account]
    ) -> tuple[_Doubt | None, LeftBehind | None]:
        """Look once more at what is doubted of a key; return what is from now on, and what is left behind."""
        left = None
        # Of who was refused it and has ended since it is not known yet whether that was read.
        is_late = doubt and any(self._has_ended(one) and one not in doubt.refusers for one in refusers)
        if doubt is not None and not is_late:
            doubt = doubt._replace(looks=doubt.looks + 1)
            if doubt.looks < SETTLED:
                return doubt, None
            left = self._end_doubt(key, doubt, refusers)
        return self._doubt(key, refusers), left

    def _doubt(self, key: bytes, refusers: Collection[Account]) -> _Doubt | None:
        """Note who has ended by now; None where nothing may be left behind."""
        holders, refused = self._holders.get(key), self.refusals.unknown_of(key)
        several = holders if isinstance(holders, _Several) else _Several(holders)
        ended = (one for one in several.known if self._has_ended(one))
        ended_refusers = frozenset(filter(self._has_ended, refusers))
        doubt = _Doubt(0, tuple(ended), several.unknown.copy(), refused.copy(), ended_refusers)
        return doubt if several is holders or doubt.known or doubt.refused else None

    def _has_ended(self, account: Account) -> bool:
        return account.peer is not None and not self.is_alive(account.peer)

    def _end_doubt(self, key: bytes, doubt: _Doubt, refusers: Collection[Account]) -> LeftBehind:
        """Take a key from all those who had ended.

        Args:
            key: the key.
            doubt: who they are.
            refusers: those that were refused it and have not taken it back, where that matters.
        """
        refused = self.refusals.unknown_of(key)
        for descriptor in (doubt.refused & refused).elements():
            _take_one(refused, descriptor)
            self._was_refused(key)
        found = self._holders.get(key)
        if isinstance(found, Account) and found in doubt.known:
            del self._holders[key]
            return LeftBehind(key, 1, [found])
        if not isinstance(found, _Several):
            return LeftBehind(key, 0, [])
        gone = found.find_ended(self.is_alive) if found.ended else []
        ended = [one for one in doubt.known if one in found.known]
        still = sum(one not in doubt.refusers for one in refusers) + refused.total()
        # Those who were refused it are still to end, and that takes it from nobody.
        self.refusals.expect_again(key, len(ended), still)
        less = sum(found.known.pop(one) for one in ended)
        closed = doubt.unknown & found.unknown
        found.unknown -= closed
        counted = min(found.ended, closed.total())
        found.ended -= counted
        return LeftBehind(key, less + closed.total() - counted, [*gone, *ended, *self._settle(key, found)])

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
