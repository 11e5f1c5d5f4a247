"""Detection of lost and repeated messages by their numbers. It continues when a multicast process is restarted."""

from __future__ import annotations

MAX_PUBLISHERS = 10_000
"""Maximum number of publishers whose numbers are kept. At this limit, a new publisher replaces the publisher that has
been silent for the longest time."""


class _Account:
    """Numbers of one publisher. Each number from `first` to `expected` - 1 was received or reported lost."""

    __slots__ = ("expected", "first")

    def __init__(self, sequence: int) -> None:
        self.first = self.expected = sequence


class Relaying:
    """Message numbers of all multicast publishers. Each number is received or reported lost only once.

    A new receiver process does not have the state of the previous process, but the numbers of a publisher continue.
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
            Number of messages that were lost directly before the arrived messages, and number of repeats at the start
            of the arrived messages.
        """
        account = self._find(origin, sequence)
        lost = max(0, sequence - account.expected)
        seen = min(count, max(0, account.expected - sequence))
        account.expected = max(account.expected, sequence + count)
        return lost, seen

    def lose(self, origin: bytes, sequence: int, count: int) -> int:
        """Record a loss that the receiver process has reported.

        Args:
            origin: id of the publisher.
            sequence: number of the first lost message.
            count: number of lost messages.

        Returns:
            Number of messages that are lost and were not reported before.
        """
        account, end = self._find(origin, sequence), sequence + count
        ahead = max(0, end - max(account.expected, sequence))
        behind = max(0, min(end, account.first) - sequence)
        # Messages between the expected number and `sequence` are lost too, because the process reports in order.
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
        # A dict keeps the order of insertion. Therefore the publisher that has been silent longest is first.
        self._accounts[origin] = account
        return account
