"""A message that waits for no others is sent by the compiled part as `Accumulator.begin` sends it."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.compiled import HOT
from oz.errors import OwnershipError
from oz.message import Extras
from oz.protocol.publisher.backlog import WATCHED_FROM
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.batching import STEP
from oz.protocol.publisher.interest import Recipients
from oz.protocol.publisher.stream import OutStream
from oz.protocol.stats import PublisherStats
from oz.transport import backend
from oz.transport.guard import Guard
from oz.transport.publisher import alone as shortening
from oz.transport.publisher.accumulator import QUIET, Accumulator
from oz.transport.publisher.sender import Sender
from oz.transport.publisher.sink import XpubSink
from oz.wire.extras import rich
from oz.wire.keys import DeliveryOptions, stream_key
from support.sizes import size
from support.waiting import DEADLINE

pytestmark = [pytest.mark.skipif(HOT is None, reason="the compiled part does not run"), pytest.mark.sized]

ORIGIN = b"p" * 16
numbers = count()


def stream(number, *, is_shared=False, **delivery):
    name = b"n" * 14 + bytes((number, 0))
    key = stream_key(name)
    return OutStream(key if is_shared else name, key, DeliveryOptions(**delivery), ORIGIN, number)


class Parts:
    """What of a sender is used."""

    __slots__ = (
        "accumulator", "check_open", "dispatch", "guard", "in_use", "is_behind", "is_unheard", "listen",
        "listened_at", "monotonic", "stats",
    )  # fmt: skip

    look = Sender.look


class Publisher:
    """A publisher's way into an XPUB with one subscriber to all, on a clock that goes on as it is asked."""

    def __init__(self, context, *, compiled, mark=0):
        self.log, self.now, self.tick = [], 100.0, 0.0
        self.guard, self.stats = Guard(), PublisherStats()
        self.xpub, self.sub = context.socket(zmq.XPUB), context.socket(zmq.SUB)
        self.xpub.set(zmq.SNDHWM, mark)
        self.sub.set(zmq.RCVHWM, mark)
        self.sub.subscribe(b"")
        endpoint = f"inproc://{next(numbers)}"
        self.xpub.bind(endpoint)
        self.sub.connect(endpoint)
        assert self.xpub.recv() == b"\x01"
        self.sink = XpubSink(self.xpub, drops=True)
        router = SimpleNamespace(streams={}, stats=self.stats, to_answer=())
        self.batches = Batches(router, self.sink, self.clock, drops=True)
        self.accumulator = Accumulator(
            self.guard, self.batches, self.stats, lambda socket: self.parts.look(socket),
            lambda: self.log.append("expect more"), self.clock,
        )  # fmt: skip
        self.accumulator.limit = self.accumulator._whole_limit = 9 * STEP
        self.parts = parts = Parts()
        parts.accumulator, parts.dispatch, parts.guard, parts.stats = (
            self.accumulator, self.batches, self.guard, self.stats,
        )  # fmt: skip
        parts.is_behind, parts.is_unheard, parts.listened_at = False, False, 0.0
        parts.monotonic = self.clock
        parts.in_use = lambda: self.log.append("in use")
        parts.listen = lambda: self.log.append(("listen", self.guard.is_mine))
        parts.check_open = lambda: self.log.append("check")
        self.streams = [
            stream(1), stream(2), stream(3, is_shared=True),
            stream(4, overflow="drop_oldest", limit=3),
        ]  # fmt: skip
        one, two, three, four = self.streams
        self.recipients = [
            Recipients(is_plain=False, streams=some, choices=())
            for some in ((one,), (two,), (one, two), (three,), (four,), ())
        ]
        self.alone = shortening.shortest(parts, self.sink, self.xpub) if compiled else None
        assert (self.alone is not None) is compiled

    def clock(self):
        self.now += self.tick
        return self.now

    def publish(self, which, subject, payload):
        before = self.now
        try:
            sent = self.alone is not None and self.alone(self.recipients[which], subject, payload)
            if not sent:
                # As if nothing had been done, nor asked.
                self.now = before
                self.begin(self.recipients[which], subject, payload)
        except Exception as error:
            return repr(error)
        return None

    def begin(self, recipients, subject, payload):
        if type(payload) is bytes:
            self.accumulator.begin(self.xpub, recipients, subject, payload)
            return
        # As `Sender.publish_any` does it.
        self.guard.is_wanted = True
        with self.guard:
            self.accumulator.begin_rare(self.xpub, recipients, subject, payload)

    def received(self):
        found = []
        while self.sub.poll(0):
            found.append(self.sub.recv_multipart())
        return found

    def standing(self):
        accumulator, parts = self.accumulator, self.parts
        return (
            [(one.sequence, one.is_full, len(one.unsent)) for one in self.streams],
            (self.batches.position, self.batches.is_blocked, len(self.batches.full)),
            (accumulator.messages[1:3], accumulator.sent_at, accumulator._took, accumulator._quiet),
            (accumulator._unwanted, self.stats.sent, self.stats.unwanted, self.stats.missed),
            (self.guard.is_wanted, self.guard.is_torn, self.guard.is_busy, self.guard.is_mine),
            (parts.is_unheard, parts.listened_at, self.sink._is_lossless),
        )

    def close(self):
        self.xpub.close(0)
        self.sub.close(0)


class Unpackable:
    """Nothing that MessagePack has a form for."""


def with_extras(payload, **fields):
    return rich(payload, Extras(), fields)


payloads = st.sampled_from(
    [
        b"", b"x", b"x" * 255, b"x" * 256, b"x" * 480, b"x" * WATCHED_FROM, with_extras(b"x"),
        with_extras(b"x", r="reply"), with_extras(b"x" * 490, r="reply"), with_extras(b"x" * WATCHED_FROM),
        with_extras([b"one", b"two"]), with_extras(b"x", h=Unpackable()),
    ]
)  # fmt: skip
subjects = st.sampled_from([b"a", b"a.b", b"s" * 255, b"s" * 256])
publishing = st.tuples(st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5]), subjects, payloads)
simple = st.just((0, b"a", b"x"))
silence = st.sampled_from([("now", 1.0), ("now", 0.002), ("now", 0.0005), ("now", 2 * QUIET)])
changes = st.sampled_from(
    [
        ("now", QUIET / 2),
        ("now", QUIET),
        ("now", 0.0005),
        ("now", 0.002),
        ("tick", 0.0),
        ("tick", 2.0**-30),
        ("tick", 2.0**-12),
        ("is_busy", True),
        ("is_handing_over", True),
        ("is_torn", True),
        ("is_over", True),
        ("unwanted", 3),
        ("is_full", True),
        ("vanished_at", 1.0),
        ("is_closing", True),
        ("is_gone", True),
        ("lossy", True),
        ("is_behind", True),
        ("is_unheard", True),
        ("clear", True),
        ("postponed", True),
        ("sent", 2**63 - 1),
        ("sequence", 2**63 - 1),
        ("position", 2**63 - 1),
        ("sequence", 2**64),
        ("calm", True),
    ]
)  # fmt: skip


def change(one, what, value):
    first = one.streams[0]
    if what == "now":
        one.now += value
    elif what == "tick":
        # The twin reads the clock once more, and may see then that it is time to listen.
        one.tick = 0.0 if one.parts.is_unheard else value
    elif what in ("is_busy", "is_handing_over", "is_torn"):
        setattr(one.guard, what, value)
    elif what in ("unwanted", "sent"):
        setattr(one.stats, what, value)
    elif what in ("is_full", "vanished_at", "is_closing", "is_gone", "sequence"):
        setattr(first, what, value)
    elif what in ("is_behind", "is_unheard"):
        setattr(one.parts, what, value)
        change(one, "tick", one.tick)
    elif what == "is_over":
        one.accumulator.is_over = True
    elif what == "lossy":
        one.sink.make_lossy()
    elif what == "clear":
        one.accumulator.messages.clear()
    elif what == "postponed":
        one.guard.postponed.append(lambda: one.log.append("postponed"))
    elif what == "position":
        one.batches.position = value
    else:
        calm(one)


def calm(one):
    """Undo what keeps messages from going alone."""
    accumulator, guard = one.accumulator, one.guard
    accumulator.messages.clear()
    accumulator.is_over = guard.is_busy = guard.is_handing_over = guard.is_torn = one.parts.is_behind = False
    one.now, one.tick, accumulator._quiet = one.now + 1, 0.0, QUIET


rounds = st.tuples(silence, changes, simple | publishing)
"""What may well go alone but for one thing."""


def steps_of(some):
    return [step for one in some for step in (one if isinstance(one[0], tuple) else (one,))]


@given(st.lists(publishing | changes | rounds, max_size=15).map(steps_of), st.sampled_from([0, 1]))
def test_messages_are_sent_as_by_the_twin(steps, mark):
    with zmq.Context() as context:
        ours = Publisher(context, compiled=True, mark=mark)
        pure = Publisher(context, compiled=False, mark=mark)
        for one in (ours, pure):
            one.sink.make_lossless()
        try:
            for step in steps:
                results = []
                for one in (ours, pure):
                    if len(step) == 2:
                        change(one, *step)
                    else:
                        results.append(one.publish(*step))
                # The twin looks at the clock once more.
                ours.now = pure.now
                assert not results or results[0] == results[1]
                assert ours.log == pure.log
                assert ours.standing() == pure.standing()
                if not mark:
                    assert ours.received() == pure.received()
            assert ours.received() == pure.received()
        finally:
            ours.close()
            pure.close()


@pytest.fixture
def ours():
    with zmq.Context() as context:
        one = Publisher(context, compiled=True)
        try:
            yield one
        finally:
            one.close()


def test_a_message_that_comes_alone_does_not_come_to_the_twin(ours):
    assert ours.alone(ours.recipients[0], b"a", b"x") is False
    ours.sink.make_lossless()
    assert ours.alone(ours.recipients[0], b"a", b"x") is True
    assert ours.streams[0].sequence == ours.batches.position == ours.stats.sent == 1
    assert ours.received() == [[ours.streams[0].heads[0] + bytes(19) + b"\x01\x00\x92\xc4\x01a\xc4\x01x"]]
    # Behind it the publisher is not quiet.
    assert ours.alone(ours.recipients[0], b"a", b"x") is False


def test_what_is_closed_is_for_the_twin(ours):
    ours.sink.make_lossless()
    ours.xpub.close()
    assert ours.alone(ours.recipients[0], b"a", b"x") is False
    assert ours.streams[0].sequence == ours.stats.sent == 0
    assert "non-socket" in ours.publish(0, b"a", b"x")


def test_others_wait_for_who_has_the_guard_and_go_by_what_that_has_left(ours):
    ours.sink.make_lossless()
    with ThreadPoolExecutor(1) as other:
        with ours.guard:
            sending = other.submit(ours.alone, ours.recipients[0], b"a", b"x")
            while not ours.guard.is_wanted:
                pass
            ours.accumulator.messages += (ours.recipients[0], b"a", b"before")
        assert sending.result(DEADLINE) is False
    assert ours.received() == []


def test_in_the_child_of_a_fork_nothing_is_sent(ours):
    ours.sink.make_lossless()
    ours.guard.disown()
    with pytest.raises(OwnershipError):
        ours.alone(ours.recipients[0], b"a", b"x")
    assert ours.received() == []


def test_wrong_arguments_are_an_error(ours):
    with pytest.raises(TypeError, match="takes recipients"):
        ours.alone(ours.recipients[0], b"a")
    for odd in [(object(), b"a", b"x"), (ours.recipients[0], "a", b"x"), (ours.recipients[0], b"a", None)]:
        assert ours.alone(*odd) is False
    with pytest.raises(TypeError):
        HOT.SendAlone()


def test_what_looking_raises_is_that_of_a_closed_publisher(ours):
    def fail():
        raise zmq.ZMQError(zmq.ENOTSOCK)

    def closed():
        raise oz.ClosedError("closed")

    ours.sink.make_lossless()
    ours.parts.listen, ours.parts.check_open = fail, closed
    with pytest.raises(oz.ClosedError):
        ours.alone(ours.recipients[0], b"a", b"x")
    assert not ours.guard.is_mine


def test_sending_leaves_no_reference_behind(ours):
    ours.sink.make_lossless()
    subject, payload, recipients = bytes(bytearray(b"a.b")), bytes(bytearray(b"payload")), ours.recipients[0]

    def work():
        ours.now += 1
        assert ours.alone(recipients, subject, payload)
        assert not ours.alone(recipients, subject, payload)
        ours.sub.recv()
        ours.log.clear()

    work()
    held = (subject, payload, recipients, ours.streams[0], ours.accumulator)
    gc.collect()
    before = [sys.getrefcount(one) for one in held]
    for _ in range(size(1_000, 100_000)):
        work()
    gc.collect()
    after = [sys.getrefcount(one) for one in held]
    assert all(abs(then - now) < 100 for then, now in zip(before, after, strict=True))


def test_sockets_that_send_frame_after_frame_have_none(monkeypatch, ours):
    other = SimpleNamespace(backend=SimpleNamespace(send_whole=None, has_handle=True), underlying=1)
    assert shortening.shortest(ours.parts, ours.sink, other) is None
    monkeypatch.setattr(shortening, "SENDIOV_AT", 0)
    assert shortening.shortest(ours.parts, ours.sink, ours.xpub) is None
    assert backend.SENDIOV_AT
