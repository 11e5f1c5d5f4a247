"""Runs with a stranger who speaks in the names of others: of subscribers, or of a publisher."""

from __future__ import annotations

from functools import lru_cache, partial
from random import Random

import zmq

from oz.errors import ProtocolError
from oz.protocol import declared as restored
from oz.protocol.declared import DIALECT_NUMBERS
from oz.protocol.publisher.pattern_time import PatternTime, Stopwatch
from oz.security.limits import Limits
from oz.wire.batch import CONTROL, MESSAGES, head_end, head_start, pack_array, pack_control
from oz.wire.keys import (
    DECLARATION,
    ID_SIZE,
    STREAM,
    Declaration,
    Declared,
    DeliveryOptions,
    parse_declaration,
    stream_key,
)
from simulation.ledger import check
from simulation.processes import NOBLOCK, Process
from simulation.schedule import BUSY
from simulation.world import DIRECT, FRONT, World

ACTS = 60
"""What a stranger does in a run."""

FORGED = b"forged"
"""What messages hold that are no publisher's."""

LAST_EPOCH = 2**32 - 1

AGAIN = 0.25, 0.02
"""Of what it does so much is to end its connections and begin anew; there are hasty ones and patient ones."""

LIMITS = Limits(streams=6, plain_subscriptions=8, patterns=60)
"""Of a publisher that the stranger asks for more: nobody else needs as much."""

PATTERNS = (b"a.*", b"*.x", b"b.y", b">", b"a.x", b"none.>", b"a.>.b", b"")
"""What it asks for; not all of it is valid."""


REGEX = DIALECT_NUMBERS["regex"]
DEAR, KINDS_OF_DEAR = 12, 12
"""Regexes that it declares at once, each of which is tried for each subject; and how many such sets there
are."""

# To compile them anew at each publisher of each run took a fifth of the time of these runs.
restored.regex_with_flags = lru_cache(maxsize=2 * DEAR * KINDS_OF_DEAR)(restored.regex_with_flags)

TICK = 0.0001
"""Seconds that pass with each look at the clock by which patterns are measured."""

LOOK_UPS, SETTLED, SHARE, MOST_TRIED = 60, 30, 0.007, 30
"""Subjects that are looked up in the end, the last of them, seconds that each of those takes, and how many
patterns are tried for it. In the last 30 the time of 30 and what was saved, that of ten more, may be used
up: 40 times 5 ms, and a twentieth that comes back with the time that passes."""


class Ticking:
    """A clock for patterns: a moment passes with each look, and so with each pattern that is tried."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += TICK
        return self.now


def check_pattern_time(publisher, clock):
    """In the long run those who ask for dear patterns take no more than their share of each message."""
    for number in range(LOOK_UPS):
        if number == LOOK_UPS - SETTLED:
            began = clock.now
        subject = b"a.q%d" % number
        publisher.router.find(subject, subject)
    took = (clock.now - began) / SETTLED
    check(took <= SHARE, "{}: patterns take {:.4f} s of each message", publisher.name, took)
    publisher.world.mechanisms["stranger: suspended"] += publisher.stats.suspended
    tried = sum(
        one.dialect == "regex" and one not in stream.suspended
        for stream in publisher.router.streams.values()
        for one in stream.patterns
    )
    check(tried <= MOST_TRIED, "{}: {} dear patterns are not suspended", publisher.name, tried)


class Stranger(Process):
    """A peer that knows the names of all streams, and says over connections of its own what nobody else does.

    It speaks with the publishers that it reaches directly: all behind one proxy are one connection.
    """

    def __init__(self, world, name):
        super().__init__(world, name)
        self._random = Random(world.seed + 7)
        self._again = self._random.choice(AGAIN)
        self._own = [world.random_bytes(ID_SIZE) for _ in range(2)]

    def begin(self):
        self.xsub = self.socket(zmq.XSUB, SNDHWM=0)
        self._said = set()
        for name in ("p1", "p2"):
            self.xsub.connect(DIRECT[name])

    def turn(self):
        while self.xsub.has_in():
            self.xsub.recv_multipart(NOBLOCK)

    def begin_end(self):
        self.close()

    def act(self):
        """Do something."""
        if not self.is_alive:
            return
        acts = (
            self._listen, self._say_goodbye, self._take_back, self._declare, self._spoil, self._ask,
            self._stop, self._ask_for_much, self._ask_dearly,
        )  # fmt: skip
        if self._random.random() < self._again:
            self._begin_anew()
        else:
            act = self._random.choice(acts)
            self.world.mechanisms[f"stranger: {act.__name__[1:]}"] += act() is not False

    def _say(self, comes, key):
        if comes and key in self._said:
            # What a connection asks for twice may last longer than that: docs/decisions/060.
            return False
        (self._said.add if comes else self._said.discard)(key)
        # Not as an XSUB does, which takes back only what it has asked for itself.
        self.xsub._behaviour._send_to_all(((b"\1" if comes else b"\0") + key,))
        return True

    def _victim(self):
        """Choose the keys that somebody has asked for; all publishers know them."""
        alive = [one for one in self.world.subscribers if one.is_alive and one.asked]
        return sorted(self._random.choice(alive).asked) if alive else []

    def _name(self):
        names = [key[len(STREAM) :] for key in self._victim() if key.startswith(STREAM)]
        return self._random.choice(names) if names else None

    def _listen(self):
        name = self._name()
        return name is not None and self._say(True, stream_key(name))

    def _say_goodbye(self):
        name = self._name()
        if name is None:
            return False
        if self._random.random() < 0.5:
            self._say(True, stream_key(name))
        number = self._random.choice((1, 5, 1_000))
        return self._say(True, Declaration(name, number, is_closing=True).encode())

    def _take_back(self):
        keys = [*self._victim(), *(text.encode()[:3] for text in self.world.plain.standing)]
        for key in self._random.sample(keys, min(3, len(keys))):
            self._say(False, key)
        return bool(keys)

    def _declare(self):
        """Declare something else in the name of another, under a number that it uses or is about to use."""
        declared = []
        for key in self._victim():
            try:
                declared.append(parse_declaration(key))
            except ProtocolError:
                continue
        # Who asks for more in the name of a member has messages picked for that: docs/security.md.
        declared = [one for one in declared if not one.delivery.group]
        if not declared:
            return False
        one = self._random.choice(declared)
        number = one.chunk + self._random.choice((0, 0, 1, 1, 2, 3))
        patterns = [Declared(self._random.choice((1, 1, 99)), text) for text in self._some()]
        self.world.declared_by_others.add((stream_key(one.stream), number))
        return self._say(
            True, Declaration(one.stream, number, one.delivery, patterns=tuple(patterns)).encode()
        )

    def _some(self):
        return self._random.sample(PATTERNS, self._random.choice((0, 1, 2)))

    def _spoil(self):
        """Say something valid of which a byte is another one, or that is cut short."""
        keys = self._victim() or [stream_key(self._own[0])]
        key = self._random.choice(keys)
        if key.startswith(DECLARATION) and parse_declaration(key).delivery.group:
            return False
        key = bytearray(key)
        place = self._random.randrange(len(key))
        if self._random.random() < 0.3:
            del key[place:]
        else:
            key[place] = self._random.randrange(256)
        return self._say(self._random.random() < 0.7, bytes(key))

    def _ask(self):
        """Ask for something itself."""
        name = self._random.choice(self._own)
        patterns = tuple(Declared(1, text) for text in self._some())
        group = self._random.choice(("", "theirs"))
        self._say(
            True,
            Declaration(
                name, self._random.randrange(9), DeliveryOptions(group=group), patterns=patterns
            ).encode(),
        )
        self._say(True, stream_key(name))

    def _ask_for_much(self):
        """Ask for more than one connection may, and take some of it back."""
        some = [self._random.randrange(99) for _ in range(self._random.choice((3, 12)))]
        for number in some:
            key = (
                b"none.%d" % number
                if number % 2
                else stream_key(b"%d" % number + bytes(ID_SIZE - len(str(number))))
            )
            self._say(True, key)
        for number in some[::3]:
            self._say(False, b"none.%d" % number)

    def _ask_dearly(self):
        """Ask for patterns that have to be tried for each subject."""
        name, first = self._own[0], DEAR * self._random.randrange(KINDS_OF_DEAR)
        texts = (b"(?:a|b)\\.[a-z.]*%d?[0-9]*" % (first + one) for one in range(DEAR))
        patterns = tuple(Declared(REGEX, text) for text in texts)
        self._say(True, Declaration(name, 10 + self._random.randrange(9), patterns=patterns).encode())
        self._say(True, stream_key(name))

    def _stop(self):
        """Take back something that it has said."""
        return bool(self._said) and self._say(False, self._random.choice(sorted(self._said)))

    def _begin_anew(self):
        """End its connections, at once behind what it says last; nothing of that may have been read."""
        self.world.mechanisms["stranger: begin anew"] += 1
        for key in self._victim()[:2]:
            self._say(True, key)
            self._say(False, key)
        # What is sent before the end may be read behind it.
        self._random.choice((self.kill, self.close))()
        self.start()


class Forger(Process):
    """A publisher that says in the name of another what that cannot have come to: nobody is to believe it.

    It speaks to the subscriber to whom nothing else happens, in the name of the publisher to whom nothing
    else does, once they know each other: who hears it first believes it at first.
    """

    def __init__(self, world, name):
        super().__init__(world, name)
        self._random = Random(world.seed + 8)
        self._keys = set()

    def begin(self):
        self.xpub = self.socket(zmq.XPUB, IMMEDIATE=1)
        self.xpub.connect(FRONT)

    def turn(self):
        while self.xpub.has_in():
            frame = self.xpub.recv(NOBLOCK)
            (self._keys.add if frame[:1] == b"\1" else self._keys.discard)(frame[1:])

    def begin_end(self):
        self.close()

    def act(self):
        """Say something on a stream, if its subscriber listens behind the proxy."""
        if not self.is_alive or len(self.world.quiet) < 2:
            return
        publisher, subscriber = (self.world.processes[one] for one in sorted(self.world.quiet))
        if not subscriber.is_alive or not subscriber.is_ready(publisher.origin):
            return
        for key, stream in subscriber.streams.by_key.items():
            if key in self._keys and publisher.origin in stream.sources and not stream.is_shared:
                self._forge(key, publisher.origin, stream.sources[publisher.origin].epoch)

    def _forge(self, key, origin, epoch):
        places = (epoch, 10**15), (LAST_EPOCH, 0), (LAST_EPOCH, 10**15), (epoch + (1 << 21), 3)
        name, count, body = self._random.choice(
            (
                ("control record", 0, b""),
                ("goodbye", 0, pack_control(bye=True)),
                ("message", 1, pack_array([b"a.x", FORGED])),
                ("answer", 0, pack_control(live=[], refused={1: "no", 2: "no"}, paths=1)),
            )
        )
        # An answer is believed in the epoch that stands, wherever in it.
        epoch, sequence = self._random.choice(places[1:] if name in ("answer", "goodbye") else places)
        head = head_start(key, MESSAGES if count else CONTROL, origin, epoch)
        frame = head + head_end(sequence, count) + body
        self.world.forged.add(frame)
        self.xpub.send(frame, NOBLOCK)
        self.world.mechanisms[f"forged: {name}"] += 1


class ForgedWorld(World):
    """A run with one who uses the names of publishers, until all faults are over."""

    def __init__(self, seed, faults=None, mechanisms=None):
        super().__init__(seed, faults, mechanisms)
        self.forger = Forger(self, "forger")

    def run(self):
        self.network.call_at(self._forms.uniform(0.0, 0.5), self.forger.start)
        for _ in range(2 * ACTS):
            self.network.call_at(self._forms.uniform(0.5, BUSY), self.forger.act)
        return super().run()

    def _end_all(self):
        self.forger.kill()
        super()._end_all()


class HostileWorld(World):
    """A run with a stranger, until all faults are over."""

    has_stranger = True

    def __init__(self, seed, faults=None, mechanisms=None):
        super().__init__(seed, faults, mechanisms)
        self.stranger = Stranger(self, "stranger")
        self.publishers[0].limits = LIMITS
        self.clocks = {one.name: Ticking() for one in self.publishers}

    def pattern_time_of(self, publisher):
        clock = self.clocks[publisher.name]
        return PatternTime(Stopwatch(clock, clock), publisher.limits)

    def run(self):
        self.network.call_at(self._forms.uniform(0.0, 0.5), self.stranger.start)
        for _ in range(ACTS):
            self.network.call_at(self._forms.uniform(0.1, BUSY), partial(self.stranger.act))
        return super().run()

    def _end_all(self):
        # One of the two that it reaches: to look up so much takes as long as a tenth of a run.
        publisher = self.publishers[self.seed // 10 % 2]
        if publisher.is_alive and not publisher.is_frozen:
            check_pattern_time(publisher, self.clocks[publisher.name])
        self.stranger.kill()
        super()._end_all()
