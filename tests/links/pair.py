"""Sessions and a link without a network, for tests of single events."""

from itertools import count

import oz
from oz.publisher.session import Settings
from oz.publisher.sessions import Sessions
from oz.subscriber.link import Link
from oz.subscriber.subscriptions import Subscriptions
from oz.wire import links
from oz.wire.links import DEFAULT_OPTIONS, Declare, Hello, Item

ROUTE, OTHER_ROUTE = b"route one", b"route two"
ORIGIN = b"origin of a test"
SESSION, MEMBER = b"session of a tes", b"member of a test"
NEVER = b"epoch of nobody "


def ids(prefix=b"id"):
    numbers = count(1)
    return lambda: (prefix + b"%d" % next(numbers)).ljust(16, b".")


class Publisher:
    """Sessions with a frame log for each routing id."""

    def __init__(self, last_values=None, authorize=None, **settings):
        more = {} if authorize is None else {"authorize": authorize}
        self.sessions = Sessions(ORIGIN, Settings(**settings), ids(b"epoch"), last_values=last_values, **more)
        self.now = 100.0
        self.sent = []

    def hello(self, route=ROUTE, session=SESSION, epoch=links.UNKNOWN_EPOCH, attempt=1, expected=0, user=None,
              member=MEMBER, largest_frame=64 << 20, window=1_024, card=b""):  # fmt: skip
        hello = Hello(session, member, epoch, attempt, expected, 0, largest_frame, window, card)
        self.read(links.encode_hello(hello), route, user)
        return self.sessions.by_id.get(session)

    def read(self, frame, route=ROUTE, user=None):
        self.sessions.on_frame(route, frame, self.now, user)
        while self.sessions.work(10):
            pass

    def declare(
        self,
        text="a.*",
        revision=1,
        base=0,
        sid=1,
        route=ROUTE,
        options=DEFAULT_OPTIONS,
        stream=1,
        removed=(),
        last_value=False,
    ):
        items = [] if text is None else [Item(sid, stream, "nats", text, last_value)]
        streams = {} if text is None else {stream: options}
        self.read(links.encode_declare(Declare(revision, base, True, streams, items, list(removed))), route)

    def ack(self, expected, marks=None, route=ROUTE):
        self.read(links.encode_ack(expected, marks), route)

    def publish(self, *subjects, payload=b"x"):
        for subject in subjects:
            self.sessions.publish(subject, payload)
            self.sessions.flush()

    def pull(self, session, limit=10**6):
        """Send the frames of a session; return their descriptions."""
        found = []
        while len(found) < limit and (frames := session.next_frames()) is not None:
            session.confirm_sent()
            found.append(describe(frames))
        return found

    def replies(self):
        found = list(self.sessions.replies)
        self.sessions.replies.clear()
        return [(route, links.decode_control(frame)) for route, frame in found]

    def tick(self, seconds):
        self.now += seconds
        self.sessions.tick(self.now)


def describe(frames):
    """Return the control content of a frame, or (stream, sequence, count, drops, flags, subjects)."""
    frame = frames[0]
    if frame[0] not in (links.BATCH, links.JOINED):
        return links.decode_control(frame)
    head = links.decode_head(frame)
    body = frame[links.HEAD_BYTES :] if frame[0] == links.JOINED else frames[1] if len(frames) > 1 else None
    subjects = None if body is None else [item.decode() for item in links.decode_body(body, head.count)[::3]]
    return head.stream, head.sequence, head.count, head.drops, head.flags, subjects


class Subscriber:
    """A link with a log of effects."""

    def __init__(self, *texts, options=DEFAULT_OPTIONS):
        self.subscriptions = Subscriptions()
        for text in texts:
            self.subscriptions.add(oz.compile(text), options)
        self.link = Link(MEMBER, self.subscriptions, ids(b"session"))
        self.now = 100.0

    def read(self, frame):
        return [] if self.link.repeats_ping(frame, self.now) else self.link.on_frame(frame, self.now)

    def pull(self):
        found = []
        while (frame := self.link.next_frame()) is not None:
            self.link.confirm_sent(self.now)
            found.append(links.decode_control(frame))
        return found

    def tick(self, seconds):
        self.now += seconds
        return self.link.tick(self.now)


def batch(sequence, count=1, stream=1, drops=0, flags=0, position=0):
    """Return a JOINED frame."""
    flat = [part for index in range(count) for part in (b"a.%d" % index, b"x", None)]
    return links.join(
        links.encode_head(flags, stream, sequence, count, drops, position), links.encode_body(flat)
    )
