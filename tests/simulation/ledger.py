"""What one life of a subscriber was given and told, and what is said when it was not right."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache


@cache
def matches(text, subject):
    """Tell whether a pattern matches a subject: the oracle's own reading of the nats dialect."""
    tokens, parts = text.split("."), subject.split(".")
    for place, token in enumerate(tokens):
        if token == ">":
            return len(parts) > place
        if place >= len(parts) or token not in ("*", parts[place]):
            return False
    return len(tokens) == len(parts)


class Violation(AssertionError):
    """Something that must be so is not.

    Attributes:
        kind: what, without saying who.
    """

    def __init__(self, text, kind):
        super().__init__(text)
        self.kind = kind


def check(condition, text, *values):
    if not condition:
        fail(text, *values)


def fail(text, *values):
    raise Violation(text.format(*values), text)


class Ledger:
    """What one life of a subscriber was given and told."""

    def __init__(self, oracle, subscriber):
        self.oracle, self.subscriber = oracle, subscriber
        self.name = f"{subscriber.name}/{subscriber.life}"
        self.streams, self.decoder = subscriber.streams, subscriber.decoder
        self.delivery = subscriber.delivery
        self.messages = []
        self.gaps = []
        self.standing, self.ended, self.drained = [], set(), {}
        self.since = {}
        self.is_over = False
        self.missed, self.says_lost = Counter(), {}
        self.ids = set()
        self.unwanted = []
        self.answered = {}
        self.side, self.beside = None, 0
        self.spoiled = self.counted = 0
        self.by_origin = defaultdict(list)
        self.ready = {}
        self._fitting, self.routes = set(), {}

    @property
    def key(self):
        """The key that its messages come on."""
        keys = [key for key, stream in self.streams.by_key.items() if not stream.only_answers]
        return keys[0] if keys else self.last_key

    def numbers(self):
        """Return the numbers of all that it was given."""
        return {number for messages in self.by_origin.values() for number, _, _ in messages}

    def subscribed(self, text):
        self.standing.append(text)
        self._changed()
        self.since.setdefault(text, self.oracle.world.network.now)

    def asked_for(self, subject, at):
        """Tell whether something was asked for that matches a subject by some time, and still is."""
        return any(self.since[text] <= at and matches(text, subject) for text in self.standing)

    def unsubscribed(self, text):
        self.standing.remove(text)
        self._changed()
        self.ended.add(text)

    def _changed(self):
        """Forget what was found of routes and subjects, as other patterns stand now."""
        self._fitting.clear()
        self.routes.clear()

    def _fits(self, subject):
        """Tell whether a subject matches something that is asked for; remember what does."""
        if subject not in self._fitting and any(matches(text, subject) for text in self.standing):
            self._fitting.add(subject)
        return subject in self._fitting

    def begins_drain(self, text):
        """Nothing more is asked for; what was published before still comes."""
        self.drained[text] = self.oracle.world.network.now, frozenset()

    def ends_drain(self, text, answered):
        """Nothing comes any more: those that have answered have sent all that was published before."""
        self.drained[text] = self.drained[text][0], answered
        self.standing.remove(text)
        self._changed()

    def left(self):
        self.is_over = True
        self.last_key = self.key

    def was_answered(self, number):
        """Write down which publishers have answered the goodbye, and so have sent all they had.

        To a stranger who has used its number they may have answered that.
        """
        if (self.last_key, number) in self.oracle.world.declared_by_others:
            return
        sources = self.streams.by_key[self.last_key].sources
        self.answered = {origin: one.epoch for origin, one in sources.items() if number in one.answered}

    def given(self, message):
        oracle = self.oracle
        subject, number, gap = message.subject, int(message.payload), message.gap
        origin, form = oracle.origins[number], oracle.forms[number]
        if message.origin != origin:
            fail("{}: message {} says it is of another publisher", self.name, number)
        if oracle.subjects[number] != subject:
            fail("{}: message {} came as {!r}", self.name, number, subject)
        if subject not in self._fitting and not self._fits(subject):
            fail("{}: {!r} matches nothing that it asks for", self.name, subject)
        if form in ("rich", "request"):
            check(message.headers == {"number": number}, "{}: {} has {}", self.name, number, message.headers)
        if form == "frames":
            check(len(message.frames) == 3, "{}: {} has the frames {}", self.name, number, message.frames)
        if self.streams.dedupe and message.message_id is not None:
            check(
                message.message_id not in self.ids,
                "{}: {} came again, as {}",
                self.name,
                message.message_id,
                number,
            )
            self.ids.add(message.message_id)
        self.missed[origin] += gap or 0
        self.says_lost[number] = gap
        reply_to = message.reply_to
        if (reply_to is not None) != (form == "request"):
            fail("{}: {} is to be answered to {!r}", self.name, number, reply_to)
        self.by_origin[origin].append((number, message.sequence, oracle.time.now))
        oracle.positions.check(self, message)

    def withdrawn(self, message):
        """A message that waited is not wanted any more: it takes along what it says was lost before it."""
        number = int(message.payload)
        self.unwanted.append(number)
        self.missed[message.origin] += message.gap or 0
        self.says_lost[number] = message.gap

    def gap(self, subscriber, gap):
        stream = self.streams.by_key[self.key]
        source = stream.sources[gap.origin]
        known = tuple(stream.table)
        check(
            self.delivery.is_shared or gap.subscription is (known[0] if len(known) == 1 else None),
            "{}: a loss is told of {}", self.name, gap.subscription,
        )  # fmt: skip
        self.gaps.append((gap.origin, source.epoch, gap.sequence, gap.count))
        self.oracle.mechanisms["gap with a count" if gap.count else "gap without a count"] += 1
