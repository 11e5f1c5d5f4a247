"""A publisher and subscribers of `oz.protocol`, joined in memory: no socket, no thread, no clock."""

from collections import Counter, deque
from random import Random

import pytest

import oz
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.interest import ROUTED
from oz.protocol.publisher.lifetimes import GRACE
from oz.protocol.publisher.records import HEARTBEAT, Records
from oz.protocol.publisher.router import Router
from oz.protocol.publisher.send_buffer import SEND_BUFFERS, ConflatingSendBuffer
from oz.protocol.stats import PublisherStats
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.keys import DeliveryOptions
from support.cases import each
from support.sizes import size

ROOM = 4
"""Frames that a connection holds."""

SUBJECTS = (b"a.x", b"a.y", b"a.z")
NS = 1_000_000_000
BUFFERED = 10


class Wire:
    """The sink of the publisher, with a connection to each subscriber that can be full, cut and back."""

    def __init__(self, *, drops):
        self.subscribers = []
        self._drops = drops
        self._is_lossless = not drops

    def try_send(self, frames, backlog=None):
        listening = self._listening(frames[0])
        if self._is_lossless and any(one.is_full for one in listening):
            return False
        self._give(frames, listening)
        return True

    def try_send_one(self, frame):
        return self.try_send((frame,))

    def send_past_the_full(self, frames):
        self._give(frames, self._listening(frames[0]))

    def look(self):
        pass

    def make_lossless(self):
        self._is_lossless = True

    def make_lossy(self):
        self._is_lossless = not self._drops

    def _listening(self, frame):
        return [one for one in self.subscribers if one.is_connected and one.listens_to(frame)]

    @staticmethod
    def _give(frames, listening):
        for one in listening:
            if not one.is_full:
                one.arriving.append(list(frames))


class Publisher:
    def __init__(self, *, drops=True):
        self.now = 100.0
        self.stats = PublisherStats()
        self.router = Router(b"p" * 16, self.stats)
        self.wire = Wire(drops=drops)
        self.batches = Batches(self.router, self.wire, self.clock, drops=drops)
        self.records = Records(self.router, self.batches, None, self.wire, self.clock)
        self.published = Counter()
        self.handed = []  # the numbers of what somebody wanted
        self._accumulated = []
        self._number = 0

    def clock(self):
        return self.now

    def collect(self, *subjects):
        """Publish numbered messages that wait for others."""
        for subject in subjects:
            self._number += 1
            recipients = self.router.find(subject, subject)
            if recipients.kind & ROUTED:
                self.published[subject] += 1
                self.handed.append(self._number)
                self._accumulated += (recipients, subject, b"%d" % self._number)

    def publish(self, *subjects):
        """Publish a batch of numbered messages, and what waits."""
        self.collect(*subjects)
        self.flush()

    def flush(self):
        """Send what waits."""
        accumulated, self._accumulated = self._accumulated, []
        if len(accumulated) == 3:
            self.batches.send_alone(*accumulated)
        elif accumulated:
            first = self.batches.position
            self.batches.position += len(accumulated) // 3
            self.batches.send(accumulated, first, is_rich=False)

    def learn(self, subscriber, frame):
        wanted, dropped = self.router.learn(frame, self.now)
        subscriber.keys.update(wanted)
        subscriber.keys.difference_update(dropped)

    def tick(self, seconds=0.0):
        self.now += seconds
        self.flush()
        self.records.answer()
        self.batches.retry()
        self.records.beat(self.now)


class Subscriber:
    def __init__(self, publisher, text="a.*", **delivery):
        self.publisher = publisher
        self.gaps = []
        self.got = []
        self.keys = set()  # what the publisher sends on this connection
        self.asked = {}  # what libzmq asks for, again at each reconnect
        self.arriving = deque()
        self.is_connected = True
        name = len(publisher.wire.subscribers)
        self.streams = Streams(lambda size: bytes((name,)) * size)
        self.decoder = BatchDecoder(self.streams, on_gap=self.gaps.append)
        publisher.wire.subscribers.append(self)
        subscription = Subscribed([oz.compile(text)], None, lambda _: None)
        self.apply(self.streams.add(subscription, DeliveryOptions(**delivery), last_value=False))
        self.apply(self.streams.flush())

    @property
    def is_full(self):
        return len(self.arriving) >= ROOM

    @property
    def is_ready(self):
        return self.streams.is_ready(1)

    @property
    def stats(self):
        return self.decoder.stats

    def listens_to(self, frame):
        return any(frame.startswith(key) for key in self.keys)

    def apply(self, changes):
        for key in changes.wanted:
            self.asked[key] = None
            self._tell(b"\x01" + key)
        for key in changes.dropped:
            self.asked.pop(key, None)
            self._tell(b"\x00" + key)

    def _tell(self, frame):
        if self.is_connected:
            self.publisher.learn(self, frame)

    def take(self, most=ROOM):
        """Take in so many frames of the connection."""
        for _ in range(min(most, len(self.arriving))):
            message = self.decoder.accept(self.arriving.popleft(), round(self.publisher.now * NS))
            if message is not None:
                self.got.append(message)

    def read(self):
        """Give what was taken in to the application; return the numbers of all that it was given so far."""
        while (message := self.decoder.next()) is not None:
            self.got.append(message)
        return [int(one.payload) for one in self.got]

    def renew(self):
        self.apply(self.streams.renew(self.publisher.now))

    def begin_leave(self):
        """Say that nothing more is wanted; what is on its way still comes."""
        self.apply(self.streams.leave())

    @property
    def has_left(self):
        return self.streams.has_left()

    def cut(self):
        """Lose the connection, and all that is on it."""
        for key in sorted(self.asked):
            self._tell(b"\x00" + key)
        self.is_connected = False
        self.keys.clear()
        self.arriving.clear()

    def come_back(self):
        self.is_connected = True
        for key in sorted(self.asked):
            self._tell(b"\x01" + key)


def settle(publisher):
    """Let everything arrive that is still on its way."""
    for _ in range(200):
        publisher.tick(HEARTBEAT / 4)
        for one in publisher.wire.subscribers:
            one.renew()
            one.take()
        if not (publisher.batches.full or any(one.arriving for one in publisher.wire.subscribers)):
            break
    assert not publisher.batches.full
    # The last heartbeat shows what was lost last.
    publisher.tick(HEARTBEAT)
    for one in publisher.wire.subscribers:
        one.take()
        one.read()


def joined(publisher, *subscribers):
    publisher.tick()
    for one in subscribers:
        one.take()
        assert one.is_ready


def accounted(one):
    """Count what a subscriber was given, knows to be lost, and dropped itself."""
    assert len(one.got) == one.stats.delivered
    assert sum(gap.count for gap in one.gaps) == one.stats.lost
    return one.stats.delivered + one.stats.lost + one.stats.dropped


def numbers(one):
    """Return the numbers of what a subscriber was given."""
    return [int(message.payload) for message in one.got]


def in_order(one):
    """Tell whether each subject came in the order of publishing, and nothing twice."""
    last = {}
    for message in one.got:
        if last.get(message.subject, 0) >= int(message.payload):
            return False
        last[message.subject] = int(message.payload)
    return True


def test_subscriber_is_ready_once_its_declaration_is_answered():
    publisher = Publisher()
    one = Subscriber(publisher)
    assert not one.is_ready
    publisher.tick()
    assert not one.is_ready
    one.take()
    assert one.is_ready
    publisher.publish(b"a.x")
    publisher.publish(b"b.x")
    publisher.publish(b"a.y", b"b.y", b"a.z")
    one.take()
    assert one.read() == [1, 3, 5]
    assert sum(publisher.published.values()) == accounted(one) == 3


def test_full_subscriber_finds_by_the_numbers_what_was_dropped_for_it():
    publisher = Publisher()
    slow, quick = Subscriber(publisher), Subscriber(publisher)
    joined(publisher, slow, quick)
    for _ in range(10):
        publisher.publish(b"a.x")
        quick.take()
    assert publisher.stats.missed == 10 - ROOM
    assert quick.read() == list(range(1, 11))
    settle(publisher)
    assert slow.read() == [1, 2, 3, 4]
    assert [gap.count for gap in slow.gaps] == [10 - ROOM]
    publisher.publish(b"a.x")
    slow.take()
    assert slow.read()[-1] == 11
    assert accounted(slow) == accounted(quick) + len(quick.arriving) == 11


def test_publisher_that_waits_loses_nothing_and_is_blocked_until_there_is_room():
    publisher = Publisher(drops=False)
    slow = Subscriber(publisher)
    joined(publisher, slow)
    for _ in range(10):
        publisher.publish(b"a.x")
    assert publisher.batches.is_blocked
    settle(publisher)
    assert not publisher.batches.is_blocked
    assert slow.read() == list(range(1, 11))
    assert accounted(slow) == 10
    assert not slow.gaps


def test_full_one_of_those_who_share_a_pattern_is_left_out_alone():
    publisher = Publisher()
    slow, quick = (Subscriber(publisher, is_shared=True) for _ in range(2))
    joined(publisher, slow, quick)
    for _ in range(10):
        publisher.publish(b"a.x")
        quick.take()
    assert quick.read() == list(range(1, 11))
    settle(publisher)
    assert slow.read() == [1, 2, 3, 4]
    assert [gap.count for gap in slow.gaps] == [10 - ROOM]
    assert not quick.gaps
    assert accounted(slow) == accounted(quick) == 10


@each("drops", [True, False])
def test_drop_oldest_holds_the_newest_for_a_full_subscriber(drops):
    publisher = Publisher(drops=drops)
    slow = Subscriber(publisher, overflow="drop_oldest", limit=BUFFERED)
    joined(publisher, slow)
    for _ in range(30):
        publisher.publish(b"a.x")
    assert not publisher.batches.is_blocked
    settle(publisher)
    # Four were on their way, the last ten waited; of these fourteen it keeps the last ten.
    assert slow.read() == list(range(21, 31))
    assert (slow.stats.lost, slow.stats.dropped) == (30 - ROOM - BUFFERED, ROOM)
    assert publisher.stats.missed == slow.stats.lost
    assert accounted(slow) == 30


@each("drops", [True, False])
def test_drop_newest_gives_the_oldest_to_a_full_subscriber(drops):
    publisher = Publisher(drops=drops)
    slow = Subscriber(publisher, overflow="drop_newest", limit=BUFFERED)
    joined(publisher, slow)
    for _ in range(30):
        publisher.publish(b"a.x")
    assert not publisher.batches.is_blocked
    settle(publisher)
    assert slow.read() == [1, 2, 3, 4]
    assert publisher.stats.missed == slow.stats.lost == 30 - ROOM
    assert accounted(slow) == 30


def test_conflation_gives_a_full_subscriber_the_newest_of_each_subject_without_a_gap():
    publisher = Publisher()
    slow = Subscriber(publisher, overflow="conflate", limit=BUFFERED)
    joined(publisher, slow)
    for _ in range(10):
        publisher.publish(*SUBJECTS)
    settle(publisher)
    assert slow.read() == [28, 29, 30]
    assert not slow.gaps
    # What waited was conflated here, before it was numbered; four batches were on their way.
    conflated = 3 * (10 - ROOM) - 3
    assert accounted(slow) + conflated == 30
    publisher.publish(b"a.x")
    settle(publisher)
    assert slow.read()[3:] == [31]


@each("overflow", ["drop_oldest", "conflate"])
def test_subscription_has_drained_only_when_it_was_given_what_waited_at_the_publisher(overflow):
    delivery = {"overflow": overflow, "limit": BUFFERED}
    publisher = Publisher()
    one = Subscriber(publisher, **delivery)
    parting = Subscribed([oz.compile("b.*")], None, lambda _: None)
    one.apply(one.streams.add(parting, DeliveryOptions(**delivery), last_value=False))
    joined(publisher, one)
    for _ in range(ROOM):
        publisher.publish(b"a.x")
    publisher.publish(b"a.y")
    publisher.publish(b"b.x")
    for changes in one.streams.part(parting):
        one.apply(changes)
    while not one.streams.has_drained(parting):
        # Room for one frame: for what waited, or for the answer that nothing more comes.
        one.take(1)
        publisher.tick()
    assert ROOM + 2 in one.read()


def test_queue_group_hands_over_what_a_full_member_has_no_room_for():
    publisher = Publisher()
    slow, quick = (Subscriber(publisher, group="g", policy="round_robin") for _ in range(2))
    joined(publisher, slow, quick)
    for _ in range(20):
        publisher.publish(*SUBJECTS)
        quick.take()
        quick.read()
    settle(publisher)
    assert sorted(slow.read() + quick.read()) == list(range(1, 61))
    assert publisher.stats.missed == 0
    assert len(quick.got) > len(slow.got) > 0
    assert in_order(slow)
    assert in_order(quick)
    assert accounted(slow) + accounted(quick) == 60


def test_queue_group_without_any_room_reports_what_it_misses():
    publisher = Publisher()
    members = [Subscriber(publisher, group="g", policy="round_robin") for _ in range(2)]
    joined(publisher, *members)
    for _ in range(20):
        publisher.publish(*SUBJECTS)
    settle(publisher)
    assert publisher.stats.missed == sum(one.stats.lost for one in members) > 0
    assert sum(map(accounted, members)) == 60


def test_subscriber_that_reconnects_learns_what_it_lost_meanwhile():
    publisher = Publisher()
    one = Subscriber(publisher)
    joined(publisher, one)
    publisher.publish(b"a.x")
    one.take()
    publisher.publish(b"a.x", b"a.y")
    one.cut()
    publisher.publish(b"a.z")
    publisher.tick(5.0)
    one.come_back()
    publisher.publish(b"a.x")
    settle(publisher)
    assert one.is_ready
    assert one.read() == [1, 5]
    assert [gap.count for gap in one.gaps] == [3]
    assert accounted(one) == 5


def test_subscriber_that_is_away_for_too_long_learns_that_nobody_counted():
    publisher = Publisher()
    one = Subscriber(publisher)
    joined(publisher, one)
    publisher.publish(b"a.x")
    one.take()
    one.cut()
    publisher.tick(GRACE + HEARTBEAT)
    publisher.publish(b"a.x")
    assert publisher.published[b"a.x"] == 1
    one.come_back()
    settle(publisher)
    assert [gap.count for gap in one.gaps] == [None]
    publisher.publish(b"a.x")
    settle(publisher)
    assert len(one.read()) == 2


@pytest.fixture
def conflated(monkeypatch):
    """Collects how many messages publishers conflate, which no counter tells."""
    counts = []

    class Counting(ConflatingSendBuffer):
        def put(self, stream, items, positions):
            before = len(self._newest) + len(items) // 2
            missed = super().put(stream, items, positions)
            counts.append(before - len(self._newest) - missed)
            return missed

    monkeypatch.setitem(SEND_BUFFERS, "conflate", Counting)
    return counts


def act(random, publisher, subscribers):
    """Do one thing that may happen."""
    one = random.choice(subscribers)
    match random.randrange(8):
        case 0 | 1 | 2:
            publisher.publish(*random.choices(SUBJECTS, k=random.randint(1, 5)))
        case 3 | 4:
            one.take(random.randint(1, ROOM))
        case 5:
            one.read()
        case 6:
            publisher.tick(random.choice((0.0, 0.1, HEARTBEAT)))
            one.renew()
        case 7 if one.is_connected:
            one.cut()
        case 7:
            one.come_back()


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(size(3, 30)))
@pytest.mark.parametrize("drops", [True, False])
def test_all_that_is_published_is_delivered_reported_lost_or_dropped(drops, seed, conflated):
    random, publisher = Random(seed), Publisher(drops=drops)
    counted = [
        Subscriber(publisher),
        Subscriber(publisher, overflow="drop_oldest", limit=BUFFERED),
        Subscriber(publisher, overflow="drop_newest", limit=BUFFERED),
    ]
    conflating = Subscriber(publisher, overflow="conflate", limit=BUFFERED)
    # It has no room for all subjects, so that it misses some beside what is conflated.
    tight = Subscriber(publisher, overflow="conflate", limit=len(SUBJECTS) - 1)
    subscribers = [*counted, conflating, tight]
    joined(publisher, *subscribers)
    for _ in range(200):
        act(random, publisher, subscribers)
    for one in subscribers:
        if not one.is_connected:
            one.come_back()
    settle(publisher)
    # The newest of each subject is what conflation is for.
    publisher.publish(*SUBJECTS)
    settle(publisher)
    total = publisher.published.total()
    assert [accounted(one) for one in counted] == [total] * len(counted)
    assert all(map(in_order, subscribers))
    assert accounted(conflating) + accounted(tight) + sum(conflated) == 2 * total
    newest = {one.subject: int(one.payload) for one in conflating.got}
    assert sorted(newest.values()) == sorted(conflating.read())[-len(SUBJECTS) :]


def act_in_group(random, publisher, members, join):
    """Do one thing that may happen to a queue group; give a member that leaves."""
    one = random.choice(members)
    match random.randrange(9):
        case 0 | 1:
            publisher.publish(*random.choices(SUBJECTS, k=random.randint(1, 5)))
        case 2 | 3:
            # These may still wait when the member that they are for leaves.
            publisher.collect(*random.choices(SUBJECTS, k=random.randint(1, 5)))
        case 4 | 5:
            one.take(random.randint(1, ROOM))
        case 6:
            one.read()
        case 7:
            publisher.tick(random.choice((0.0, 0.1, HEARTBEAT)))
            one.renew()
        case 8 if len(members) > 2:
            members.remove(one)
            one.begin_leave()
            return one
        case 8:
            members.append(join())
    return None


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(size(2, 30)))
@pytest.mark.parametrize("policy", ["round_robin", "sticky", "failover"])
@pytest.mark.parametrize("drops", [True, False])
def test_one_member_of_a_queue_group_gets_each_message_while_others_leave_and_join(drops, policy, seed):
    random, publisher = Random(seed), Publisher(drops=drops)

    def join():
        return Subscriber(publisher, group="g", policy=policy)

    members, leaving = [join() for _ in range(3)], []
    joined(publisher, *members)
    for _ in range(300):
        leaving.append(act_in_group(random, publisher, members, join))
    settle(publisher)
    leaving = [one for one in leaving if one is not None]
    assert leaving
    assert all(one.has_left for one in leaving)
    given = [number for one in (*members, *leaving) for number in numbers(one)]
    lost = sum(one.stats.lost for one in (*members, *leaving))
    assert len(set(given)) == len(given)
    assert set(given) <= set(publisher.handed)
    assert len(given) + lost == len(publisher.handed)
    assert lost == publisher.stats.missed
    assert drops or not lost
    assert all(map(in_order, (*members, *leaving)))
