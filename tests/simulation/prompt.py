"""Laws of when a subscriber does what is due, whose engine sleeps until it says so: docs/wire.md, Answers."""

from __future__ import annotations

import oz
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.batch import CONTROL, head_end, head_start, pack_control
from oz.wire.denials import Denial, fields_of
from oz.wire.keys import DECLARATION, DeliveryOptions, parse_declaration
from simulation.ledger import check

NS = 1_000_000_000
ONE, OTHER = b"1" * 16, b"2" * 16
PATIENCE, SLACK = 0.5, 0.25
"""Seconds in which a chunk has its first answer, and that it takes beside that until it is said again."""

MANY = 40
"""So many subscriptions that some go together."""


class Asker:
    """A subscriber that does nothing before it is due, and publishers that answer when they are told to.

    Attributes:
        held: the declarations that ZeroMQ holds, by number.
    """

    def __init__(self, random):
        self.streams, self.now, self.held, self._names = Streams(random.randbytes), 100.0, {}, 0
        self.decoder = BatchDecoder(self.streams)
        self.decoder.answers.on_denial = bool

    def ask(self, count):
        """Ask for so many subjects; return the numbers of the chunks that are new."""
        before = set(self.held)
        for _ in range(count):
            self._names += 1
            one = Subscribed([oz.compile(f"a.{self._names}")], None, print)
            self._take(self.streams.add(one, DeliveryOptions(), last_value=False))
        if self.streams.is_collecting:
            self._take(self.streams.flush())
        return set(self.held) - before

    def _take(self, changes):
        for key in changes.wanted:
            if key[:3] == DECLARATION and (said := parse_declaration(key)).patterns:
                self.held[said.chunk] = said
        for key in changes.dropped:
            if key[:3] == DECLARATION:
                self.held.pop(parse_declaration(key).chunk, None)

    def hear(self, origin, live, refused=None):
        """Hear which chunks a publisher holds, and which it denies; or its heart, without any."""
        body = b"" if live is None else pack_control(
            live=sorted(live), refused=refused or {}, denied=fields_of(refused or {}), paths=1
        )  # fmt: skip
        (key,) = self.streams.by_key
        frame = head_start(key, CONTROL, origin, 1) + head_end(0, 0) + body
        self.decoder.accept([frame], round(self.now * NS))

    def sleep(self, seconds):
        """Sleep, but for what is due by what was said when the last was done."""
        ends = self.now + seconds
        while (due := self.streams.next_deadline()) is not None and due <= ends:
            self.now = max(self.now, due)
            self._take(self.streams.renew(self.now))
        self.now = ends


def check_prompt(random):
    """What is not answered is declared again in its time, and what is denied by itself, at once."""
    one, count = Asker(random), random.choice((1, 3, MANY))
    nothing = one.streams.renew(one.now)
    check(not (nothing.wanted or nothing.dropped), "nothing is asked for, and something is declared")
    one.ask(count)
    one.hear(ONE, one.held)
    one.sleep(2.0)
    _calm(one, (ONE,))
    random.choice((_ask_more, _come_anew, _deny))(one, random)


def _calm(one, origins):
    """Nothing is due for a while once all is answered."""
    for _ in range(2):
        # Once more for what is put together by then.
        for origin in origins:
            one.hear(origin, one.held)
        one.sleep(0.3)
    check(one.streams.next_deadline() > one.now + 1.0, "all is answered, and something is due at once")


def _ask_more(one, random):
    """What is asked for and nobody answers is asked for again."""
    new = one.ask(random.choice((1, 2)))
    _expect_again(one, new)


def _come_anew(one, random):
    """Another publisher comes, of which nothing was known, and knows of nothing that is asked for."""
    one.hear(OTHER, ())
    _expect_again(one, set(one.held))


def _expect_again(one, numbers):
    one.sleep(PATIENCE - 0.1)
    check(numbers <= one.held.keys(), "{} are declared again before their time", numbers - one.held.keys())
    one.sleep(0.1 + SLACK)
    left = numbers & one.held.keys()
    check(not left, "{} are not answered, and not declared again", left)


def _deny(one, random):
    """Of a chunk of several one is denied: each is declared by itself soon, and the others are not denied."""
    one.ask(MANY)
    _calm(one, (ONE,))
    together = {number for number, said in one.held.items() if len(said.patterns) > 1}
    check(together, "{} are declared one by one", MANY)
    number = random.choice(sorted(together))
    patterns = one.held[number].patterns
    text = random.choice(patterns).text.decode()
    one.hear(ONE, one.held, {number: Denial("no", "the rule", text)})
    one.sleep(SLACK)
    check(number not in one.held, "one of {} is denied, and all stay together", len(patterns))
    alone = {said.patterns for said in one.held.values() if len(said.patterns) == 1}
    missing = [each for each in patterns if (each,) not in alone]
    check(not missing, "{} are not declared by themselves", missing)
