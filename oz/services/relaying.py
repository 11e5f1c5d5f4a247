"""Detection of lost and repeated messages by their numbers, over several successive links."""

from __future__ import annotations

MAX_PUBLISHERS = 10_000
"""Maximum number of publishers whose numbers are kept. Beyond it, the publisher that was silent longest is removed."""


class _Account:
    """Numbers of one publisher. Each number from `first` to `expected` - 1 was passed on or reported lost."""

    __slots__ = ("expected", "first")

    def __init__(self, sequence: int) -> None:
        self.first = self.expected = sequence


class Relaying:
    """Message numbers of all publishers. Each number is passed on or reported lost only once.

    A new link does not know the state of the previous link, but the numbers of a publisher continue.
    """

    __slots__ = ("_accounts",)

    def __init__(self) -> None:
        self._accounts: dict[bytes, _Account] = {}

    def take(self, origin: bytes, sequence: int, count: int) -> tuple[int, int]:
        """Record the arrival of messages.

        Args:
            origin: id of the publisher.
            sequence: number of the first message.
            count: number of messages.

        Returns:
            Number of messages that were lost directly before, and number of repeats at the start of these messages.
        """
        account = self._find(origin, sequence)
        lost = max(0, sequence - account.expected)
        seen = min(count, max(0, account.expected - sequence))
        account.expected = max(account.expected, sequence + count)
        return lost, seen

    def lose(self, origin: bytes, sequence: int, count: int) -> int:
        """Record messages that a link reports as lost.

        Returns:
            The number of messages that are lost and were not reported before.
        """
        account, end = self._find(origin, sequence), sequence + count
        ahead = max(0, end - max(account.expected, sequence))
        behind = max(0, min(end, account.first) - sequence)
        # Messages between two known ranges of numbers are lost too, because links deliver in order.
        ahead += max(0, sequence - account.expected)
        account.expected = max(account.expected, end)
        account.first = min(account.first, sequence)
        return ahead + behind

    def _find(self, origin: bytes, sequence: int) -> _Account:
        account = self._accounts.pop(origin, None)
        if account is None:
            account = _Account(sequence)
            if len(self._accounts) >= MAX_PUBLISHERS:
                del self._accounts[next(iter(self._accounts))]
        # A dict keeps the order of insertion: the oldest publisher is the first.
        self._accounts[origin] = account
        return account
