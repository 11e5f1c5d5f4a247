"""Oracle of the simulation: offered, delivered and lost messages."""

from collections import Counter, defaultdict


class Violation(AssertionError):
    """A promise that a schedule broke."""


class Account:
    """Messages of one stream of one epoch."""

    __slots__ = ("delivered", "dropped", "gaps", "last_position", "offered", "places", "unwanted")

    def __init__(self):
        self.offered = 0
        self.places = {}
        self.delivered = self.gaps = self.dropped = self.unwanted = 0
        self.last_position = -1

    @property
    def seen(self):
        return self.delivered + self.gaps + self.dropped + self.unwanted


class Ledger:
    """Accounts of all epochs, and the messages of redelivering groups."""

    def __init__(self):
        self.accounts = defaultdict(lambda: defaultdict(Account))
        self.lost_unknown = set()
        self.legitimate_ends = set()
        self.group_open = defaultdict(dict)
        self.group_drops = Counter()
        self.statistics = Counter()

    def offered(self, stream, body, flags):
        """Record a body that a session received."""
        account = self.accounts[stream.session.epoch][stream.number]
        for position in body.positions:
            account.places.setdefault(position, []).append(account.offered)
            account.offered += 1
        group = stream.group
        if group is not None and stream.redelivers and stream.options.handled and not flags:
            pending = self.group_open[group.name]
            for position in body.positions:
                pending[position] = None

    def moved(self, epoch, number, count):
        """Record messages that left a backlog for another member: they never had a number."""
        self.accounts[epoch][number].offered -= count

    def handled(self, group, position):
        """Record that a handler of a group has returned."""
        self.group_open[group].pop(position, None)

    def excuse(self, group):
        """Record that a group has no member: its messages may be lost."""
        self.group_open[group].clear()
