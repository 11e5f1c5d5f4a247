"""Laws of who leaves while messages are on their way to it: docs/sockets.md, and docs/wire.md, Grace."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from oz.protocol.publisher.accounts import Account, Peer
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.records import Records
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.wire.keys import ID_SIZE, Declaration, Declared, DeliveryOptions, stream_key
from simulation.books import DELAY, GRACE, Taker
from simulation.ledger import check

SUBJECT = b"a"


class Subscriber:
    """One stream, and what was declared on it by its one connection."""

    def __init__(self, publisher, number, delivery=None):
        self.publisher, self.delivery = publisher, delivery or DeliveryOptions()
        self.name = (b"%d" % number).ljust(ID_SIZE)
        self.key, self.last, self.held = stream_key(self.name), 0, []
        self.account = Account(Peer(number, number))

    def listen(self, *texts):
        """Ask for patterns; return the declaration."""
        self._tell(self.key)
        self.last += 1
        patterns = tuple(Declared(1, one) for one in texts)
        self._tell(said := Declaration(self.name, self.last, self.delivery, patterns=patterns).encode())
        return said

    def _tell(self, key):
        if key not in self.held:
            self.held.append(key)
            self.publisher.router.learn(b"\1" + key, self.publisher.now, self.account)

    def take_back(self, key):
        self.held.remove(key)
        self.publisher.router.learn(b"\0" + key, self.publisher.now, self.account)

    def cut_off(self):
        for key in list(self.held):
            self.take_back(key)

    def end(self):
        """Say goodbye, and be answered."""
        self.last += 1
        self._tell(Declaration(self.name, self.last, self.delivery, is_closing=True).encode())
        self.publisher.records.answer()


class Publisher:
    """A publisher with room for everything."""

    def __init__(self):
        self.now, self.sink, stats = 100.0, Taker(), PublisherStats()
        self.router = Router(bytes(16), stats)
        self.batches = Batches(self.router, self.sink, lambda: self.now, drops=True)
        self.records = Records(self.router, self.batches, None, self.sink, lambda: self.now)
        self.stats = stats

    def publish(self, count):
        """Find out for whom some messages are, as they are published; they are sent later."""
        self.stats.sent += count
        return [[self.router.find(SUBJECT, SUBJECT), SUBJECT, b"%d" % at] for at in range(count)]

    def send(self, messages, random):
        batches, first = self.batches, self.batches.position
        if len(messages) == 1:
            random.choice((lambda one: batches.send_alone(*one), batches.send_large))(messages[0])
        else:
            batches.position += len(messages)
            batches.send([part for one in messages for part in one], first, is_rich=False)

    def given(self, key):
        return sum(head.count for head, *_ in self.sink.taken[key])

    def expire(self, seconds):
        self.now += seconds
        self.router.expire(self.now)


def check_left(random):
    """A message is unwanted if all have left for whom it was, and all others have it."""
    publisher, count = Publisher(), random.randrange(1, 5)
    groups = [random.choice((None, None, DeliveryOptions(group=f"g{number}"))) for number in range(3)]
    everybody = [Subscriber(publisher, *one) for one in enumerate(groups[: random.randrange(1, 4)])]
    for one in everybody:
        one.listen(SUBJECT)
    messages = publisher.publish(count)
    left = [one for one in everybody if random.random() < 0.7]
    for one in left:
        if one.delivery.group or random.random() < 0.5:
            one.end()
        else:
            one.cut_off()
    publisher.expire(GRACE)
    publisher.send(messages, random)
    unwanted = count * (len(left) == len(everybody))
    found = publisher.stats.unwanted, publisher.stats.sent
    check(found == (unwanted, count - unwanted), "{} of {} are unwanted, not {}", unwanted, count, found)
    for one in everybody:
        expected, given = 0 if one in left else count, publisher.given(one.key)
        check(given == expected, "{} are given to who has left: {}, not {}", given, one in left, expected)
    _check_member(random)


def _check_member(random):
    """Who is cut off and was the only one of its group finds what it missed when it is back."""
    publisher, first, then = Publisher(), random.randrange(1, 4), random.randrange(1, 4)
    one = Subscriber(publisher, 1, DeliveryOptions(group="g"))
    one.listen(SUBJECT)
    publisher.send(publisher.publish(first), random)
    messages = publisher.publish(then)
    one.cut_off()
    publisher.send(messages, random)
    one.listen(SUBJECT)
    stands = publisher.router.streams[one.key].sequence
    check(stands == first + then, "{} were for a member, of which it stands at {}", first + then, stands)


def check_watched(random):
    """Who watches what is asked for knows it after each change, and nothing of who has gone."""
    publisher, known = Publisher(), Counter()

    def added(stream, pattern):
        known[stream.key, pattern] = 1

    def dropped(stream, pattern):
        del known[stream.key, pattern]

    never = lambda *_: None  # noqa: E731
    publisher.router.interest.watcher = SimpleNamespace(
        added=added, dropped=dropped, is_presence=never, to_tell=list, finds_stranger=never, refusal=never
    )
    everybody = [Subscriber(publisher, number) for number in range(2)]
    for _ in range(12):
        one = random.choice(everybody)
        chunks = [key for key in one.held if key != one.key]
        if chunks and random.random() < 0.4:
            one.take_back(random.choice(chunks))
        else:
            one.listen(*random.sample((b"a", b"b", b"c.*"), random.randrange(1, 3)))
        publisher.expire(random.choice((0.0, DELAY)))
        streams = publisher.router.streams.values()
        stand = {(stream.key, pattern) for stream in streams for pattern in stream.patterns}
        check(set(known) == stand, "{} stand, and who watches knows of {}", stand, set(known))
    for one in everybody:
        random.choice((one.end, one.cut_off))()
    publisher.expire(GRACE)
    check(not known, "all have gone, and who watches knows of {}", list(known))
