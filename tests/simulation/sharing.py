"""Runs of subscribers that share patterns, next to the book of `standings`.

What they ask for comes on the keys of the patterns, which others listen on too. A shared pattern stands for
as long as somebody listens on its key or has declared it; it has numbers of its own, and is counted of
connections beside the declarations.
"""

from __future__ import annotations

from oz.wire.batch import HEAD_SIZE, parse_body
from oz.wire.keys import PATTERN, Declared, DeliveryOptions, pattern_key
from simulation.ledger import check, matches
from simulation.standings import SUBJECTS, WEIGHTS, StandingWorld

TEXTS = {text: pattern_key(Declared(1, text.encode())) for text in WEIGHTS}


class SharingWorld(StandingWorld):
    """A publisher, and a few subscribers that share patterns.

    Attributes:
        numbers: the patterns that stand, and the next number of each.
    """

    deliveries = (DeliveryOptions(is_shared=True),) * 4

    def __init__(self, seed, faults=None, mechanisms=None):
        self.numbers = {}
        super().__init__(seed, faults, mechanisms)

    # what subscribers do ---------------------------------------------------------------------------------

    def _connect(self, one):
        before = set(one.connections)
        super()._connect(one)
        for connection in one.connections.keys() - before:
            self._ask(one, connection)

    def _declare(self, one):
        super()._declare(one)
        for connection in one.connections:
            self._ask(one, connection)

    def _take_back(self, one):
        super()._take_back(one)
        for connection in one.connections:
            self._ask(one, connection)

    def _ask(self, one, connection):
        """Ask for the keys of the patterns that are declared by a connection, and no longer for others."""
        said = one.connections[connection]
        needed = {TEXTS[text] for key in said & one.asked.keys() for text in one.asked[key][1]}
        for key in sorted(needed - said):
            self._say(one, connection, key)
        for key in sorted(one for one in said - needed if one.startswith(PATTERN)):
            said.discard(key)
            self._take(b"\0" + key, connection)

    # what a publisher does -------------------------------------------------------------------------------

    def _publish(self, _):
        """Publish something: it goes out once on each pattern that matches, under the next number of that."""
        self._stand()
        subject = self.random.choice(SUBJECTS)
        raw, self.published = subject.encode(), self.published + 1
        before = {text: len(self.sink.taken[key]) for text, key in TEXTS.items()}
        self.batches.send_alone(self.router.find(raw, raw), raw, b"%d" % self.published)
        for text, key in TEXTS.items():
            new = self.sink.taken[key][before[text] :]
            is_sent = text in self.numbers and matches(text, subject)
            check(len(new) == is_sent, "{!r} came {} times on {!r}", subject, len(new), text)
            for head, frames, size in new:
                number = self.numbers[text]
                check(head.sequence == number, "{} has the number {}", number, head.sequence)
                check(head.position == self.batches.position - 1, "its position is {}", head.position)
                body = list(parse_body(frames[0], size + HEAD_SIZE, head.count))
                check(body == [raw, b"%d" % self.published], "{} came of {!r}", body, subject)
                self.numbers[text] += 1
        self.mechanisms["sharing: published"] += 1

    def _skip(self, _):
        """Have some messages be lost before they come here: each may have been for any pattern."""
        self._stand()
        count = self.random.choice((1, 5, None))
        before = {text: self.router.streams[TEXTS[text]].epoch for text in self.numbers}
        self.batches.skip(count)
        for text in self.numbers:
            self.numbers[text] = 0 if count is None else self.numbers[text] + count
            is_new = self.router.streams[TEXTS[text]].epoch > before[text]
            check(is_new == (count is None), "{!r} is counted anew: {}", text, is_new)
        for one in self.subscribers if count is None else ():
            if one.is_known and not one.newest:
                # Nobody knows yet that it shares what it asks for.
                self._number_anew(one)

    # what must be so -------------------------------------------------------------------------------------

    def _stand(self):
        """Find what stands: what is declared, or has not ended, and on whose key somebody listens."""
        held = {key for one in self.subscribers for said in one.connections.values() for key in said}
        asked = {text for one in self.subscribers for text in one.texts(with_ending=True)}
        standing = [text for text, key in TEXTS.items() if text in asked or key in held]
        self.numbers = {text: self.numbers.get(text, 0) for text in standing}

    def _check(self):
        self._stand()
        router = self.router
        for one in self.subscribers:
            self._check_stream(one, router.streams.get(one.key))
        for text, key in TEXTS.items():
            is_known = key in router.streams
            check(is_known == (text in self.numbers), "{!r} is shared: {}", text, is_known)
            if is_known:
                sequence = router.streams[key].sequence
                check(sequence == self.numbers[text], "{!r} stands at {}", text, sequence)
        for subject in SUBJECTS:
            raw = subject.encode()
            found = sorted(one.key for one in router.find(raw, raw).streams)
            expected = sorted(TEXTS[text] for text in self.numbers if matches(text, subject))
            check(found == expected, "{!r} goes out on {}, not {}", subject, found, expected)
            said = router.count(raw, raw)
            check(said == len(expected), "{} are counted for {!r}, not {}", said, subject, len(expected))
        self._check_counts()

    def _check_counts(self):
        """Connections are counted what they began and declared, and the patterns that they shared first."""
        accounts, known = self.queue.accounts.values(), [one for one in self.subscribers if one.is_known]
        said = self.router.interest.pattern_count
        check(said == len(self.numbers), "{} patterns are counted, and there are {}", said, len(self.numbers))
        every = [text for one in known for chunk in one.chunks.values() for text in chunk.texts]
        every += self.numbers
        expected = len(every), sum(WEIGHTS[text] for text in every), len(known)
        names = "patterns", "pattern_weight", "own_streams"
        said = tuple(sum(getattr(one, name) for one in accounts) for name in names)
        check(said == expected, "{} are counted as {}, not {}", names, said, expected)
        lifetimes = self.router.lifetimes
        for counted, streams in (("beating", lifetimes.beating), ("in a crowd", lifetimes.crowd)):
            left = [one.key for one in streams if self.router.streams.get(one.key) is not one]
            check(not left, "{} have gone, and are {}", left, counted)
        said = sum(one.beating for one in accounts)
        check(said == len(lifetimes.beating), "{} are beating, not {}", said, len(lifetimes.beating))
