"""The keys that connections of a publisher were refused, which libzmq takes back all the same when one ends.

An end is told without saying whose it was. So it is counted how many were refused each key and have not
ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from oz.protocol.publisher.accounts import Account, Peer


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
