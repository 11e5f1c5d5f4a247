"""What was published on several buses, and what each life of a node heard of it and was told to miss."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from simulation.ledger import check

COVERS = 12.0
"""Virtual seconds within which it is told that a message may be lost."""


class Account:
    """What one life of a node was given and told."""

    def __init__(self, name, bus, began_at):
        self.name, self.bus, self.began_at = name, bus, began_at
        self.ended_at = inf
        self.heard = []
        """When, and which number."""
        self.gaps = []
        """When, and of how many; None for nobody knows."""

    def covers(self, missing, published):
        """Tell whether it was told of messages that are missing."""
        unknown = [at for at, count in self.gaps if count is None]
        left = []
        for number in missing:
            at = published[number].at
            if not any(at - 0.5 <= told <= at + COVERS for told in unknown):
                left.append(number)
        if not left:
            return True
        begins = min(published[number].at for number in left)
        return sum(count for at, count in self.gaps if count is not None and at >= begins - 0.5) >= len(left)


class Published(NamedTuple):
    """A message that was published."""

    by: Account
    subject: str
    at: float
    reach: set[str]
    """The buses that forwarders which have begun join with its own; one that has yet to promises nothing."""


class Heard:
    """The accounts of one run, and what was published in it."""

    def __init__(self, were_ambiguous, mechanisms):
        self._were_ambiguous, self._mechanisms = were_ambiguous, mechanisms
        self.accounts, self.published = [], {}

    def check(self):
        """All came once and in order, or was told to be lost."""
        for account in self.accounts:
            self._check_order(account)
            for other in self.accounts:
                self._check_losses(account, other)

    def _check_order(self, account):
        """Messages of one node on one subject come in order and once, but while the ways are ambiguous."""
        newest = {}
        for at, number in account.heard:
            by, subject, published_at, _ = self.published[number]
            if newest.get((by, subject), 0) >= number:
                check(
                    self._were_ambiguous(published_at, at), "{}: {} of {} came twice or late",
                    account.name, number, by.name,
                )  # fmt: skip
                self._mechanisms["twice or late while forwarders disagree"] += 1
            else:
                newest[by, subject] = number

    def _check_losses(self, account, other):
        """What one that is heard published has come, or it is told that it is lost."""
        heard = {number for _, number in account.heard if self.published[number].by is other}
        if not heard:
            return
        ends = max(heard) if min(account.ended_at, other.ended_at) < inf else inf
        missing = [
            number
            for number, (by, subject, _, reach) in self.published.items()
            if by is other
            and account.bus in reach
            and subject.startswith("news.")
            and min(heard) < number < ends
            and number not in heard
        ]
        if missing:
            self._mechanisms["lost across, and told"] += len(missing)
            check(
                account.covers(missing, self.published), "{} misses {} of {} and was told of {}",
                account.name, missing[:5], other.name, account.gaps[:9],
            )  # fmt: skip
