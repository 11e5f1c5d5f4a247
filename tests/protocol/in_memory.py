"""A publisher and subscribers of oz.protocol, joined in memory: no socket, thread or clock."""

from collections import Counter, deque

import oz
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.interest import ROUTED
from oz.protocol.publisher.records import HEARTBEAT, Records
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.streams import Streams
from oz.protocol.subscriber.subscriptions import Subscribed
from oz.wire.keys import DeliveryOptions

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
            recipients = self.router.find(subject)
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
        alive = self.streams.publishers.alive()
        return bool(alive) and all(map(self.streams.has_answered, alive))

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
        self.got.extend(self.decoder.waiting)
        self.decoder.waiting.clear()
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
