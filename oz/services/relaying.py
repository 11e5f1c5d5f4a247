"""Account of numbered messages that come over links which break and are replaced."""

from __future__ import annotations

MOST_PUBLISHERS = 10_000
"""Publishers that are remembered. The one that was not heard for the longest time is forgotten first."""


class _Standing:
    """The numbers of one publisher that are accounted for: from `first` to before `expected`."""

    __slots__ = ("expected", "first")

    def __init__(self, sequence: int) -> None:
        self.first = self.expected = sequence


class Relaying:
    """Keeps account of numbered messages that come through links which break, and are replaced.

    A link that is new knows nothing of what the last one passed on. Numbers tell: of each publisher, every
    number is passed on or reported lost, once.
    """

    __slots__ = ("_standings",)

    def __init__(self) -> None:
        """Nobody was heard yet."""
        self._standings: dict[bytes, _Standing] = {}

    def take(self, origin: bytes, sequence: int, count: int) -> tuple[int, int]:
        """Record messages that came.

        Args:
            origin: their publisher.
            sequence: the number of the first.
            count: how many.

        Returns:
            How many were lost before them, and how many of them came before already and are to be skipped.
        """
        standing = self._find(origin, sequence)
        lost = max(0, sequence - standing.expected)
        seen = min(count, max(0, standing.expected - sequence))
        standing.expected = max(standing.expected, sequence + count)
        return lost, seen

    def lose(self, origin: bytes, sequence: int, count: int) -> int:
        """Record messages that a link says are lost.

        Returns:
            How many of them are not accounted for yet.
        """
        standing, end = self._find(origin, sequence), sequence + count
        ahead = max(0, end - max(standing.expected, sequence))
        behind = max(0, min(end, standing.first) - sequence)
        # What lies between two known stretches is lost too: nobody will bring it.
        ahead += max(0, sequence - standing.expected)
        standing.expected = max(standing.expected, end)
        standing.first = min(standing.first, sequence)
        return ahead + behind

    def reach(self, origin: bytes, sequence: int) -> int:
        """Record the number that comes next; return how many before it never came."""
        return self.take(origin, sequence, 0)[0]

    def _find(self, origin: bytes, sequence: int) -> _Standing:
        standing = self._standings.pop(origin, None)
        if standing is None:
            standing = _Standing(sequence)
            if len(self._standings) >= MOST_PUBLISHERS:
                del self._standings[next(iter(self._standings))]
        # The one heard last is the last in line.
        self._standings[origin] = standing
        return standing
