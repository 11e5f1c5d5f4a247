"""Stateful tests of a link and of a session, each against a model."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from links.pair import OTHER_ROUTE, ROUTE, Publisher, Subscriber, batch
from oz.subscriber.link import ENDED, GREETING, LIVE, NEW, Gap, Messages, Replace
from oz.wire import links
from oz.wire.links import Ack, Answer, Bye, Hello, Ping, StreamOptions, Welcome
from support.sizes import size

COUNTS = st.integers(1, 4)


class LinkMachine(RuleBasedStateMachine):
    """A link, and a model of its state and of the next sequence that it expects."""

    @initialize()
    def begin(self):
        self.one = Subscriber("a.*")
        self.state, self.expected, self.epoch, self.serial = NEW, 0, links.UNKNOWN_EPOCH, 0
        self.delivered = self.lost = self.first = self.acked = 0
        self.hello = None
        self.connect()

    def check(self, effects, expected):
        """Check effects, and apply a Replace as the engine does."""
        assert effects == expected or [type(effect) for effect in effects] == expected, (effects, expected)
        for effect in effects:
            if isinstance(effect, Messages):
                self.delivered += len(effect.positions)
            elif isinstance(effect, Gap) and effect.count is not None:
                self.lost += effect.count
            elif isinstance(effect, Replace):
                if self.state != ENDED:
                    assert self.one.link.state == NEW
                self.connect()
        self.pull()

    def connect(self):
        if self.state == ENDED:
            self.forget_epoch()
        self.one.link.connect(self.one.now)
        self.state = GREETING
        self.pull()

    def pull(self):
        for frame in self.one.pull():
            if isinstance(frame, Hello):
                self.hello = frame
                assert (frame.epoch, frame.expected) == (self.epoch, self.expected)
            elif isinstance(frame, Ack):
                assert self.state == LIVE
                assert frame.expected == self.expected
                self.acked = frame.expected

    def forget_epoch(self):
        self.epoch, self.expected = links.UNKNOWN_EPOCH, 0
        self.delivered = self.lost = self.first = 0

    def end(self):
        self.state = ENDED
        self.forget_epoch()

    def read(self, frame, expected=()):
        self.check(self.one.read(frame), list(expected))

    @rule()
    def probe(self):
        if self.state == ENDED:
            self.forget_epoch()
        attempt = self.hello.attempt
        self.state = GREETING
        self.read(b"")
        assert self.hello.attempt == attempt + 1

    @rule(skipped=st.integers(0, 3))
    def resume(self, skipped):
        """Read a WELCOME of the epoch that the link knows; `skipped` messages are lost."""
        frame = welcome(self.hello.attempt, self.epoch, self.expected + skipped)
        if self.state not in (GREETING, LIVE) or self.epoch == links.UNKNOWN_EPOCH:
            return
        self.state = LIVE
        self.expected += skipped
        self.acked = self.expected
        self.read(frame, [Gap(skipped, "lost")] if skipped else [])

    @precondition(lambda self: self.state in (GREETING, LIVE))
    @rule(first=st.integers(0, 3))
    def restart(self, first):
        """Read a WELCOME of another epoch."""
        self.serial += 1
        is_known = self.epoch != links.UNKNOWN_EPOCH
        self.forget_epoch()
        self.epoch, self.state = self.serial.to_bytes(16, "big"), LIVE
        self.expected = self.first = self.acked = first
        self.read(
            welcome(self.hello.attempt, self.epoch, first), [Gap(None, "restarted")] if is_known else []
        )

    @rule(difference=st.sampled_from([-1, 1]))
    def welcome_of_another_attempt(self, difference):
        self.read(welcome(self.hello.attempt + difference, b"x" * 16, 9))

    @rule(count=COUNTS, is_malformed=st.booleans())
    def send(self, count, is_malformed):
        frame = batch(self.expected, count)
        if is_malformed:
            frame = links.join(links.encode_head(0, 1, self.expected, count, 0, 0), b"\xc1")
        if self.state != LIVE:
            self.read(frame)
            return
        self.expected += count
        self.read(frame, [Gap(count, "malformed", 1)] if is_malformed else [Messages])

    @precondition(lambda self: self.state == LIVE and self.expected > 0)
    @rule(back=COUNTS)
    def repeat(self, back):
        before = self.one.link.repeated
        self.read(batch(max(0, self.expected - back)))
        assert self.one.link.repeated == before + 1

    @rule(ahead=COUNTS, is_ping=st.booleans())
    def skip(self, ahead, is_ping):
        frame = batch(self.expected + ahead)
        if is_ping:
            frame = links.encode_ping(Ping(self.expected + ahead, 1, {}))
        self.read(frame, [Replace] if self.state == LIVE else [])

    @rule()
    def ping(self):
        effects = self.one.read(links.encode_ping(Ping(self.expected, 1, {})))
        # PINGs arrive, and the DECLARE of the link has no answer.
        self.check(effects, [Replace] if effects and self.state == LIVE else [])
        assert self.state != LIVE or self.acked == self.expected

    @rule(revision=st.sampled_from([0, 1]), is_nil=st.booleans())
    def answer(self, revision, is_nil):
        effects = self.one.read(links.encode_answer(Answer(revision, None if is_nil else [])))
        assert len(effects) == (self.state == LIVE and not is_nil)
        self.pull()

    @rule(lost=st.integers(0, 3))
    def bye(self, lost):
        before, is_known = self.state, self.epoch != links.UNKNOWN_EPOCH
        expected = {
            LIVE: [Gap(lost, "closed")] if lost else [],
            GREETING: [Gap(None, "closed")] if is_known else [],
        }.get(before, [])
        frame = links.encode_bye(Bye(links.CLOSED, links.PUBLISHER, self.expected + lost, {}))
        if before in (GREETING, LIVE):
            self.end()
        self.read(frame, expected)
        if before in (GREETING, LIVE):
            self.forget_epoch()

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 5.0]))
    def wait(self, seconds):
        effects = self.one.tick(seconds)
        if self.one.link.state == ENDED and self.state == GREETING:
            assert effects == [Gap(None, "lost")]
            self.end()
        self.check(effects, [type(effect) for effect in effects])

    @invariant()
    def link_agrees(self):
        if self.hello is not None:
            link = self.one.link
            assert (link.state, link.epoch, link.expected) == (self.state, self.epoch, self.expected)
            assert self.first + self.delivered + self.lost == self.expected


def welcome(attempt, epoch, first):
    return links.encode_welcome(Welcome(b"o" * 16, epoch, attempt, first, 0, 16, 1 << 20, 1 << 20))


SMALL = {"window": 3, "window_bytes": 400, "high_water_mark": 4, "pending_bytes": 1_500, "batch": 4}


class SessionMachine(RuleBasedStateMachine):
    """A session with one stream, and a model of its subscriber."""

    @initialize(overflow=st.sampled_from([None, "drop_newest", "drop_oldest"]))
    def begin(self, overflow):
        self.publisher = Publisher(**SMALL)
        self.options = StreamOptions(overflow=overflow)
        self.published = 0
        self.attempt, self.route = 1, ROUTE
        self.start()

    def start(self):
        """Begin a session with one subscription."""
        self.session = self.publisher.hello(self.route, attempt=self.attempt)
        self.publisher.declare(options=self.options, route=self.route)
        self.expected = self.drops = 0
        self.numbers = []
        self.begins = self.published

    @rule(count=COUNTS, size=st.sampled_from([1, 50, 300]))
    def publish(self, count, size):
        for _ in range(count):
            payload = b"%d".ljust(size, b" ") % self.published
            self.publisher.sessions.publish(f"a.{self.published}", payload)
            self.published += 1
        self.publisher.sessions.flush()

    @rule(limit=st.integers(1, 4))
    def receive(self, limit):
        """Read frames: batches come in order, and each drop is reported in its place."""
        for item in self.publisher.pull(self.session, limit):
            if isinstance(item, Welcome):
                assert (item.first, item.attempt) == (self.session.first, self.attempt)
                self.place = item.first
            if len(item) != 6 or not isinstance(item[0], int):
                continue
            _, sequence, count, drops, _, subjects = item
            if sequence < self.expected:
                continue
            assert sequence == self.expected
            numbers = [int(subject[2:]) for subject in subjects]
            missing = numbers[0] - (self.numbers[-1] + 1 if self.numbers else self.begins)
            assert missing == drops - self.drops, (numbers, drops, self.drops)
            assert numbers == list(range(numbers[0], numbers[0] + count))
            self.numbers += numbers
            self.drops = drops
            self.expected += count

    @rule()
    def acknowledge(self):
        if self.session.state != "ended":
            self.publisher.ack(self.expected, route=self.route)
            if self.session.is_up:
                assert self.session.acked == self.expected

    @rule(beyond=COUNTS)
    def acknowledge_too_much(self, beyond):
        acked = self.session.acked
        self.publisher.ack(self.session.sent + beyond, route=self.route)
        assert self.session.acked == acked

    @rule()
    def lose_connection(self):
        self.publisher.sessions.unreachable(self.session, self.publisher.now)

    @rule(route=st.sampled_from([ROUTE, OTHER_ROUTE]))
    def connect(self, route):
        self.attempt, self.route = self.attempt + 1, route
        epoch = self.session.epoch
        found = self.publisher.hello(route, epoch=epoch, attempt=self.attempt, expected=self.expected)
        if found is self.session:
            assert found.state == "up"
            return
        assert self.session.state == "ended"
        self.session = found
        self.publisher.declare(options=self.options, route=route)
        self.expected = self.drops = 0
        self.numbers, self.begins = [], self.published

    @rule()
    def connect_with_an_old_attempt(self):
        before = self.session.route
        self.publisher.hello(b"another route", epoch=self.session.epoch, attempt=self.attempt - 1)
        assert self.session.route == before

    @rule(seconds=st.sampled_from([0.5, 1.0, 31.0]))
    def wait(self, seconds):
        self.publisher.tick(seconds)

    @invariant()
    def accounts_agree(self):
        if not hasattr(self, "session") or self.session.state == "ended":
            return
        session = self.session
        stream = session.streams[1]
        assert stream.matched == stream.numbered + stream.pending + stream.dropped
        assert stream.matched == self.published - self.begins
        window = sum(item.size for item in session.batches)
        assert session.window_used == window
        assert session.bytes == window + sum(getattr(entry, "body", entry).size for entry in stream.backlog)
        assert len(session.batches) <= SMALL["window"]
        assert stream.pending <= SMALL["high_water_mark"]
        assert session.bytes <= SMALL["pending_bytes"] + 350

    def teardown(self):
        """Check that every message has arrived or was reported as dropped."""
        if not hasattr(self, "session"):
            return
        self.connect(self.route)
        for _ in range(20):
            self.receive(100)
            self.acknowledge()
        self.publish(1, 1)
        self.receive(100)
        assert len(self.numbers) + self.drops == self.published - self.begins
        assert self.numbers[-1] == self.published - 1


SETTINGS = settings(max_examples=size(25, 2_000), stateful_step_count=40, deadline=None)
TestLink, TestSession = LinkMachine.TestCase, SessionMachine.TestCase
for case in (TestLink, TestSession):
    case.settings = SETTINGS
    # Hypothesis takes up to five minutes to shrink a failure.
    case.pytestmark = [pytest.mark.timeout(400)]
del case
