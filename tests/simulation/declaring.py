"""Runs of what a subscriber declares of one stream, next to a book of its subscriptions.

They come and go, one by one and in crowds; answers are late by the moments that the seed says. All that is
wanted is declared or waits for its turn, nothing is that nobody wants but what is to be taken back with
others, each number is used once, and what is due is so to the moment.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random

import oz
from oz.protocol.subscriber.declarations import Declarations
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.keys import DECLARATION, ID_SIZE, Declared, DeliveryOptions, parse_declaration
from simulation.ledger import check
from simulation.prompt import check_prompt
from simulation.schedule import Fault

STEPS, LOOKED_EVERY = 100, 4
AT_ONCE, BACK_AT_ONCE = 32, 4
"""Subscriptions that are declared one by one, and taken back so, before others are collected."""

PATIENCE, LONGEST = 0.5, 64.0
"""Seconds for an answer, at first and at most: they double each time."""

CHUNK, MOST_SMALL = 4_096, 64
"""Bytes of patterns in a chunk, and chunks of half as many that may stand side by side."""

GREETING = 10.0
MANY, SOON = 12, 0.3
"""Subscriptions that end together, and seconds in which nothing of them is left."""

ACTIONS = {
    "add": 30, "crowd": 2, "remove": 12, "flush": 4, "tidy": 6, "renew": 14, "split": 4, "part": 2,
    "settle": 2, "greet": 6,
}  # fmt: skip


class Asked:
    """A subscription, and what it declares."""

    def __init__(self, patterns, *, last_value):
        self.patterns, self.last_value = patterns, last_value


class Standing:
    """A chunk that stands: what it was declared as, and when an answer to it is late."""

    def __init__(self, key, said, patience):
        self.key, self.said, self.patience, self.seen_at = key, said, patience, None

    @property
    def is_small(self):
        return not self.said.wants_last_value and _size(self.said.patterns) < CHUNK // 2


def _size(patterns):
    return sum(len(one.text) + 3 for one in patterns)


def check_soon(random):
    """What is taken back with others is so soon, though nothing else happens."""
    streams, now, held = Streams(random.randbytes), 100.0, {}

    def take(changes):
        held.update(dict.fromkeys(changes.wanted))
        for key in changes.dropped:
            held.pop(key, None)

    some = [Subscribed([oz.compile(f"a.{number}")], None, print) for number in range(MANY)]
    for one in some:
        take(streams.add(one, DeliveryOptions(), last_value=False))
    take(streams.flush())
    for _ in range(8):
        now += SOON
        take(streams.renew(now))
    check(streams.next_deadline() > now + SOON, "something is due again and again")
    gone = random.sample(some, random.randrange(1, MANY))
    for one in gone:
        take(streams.remove(one))
        check(not one.active, "what has ended is active")
    due = streams.next_deadline()
    check(due <= now + SOON, "what nobody wants is taken back after {} s", due - now)
    take(streams.renew(now + SOON))
    found = {one.text for key in held if key[:3] == DECLARATION for one in parse_declaration(key).patterns}
    expected = {one.patterns[0].text.encode() for one in some if one not in gone}
    check(found == expected, "{} are declared, and {} are wanted", found, expected)


class DeclaringWorld:
    """The declarations of one stream.

    Attributes:
        asked: the subscriptions that stand.
        waiting: those of them that are to be declared with others.
        leaving: those that are to be taken back with others.
        standing: the chunks by number, as ZeroMQ was told.
    """

    def __init__(self, seed, faults=None, mechanisms=None):
        self.random = random = Random(seed + 25)
        self.mechanisms = Counter() if mechanisms is None else mechanisms
        kinds = random.choices(list(ACTIONS), list(ACTIONS.values()), k=STEPS)
        every = [Fault(at, kind, ("s1",), 0.0) for at, kind in enumerate(kinds)]
        self.faults = every if faults is None else faults
        self.name, self.now, self.last, self.count = b"n" * ID_SIZE, 100.0, 0, 0
        self.declarations = Declarations(self.name, DeliveryOptions())
        self.asked, self.waiting, self.leaving, self.standing = [], [], [], {}
        self.at_once, self.back_at_once = AT_ONCE, BACK_AT_ONCE
        self.greeted_at, self.awaited, self.greeting = None, inf, None

    def run(self):
        """Let everything happen, and check what must be so after each step."""
        for at, fault in enumerate(self.faults):
            getattr(self, f"_{fault.kind}")()
            self._check()
            if at % LOOKED_EVERY == 0:
                self._check_wanted()
        self._leave()
        check_soon(self.random)
        for _ in range(2):
            check_prompt(self.random)
        return self

    # what is told to ZeroMQ ------------------------------------------------------------------------------

    def _take(self, changes, patience=PATIENCE):
        """Have ZeroMQ told of changes; return what is new: numbers rise, and what is dropped was there."""
        new = []
        for key in changes.wanted:
            said = parse_declaration(key)
            check(said.chunk == self.last + 1, "the number {} comes after {}", said.chunk, self.last)
            check(said.stream == self.name and not said.is_closing, "another stream is declared")
            self.last = said.chunk
            if said.patterns:
                self.standing[said.chunk] = Standing(key, said, patience)
                new.append(said)
                is_lone = len(said.patterns) == 1
                check(is_lone or _size(said.patterns) <= CHUNK, "{} are too many for a chunk", said.chunk)
            else:
                check(self.greeting in (None, *changes.dropped), "two greetings stand")
                self.greeting = key
        for key in changes.dropped:
            said = parse_declaration(key)
            if said.patterns:
                check(said.chunk in self.standing, "{} is taken back, and does not stand", said.chunk)
                del self.standing[said.chunk]
        return new

    def _none(self, changes):
        check(not (changes.wanted or changes.dropped), "something changes, and nothing is to")

    def _patterns(self, some):
        return Counter(pattern for one in some for pattern in set(one.patterns))

    # what is asked for -----------------------------------------------------------------------------------

    def _add(self):
        self.count += 1
        length = self.random.choice((1, 8, 8, 200))
        texts = [f"{self.count}.{at}.{'x' * length}" for at in range(self.random.choice((1, 1, 2, 3)))]
        if self.random.random() < 0.1:
            texts.append("common")
        one = Asked(
            tuple(Declared(1, text.encode()) for text in texts), last_value=self.random.random() < 0.1
        )
        self.asked.append(one)
        changes = self.declarations.add(one, one.patterns, last_value=one.last_value)
        if one.last_value or self.at_once > 0:
            self.at_once -= not one.last_value
            (new,) = self._take(changes)
            is_right = new.patterns == one.patterns and new.wants_last_value == one.last_value
            check(is_right and not changes.dropped, "{} is declared as {}", one.patterns, new)
            return
        self.waiting.append(one)
        if sum(_size(each.patterns) for each in self.waiting) < CHUNK:
            self._none(changes)
        else:
            self._take_waiting(changes)

    def _crowd(self):
        for _ in range(self.random.choice((10, 40))):
            self._add()
            if self.random.random() < 0.03:
                self._flush()

    def _take_waiting(self, changes):
        new, waiting, self.waiting = self._take(changes), self.waiting, []
        found = {pattern for one in new for pattern in one.patterns}
        check(found == set(self._patterns(waiting)), "others are declared than were collected")
        check(not changes.dropped, "what stands is taken back for what was collected")
        check(all(not one.wants_last_value for one in new), "last values are asked for again")
        self.mechanisms["declared together"] += len(waiting) > len(new)

    def _flush(self):
        self.at_once = AT_ONCE
        changes = self.declarations.flush()
        if self.waiting:
            self._take_waiting(changes)
        else:
            self._none(changes)

    def _remove(self):
        if self.asked:
            one = self.random.choice(self.asked)
            self._let_go(one, self.declarations.remove(one))

    def _let_go(self, one, changes):
        """Expect that what one wants is taken back, now or with others."""
        self.asked.remove(one)
        if one in self.waiting:
            self.waiting.remove(one)
            self._none(changes)
            return
        self.leaving.append(one)
        if self.back_at_once > 0:
            self.back_at_once -= 1
            self._take_back(changes)
        else:
            self._none(changes)
            self.mechanisms["taken back later"] += 1

    def _take_back(self, changes):
        """Expect that all who leave are taken back, and what is left of their chunks is declared anew."""
        gone, self.leaving = set(self._patterns(self.leaving)), []
        shrunk = [
            each.key for each in self.standing.values() if gone.intersection(each.said.patterns) - _COMMON
        ]
        last_values = {
            p for each in self.standing.values() if each.said.wants_last_value for p in each.said.patterns
        }
        new = self._take(changes)
        check(set(shrunk) <= set(changes.dropped), "not all is taken back that nobody wants")
        for one in new:
            is_right = one.wants_last_value == (one.patterns[0] in last_values)
            check(is_right or _COMMON.intersection(one.patterns), "last values are asked for, or no longer")

    def _tidy(self):
        settled = [one for one in self.standing if self.random.random() < 0.98]
        small = {one for one in settled if self.standing[one].is_small}
        self.back_at_once = BACK_AT_ONCE
        changes = self.declarations.tidy(settled)
        if self.leaving:
            self._take_back(changes)
        elif len(small) > MOST_SMALL:
            expected = {pattern for one in small for pattern in self.standing[one].said.patterns}
            dropped = {parse_declaration(key).chunk for key in changes.dropped}
            check(dropped == small, "{} are small, and {} are put together", small, dropped)
            found = {pattern for one in self._take(changes) for pattern in one.patterns}
            check(found == expected, "what was small is put together, and is not the same")
            self.mechanisms["small chunks put together"] += 1
        else:
            self._none(changes)

    def _split(self):
        """Declare each subscription of a chunk by itself."""
        if not self.standing or self.leaving:
            return
        number = self.random.choice(list(self.standing))
        patterns = set(self.standing[number].said.patterns)
        members = self.declarations.members(number)
        found = {pattern for one in members for pattern in one.patterns}
        check(patterns <= found, "{} is for others", number)
        check(self.declarations.members(self.last + 1) == [], "a chunk that does not stand is for somebody")
        changes = self.declarations.split(number)
        if len(members) < 2:
            self._none(changes)
            return
        new = self._take(changes)
        check(len(new) == len(members), "of {} there are {}", len(members), len(new))
        check(number not in self.standing, "what was split stands on")

    # time ------------------------------------------------------------------------------------------------

    def _renew(self):
        """Have some stay without an answer: what is late is declared again at the moment at which it is."""
        self.now += self.random.choice((0.0, 0.25, 0.5, 1.0, 4.0))
        owed = {one: self.now - self.random.choice((0.0, 0.25, 8.0)) for one in self.standing}
        owed = {one: since for one, since in owed.items() if self.random.random() < 0.8}
        owed[self.last + 7] = 0.0
        refused = [one for one in owed if self.random.random() < 0.2]
        late, alone = [], []
        for number, since in owed.items():
            each = self.standing.get(number)
            if each is not None and each.seen_at is not None and self._late_at(each, since) <= self.now:
                (alone if each.said.wants_last_value or number in refused else late).append(each)
        for number in owed.keys() & self.standing.keys():
            if self.standing[number].seen_at is None:
                self.standing[number].seen_at = self.now
        changes = self.declarations.renew(owed, self.now, refused)
        dropped = {parse_declaration(key).chunk for key in changes.dropped}
        expected = {each.said.chunk for each in (*late, *alone)}
        check(dropped == expected, "{} are late, and {} are declared again", expected, dropped)
        is_whole = not self.leaving
        wanted = {pattern for each in (*late, *alone) for pattern in each.said.patterns}
        lasting = {each.said.patterns for each in alone if each.said.wants_last_value}
        new = self._take(changes)
        found = {pattern for one in new for pattern in one.patterns}
        check(found == wanted or not is_whole, "what is declared again is not the same")
        if is_whole:
            check(
                lasting == {one.patterns for one in new if one.wants_last_value}, "last values are asked for"
            )
        self._expect_patience(new, late, alone)
        self.leaving = [one for one in self.leaving if not self._is_gone(one)]

    def _expect_patience(self, new, late, alone):
        """What is declared again has twice the time for its answer, or twice the longest of several."""
        together = min(LONGEST, 2 * max((each.patience for each in late), default=0.0))
        own = {each.said.patterns[0]: min(LONGEST, 2 * each.patience) for each in alone}
        for one in new:
            found = [own[each] for each in one.patterns if each in own]
            self.standing[one.chunk].patience = found[0] if found else together
        self.mechanisms["declared again"] += len(new)

    def _is_gone(self, one):
        """Tell whether nothing of somebody who leaves stands: its chunk was declared again meanwhile."""
        there = {pattern for each in self.standing.values() for pattern in each.said.patterns}
        return not there.intersection(set(one.patterns) - _COMMON)

    def _late_at(self, each, since):
        return max(each.seen_at, since) + each.patience

    def _part(self):
        some = self.random.sample(self.asked, min(len(self.asked), self.random.choice((0, 1, 3))))
        changes, asked = self.declarations.part(some)
        for one in some:
            self.asked.remove(one)
            (self.waiting if one in self.waiting else self.leaving).append(one)
        gone = [one for one in self.waiting if one in some]
        self.waiting = [one for one in self.waiting if one not in gone]
        self.back_at_once -= min(self.back_at_once, sum(one not in gone for one in some))
        # Each of the first few is taken back by itself, and what is left of its chunk may be so again.
        self._take_in_turn(changes)
        self.leaving = []
        self.greeted_at, self.awaited = None, PATIENCE
        check(len(asked.wanted) == 1, "{} greetings are said", len(asked.wanted))
        self._take(asked)

    def _take_in_turn(self, changes):
        for key in changes.wanted:
            said = parse_declaration(key)
            check(said.chunk == self.last + 1, "the number {} comes after {}", said.chunk, self.last)
            self.last = said.chunk
            self.standing[said.chunk] = Standing(key, said, PATIENCE)
        for key in changes.dropped:
            check(parse_declaration(key).chunk in self.standing, "what does not stand is taken back")
            del self.standing[parse_declaration(key).chunk]

    def _settle(self):
        self.awaited = inf
        self.declarations.settle()

    def _greet(self):
        """Have a moment pass: a greeting is said when it is due, and at that moment."""
        self.now += self.random.choice((0.0, 0.5, 1.0, 5.0))
        if self.greeted_at is None:
            self.greeted_at = self.now
        is_due = self.now >= self.greeted_at + min(GREETING, self.awaited)
        changes = self.declarations.greet(self.now)
        check(bool(changes.wanted) == is_due, "a greeting is due: {}", is_due)
        if is_due:
            self._take(changes)
            self.greeted_at, self.awaited = self.now, 2 * self.awaited
            self.mechanisms["greeting said"] += 1

    # what must be so -------------------------------------------------------------------------------------

    def _check(self):
        declarations = self.declarations
        check(declarations.last == self.last, "the last is {}, not {}", declarations.last, self.last)
        check(declarations.newest == max(self.standing, default=0), "the newest is {}", declarations.newest)
        check(set(declarations.chunks) == set(self.standing), "{} stand", list(declarations.chunks))
        check(declarations.is_collecting == bool(self.waiting), "something is collected, or not")
        self._check_deadline()

    def _check_wanted(self):
        found = {pattern for each in self.standing.values() for pattern in each.said.patterns}
        wanted = set(self._patterns(one for one in self.asked if one not in self.waiting))
        check(wanted <= found, "{} are wanted, and not declared", wanted - found)
        left = found - wanted - set(self._patterns(self.leaving))
        check(not left, "{} are declared, and nobody wants them", left)

    def _check_deadline(self):
        """What is due next is so at the moment at which the book says."""
        owed = dict.fromkeys(self.random.sample(list(self.standing), min(3, len(self.standing))), self.now)
        found = self.declarations.next_deadline(owed)
        if self.leaving or self.waiting or self.greeted_at is None:
            check(found == -inf, "something waits, and is due at {}", found)
            return
        ends = [self.greeted_at + min(GREETING, self.awaited)]
        for number, since in owed.items():
            each = self.standing[number]
            ends.append(-inf if each.seen_at is None else self._late_at(each, since))
        check(found == min(ends), "{} is due, not {}", found, min(ends))

    def _leave(self):
        """Say goodbye: of all that stands nothing is left."""
        changes = self.declarations.leave()
        held = {each.key for each in self.standing.values()} | ({self.greeting} - {None})
        check(set(changes.dropped) == held, "what stands is not what is taken back in the end")
        (goodbye,) = map(parse_declaration, changes.wanted)
        is_right = goodbye.is_closing and goodbye.chunk == self.last + 1 and not goodbye.patterns
        check(is_right, "goodbye is said as {}", goodbye)
        left = self.declarations.chunks, self.declarations.newest, self.declarations.is_collecting
        check(not any(left), "of what was declared there is {}", left)


_COMMON = {Declared(1, b"common")}
"""What several ask for: one of them leaves, and others may want it still."""
