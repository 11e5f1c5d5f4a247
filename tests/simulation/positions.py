"""Positions: the same for everybody who gets a message, each given once, and rising along a stream."""

from __future__ import annotations

from simulation.ledger import fail


class Positions:
    """What positions messages came with, wherever they came.

    Attributes:
        of: by the number of the message.
        given: the number of the message, by origin and position.
    """

    def __init__(self):
        self.of = {}
        self.given = {}
        self._last = {}

    def check(self, ledger, message):
        """Check the position that a subscriber was given a message with; what has none was forged."""
        position, number = message.position, int(message.payload)
        if position is None:
            return
        if self.of.setdefault(number, position) != position:
            fail("{}: {} has position {}, and {} elsewhere", ledger.name, number, position, self.of[number])
        if self.given.setdefault((message.origin, position), number) != number:
            fail("{}: {} has a position that another message has", ledger.name, number)
        if self._may_fall(ledger):
            return
        place = ledger, message.origin
        if self._last.get(place, -1) >= position:
            fail("{}: position {} came after {}", ledger.name, position, self._last[place])
        self._last[place] = position

    @staticmethod
    def _may_fall(ledger):
        """Tell whether something may be given late: docs/wire.md says what."""
        delivery = ledger.delivery
        is_late = delivery.group or delivery.overflow == "conflate" or ledger.subscriber.last_value
        # Then a record of another path, or of somebody else, may have come first.
        return is_late or ledger.decoder.stats.contradictions > 0
