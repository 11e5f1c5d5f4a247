"""Runs of one publisher's patterns: what they cost on a clock, and who is suspended for it.

Connections declare regexes of which each attempt takes a time that the seed says. What is promised is in
docs/prefixes.md; this adds up for itself what everybody has used.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import oz
from oz.errors import PatternTimeout
from oz.protocol.publisher import interest, pattern_time
from oz.protocol.publisher.accounts import Account, Peer
from oz.protocol.publisher.last_value_cache import ALLOWANCE, FOR_EACH, LastValueCache
from oz.protocol.publisher.pattern_time import PatternTime, Stopwatch
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.security.limits import Limits
from oz.subjects.index import buckets
from oz.wire.keys import Declaration, Declared, stream_key
from simulation.changing import changed
from simulation.hostile import REGEX
from simulation.ledger import check
from simulation.schedule import Fault

LOOK_UPS, CALM = 60, 25
"""Subjects that are looked up, and those behind them for which nothing takes long."""

AT_ONCE, ALL_AT_ONCE, LONGEST = 50, 20, 20
"""What one connection, all, and one pattern may use up at once at most, in what each subject gives: see
docs/prefixes.md."""

KEPT_AT_ONCE, ALL_KEPT_AT_ONCE = 20, 10
"""The same of what nobody loses anything for."""

COMES_BACK, LITTLE = 0.05, 0.01
"""How much of a second comes back with each second; with less than which part of what all have nobody is
touched."""

STALL, SUBJECTS = 0.3, 20
"""Seconds for which a thread has no processor now and then, and subjects that have last values."""

SHARES = (0.001, 0.005), (0.001, 0.003), (0.002, 0.005)
"""Seconds for the patterns of one connection, and of all."""

KEPT, SUSPENDED_AT_ONCE = 16, 5
"""Patterns that are passed over and kept, and of the others how many are suspended after one subject: so few
here that it matters."""

KINDS = {
    "modest": (2, (0.05, 0.1)),
    "fair": (4, (0.3, 0.5, 0.7)),
    "odd": (2, (0.1,) * 40 + (9.0,)),
    "dear": (8, (1.0, 3.0, 12.0)),
    "worst": (14, (4.0, 25.0, 90.0)),
}
"""For each kind of connection its patterns, and what they take together: modest ones a part of that with
which nobody is touched, others of what each subject gives to one."""

MOST_LOGGED = 10
"""Patterns that ran out of time of which a publisher logs each, once."""

ENDED = 1.5
"""Seconds after which what was taken back has ended."""

HARDLY = 1e-9
"""Seconds that are none."""


class Credit:
    """What somebody may use: `left` of the most that was promised, `least` of what nobody is touched for."""

    def __init__(self, share, most, least):
        self.left = self.most = share * most
        self.least = self.most_of_least = share * least

    def refill(self, seconds):
        self.left = min(self.most, self.left + seconds)
        self.least = min(self.most_of_least, self.least + seconds)

    def use(self, seconds):
        self.left -= seconds
        self.least -= seconds


class Connection(Credit):
    """One that declares patterns, and what it may use, by the promise."""

    def __init__(self, world, number, kind):
        self.kind, self.name = kind, b"%02d" % number + bytes(14)
        self.account = Account(Peer(number + 1, number + 1))
        self.key = stream_key(self.name)
        count, costs = KINDS[kind]
        self.texts = [rf"md\.(?:[a-z]|{kind}{number}|{one})+" for one in range(count)]
        part = LITTLE * world.together if kind == "modest" else world.each
        for text in self.texts:
            world.costs[text] = lambda: world.random.choice(costs) * part / count
        super().__init__(world.each, AT_ONCE, KEPT_AT_ONCE)
        self.chunk = self.overdrew = 0
        self.known = None
        others = [one for one in world.connections if len(one.texts) == count]
        self.is_twin = bool(others) and world.random.random() < 0.3
        if self.is_twin:
            self.texts = others[0].texts
            others[0].is_twin = True

    def declare(self, world):
        """Ask for all of its patterns, once more: in place of what stands, or once that has ended."""
        patterns = tuple(Declared(REGEX, text.encode()) for text in self.texts)
        self.chunk += 1
        changes = [(b"\1", self.chunk), (b"\0", self.chunk - 1)]
        for comes, number in reversed(changes) if world.random.random() < 0.5 else changes:
            frame = Declaration(self.name, number, patterns=patterns).encode()
            world.router.learn(comes + frame, world.passed, self.account)
            # What was taken back ends in a second.
            world.router.expire(world.passed + ENDED)
        if self.chunk == 1:
            world.router.learn(b"\1" + self.key, world.passed, self.account)
        check(not self.stream(world).suspended, "{} asks anew, and stays suspended", self.kind)

    def stream(self, world):
        return world.router.streams[self.key]

    def suspended(self, world):
        return {pattern.text for pattern in self.stream(world).suspended}


class PatternWorld(Credit):
    """A publisher that looks subjects up, and connections with patterns that take long.

    Attributes:
        faults: which connections there are, and when each declares its patterns again.
    """

    def __init__(self, seed, faults=None, mechanisms=None):
        self.random = random = Random(seed + 11)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        self.each, self.together = random.choice(SHARES)
        super().__init__(self.together, ALL_AT_ONCE, ALL_KEPT_AT_ONCE)
        self.hardly = 0.02 * self.each
        self.costs, self.tried = {}, {}
        self.warned, self.cut = [], set()
        self.worked = self.passed = 1_000.0
        self.looks = self.stalls = 0
        self.is_calm = False
        self.stats = PublisherStats()
        limits = Limits(pattern_time=self.each, all_pattern_time=self.together)
        self.time = PatternTime(Stopwatch(lambda: self.passed, self._look), limits)
        self.router = Router(b"o" * 16, self.stats, pattern_time=self.time)
        kinds = ["modest", "modest", *random.choices(list(KINDS), k=random.randint(1, 5))]
        self.connections = []
        for number, kind in enumerate(kinds):
            self.connections.append(Connection(self, number, kind))
        again = random.choice((0.01, 0.1, 0.3))
        every = [
            Fault(at, "declare", (str(one),), 0.0)
            for at in range(LOOK_UPS)
            for one in range(len(kinds))
            if random.random() < again
        ]
        self.faults = every if faults is None else faults

    def run(self):
        """Let everything happen, and check what must be so."""
        changes = (
            (buckets, "decides", self.decides),
            (interest, "_log", self),
            (pattern_time, "MOST_PASSED_OVER", KEPT),
            (pattern_time, "MOST_OVERDUE", SUSPENDED_AT_ONCE),
        )
        with changed(*changes):
            for one in self.connections:
                one.declare(self)
            for number in range(LOOK_UPS):
                for fault in self.faults:
                    if fault.at == number:
                        self.connections[int(fault.who[0])].declare(self)
                self._let_pass(self.random.choice((0.0, 0.0, 0.001, 0.1, 1.5)))
                self._look_up()
            self.is_calm = True
            for _ in range(CALM):
                self._look_up()
            self._check_calm()
            self.is_calm = False
            self._check_last_values()
        self._check_told()
        return self

    # the clocks ------------------------------------------------------------------------------------------

    def _look(self):
        self.looks += 1
        return self.worked

    def _let_pass(self, seconds):
        self.passed += seconds
        self._come_back(seconds)

    def _come_back(self, seconds):
        for one in (self, *self.connections):
            one.refill(COMES_BACK * seconds)

    def decides(self, pattern, subject, seconds):
        """Try a pattern, as the engine of regexes does, which moves the clocks."""
        asked = self.costs[pattern.text]() * (0.001 if self.is_calm else 1)
        cost = min(asked, seconds)
        self.tried[pattern.text] = cost, asked > seconds
        self.worked += cost
        self.passed += cost
        if self.random.random() < 0.002:
            # The thread had no processor for a while, which is nobody's fault.
            self.passed += STALL
            self.stalls += 1
        if asked > seconds:
            raise PatternTimeout(pattern.text, subject, seconds)
        return True

    # what is promised ------------------------------------------------------------------------------------

    def _look_up(self):
        router, stats = self.router, self.stats
        router.expire(self.passed)
        before = {one: one.suspended(self) for one in self.connections}
        served = {text for one in self.connections for text in one.texts if text not in before[one]}
        counted, self.looks = (stats.timed_out, stats.suspended), 0
        self.tried.clear()
        router.to_answer.clear()
        began = self.passed
        found = {one.key for one in router.find(b"md.ab", b"md.ab").streams}
        for one in (self, *self.connections):
            one.refill(self.together if one is self else self.each)
        check(self.tried.keys() <= served, "what is suspended was tried")
        missed = served - self.tried.keys() | {text for text, (_, is_cut) in self.tried.items() if is_cut}
        self.cut.update(text for text, (_, is_cut) in self.tried.items() if is_cut)
        count = stats.timed_out - counted[0]
        check(count == len(missed), "{} patterns ran out of time, and {} are counted", len(missed), count)
        self.mechanisms["pattern passed over"] += len(served) - len(self.tried)
        self.use(sum(cost for cost, _ in self.tried.values()))
        check(self.left > 0, "all have used {:.4f} s too much", -self.left)
        suspended = {one: one.suspended(self) - before[one] for one in self.connections}
        count = stats.suspended - counted[1]
        expected = sum(map(len, suspended.values()))
        check(count == expected, "{} patterns were suspended, and {} are counted", expected, count)
        self.mechanisms["pattern suspended"] += expected
        untried = sum(len(texts - self.tried.keys()) for texts in suspended.values())
        check(untried < SUSPENDED_AT_ONCE + len(self.connections), "{} were suspended untried", untried)
        for one in self.connections:
            one.use(sum(self.tried[text][0] for text in set(one.texts) - before[one] if text in self.tried))
        for one in self.connections:
            self._check_connection(one, set(one.texts) - before[one], suspended[one], untried)
            is_given = bool(set(one.texts) - before[one] - missed)
            check(is_given == (one.key in found), "{}: the message went elsewhere", one.kind)
        for one in (self, *self.connections):
            if one.least <= self.hardly:
                # What is left is too little for anything, and is taken for nothing.
                one.least = min(one.least, 0.0)
            # Who comes last on a subject has nothing back for what that took.
            one.left = min(one.most, one.left + COMES_BACK * (self.passed - began))

    def _check_connection(self, one, texts, suspended, untried):
        """It is served as was promised, and loses what it must."""
        costs = {text: self.tried[text][0] for text in texts if text in self.tried}
        own = sum(costs.values())
        check(one.left > 0, "{} has used {:.4f} s too much", one.kind, -one.left)
        is_dear = own > LITTLE * self.together
        has_overdrawn = one.least <= self.hardly or (is_dear and self.least <= self.hardly)
        passed_over = texts - costs.keys()
        check(one.kind != "modest" or not passed_over, "a modest one was passed over")
        may_pass = has_overdrawn or self.least <= self.hardly or any(
            other.least <= self.hardly for other in self.connections if texts & set(other.texts)
        )  # fmt: skip
        check(may_pass or not passed_over, "{} has used little, and was passed over", one.kind)
        for text in costs:
            cost, is_cut = self.tried[text]
            check(cost <= LONGEST * self.each, "one pattern took {:.4f} s", cost)
            check(not is_cut or may_pass or cost >= LONGEST / 2 * self.each, "{} was cut short", one.kind)
        if suspended:
            check(has_overdrawn or untried, "{} has used little, and lost patterns", one.kind)
            self._check_suspended(one, costs, suspended)
        kept = len(passed_over - suspended)
        if (known := self.time.accounts.get(one.account.name)) is not one.known:
            one.known, one.overdrew = known, 0
        most = KEPT >> one.overdrew
        is_full = untried >= SUSPENDED_AT_ONCE
        check(kept <= most or is_full or one.is_twin, "{} has {} passed over and kept", one.kind, kept)
        one.overdrew += bool(suspended & costs.keys())

    def _check_suspended(self, one, costs, suspended):
        """It loses the dearest of its patterns, no more than it must, and is told."""
        lost = [costs[text] for text in suspended if text in costs]
        kept = [cost for text, cost in costs.items() if text not in suspended]
        stream = one.stream(self)
        check(stream in self.router.to_answer and one.chunk in stream.refused, "{} is not told", one.kind)
        if not lost:
            return
        check(max(kept, default=0.0) <= min(lost) + HARDLY, "{} keeps what is dearer", one.kind)
        every = {text for other in self.connections for text in other.suspended(self)}
        rest = sum(cost for text, (cost, _) in self.tried.items() if text not in every)
        is_needed = sum(kept) + min(lost) > self.each - HARDLY or rest + min(lost) > self.together - HARDLY
        # Where both are used up, what others lose for their own is not taken into account.
        are_both = self.least <= self.hardly and any(other.least <= self.hardly for other in self.connections)
        are_several = any(other.is_twin for other in self.connections)
        check(is_needed or are_both or are_several, "{} lost more than it must", one.kind)
        fits = sum(kept) <= self.each + HARDLY or rest <= self.together + HARDLY
        check(fits, "{} keeps {:.4f} s of patterns", one.kind, sum(kept))

    def warning(self, text, *values):
        """Be told what a publisher logs."""
        self.warned.append(text % values)

    def _check_told(self):
        """The first pattern that is suspended is logged, and some that ran out of time, each once."""
        told = sum("is suspended" in one for one in self.warned)
        check(
            told == (self.stats.suspended > 0),
            "{} were suspended, {} were logged",
            self.stats.suspended,
            told,
        )
        told = len(self.warned) - told
        expected = min(len(self.cut), MOST_LOGGED)
        check(told == expected, "{} ran out of time, {} were logged", len(self.cut), told)

    def _check_calm(self):
        """Where nothing takes long for a while nobody is looked at more closely."""
        check(not self.time.is_tight, "nothing takes long, and each pattern is measured")
        check(not self.time.accounts and not self.time.poor, "nothing takes long, and somebody is known")
        check(self.looks <= 4, "nothing takes long, and it is measured {} times", self.looks)
        check(not self.time.skipped and not self.time.overdue, "something is left to be suspended")

    def _check_last_values(self):
        """To look for last values takes no longer than was promised, and finds all that is found in that."""
        cache = LastValueCache(lambda: self.passed)
        for number in range(2 * SUBJECTS):
            cache.put(b"md.%d" % (number % SUBJECTS), number, number)
        most = ALLOWANCE + FOR_EACH * SUBJECTS
        for one in self.connections:
            patterns = [oz.compile(text, "regex") for text in one.texts]
            self.tried.clear()
            began, stalls = self.passed, self.stalls
            found = cache.match(patterns)
            took = self.passed - began
            check(took <= most + STALL * (self.stalls - stalls) + HARDLY, "last values took {:.4f} s", took)
            numbers = found[1::2]
            check(numbers == sorted(numbers), "last values came in another order: {}", numbers)
            if took < most - HARDLY:
                expected = list(range(SUBJECTS, 2 * SUBJECTS))
                check(numbers == expected, "of {} last values {} were found", SUBJECTS, len(numbers))
            self.mechanisms["last values cut short"] += took >= most
