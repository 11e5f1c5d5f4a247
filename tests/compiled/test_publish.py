"""A compiled `publish` does with every call what its Python twin does."""

import gc
import sys
import weakref
from types import SimpleNamespace

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from oz.compiled import HOT
from oz.protocol.stats import PublisherStats
from oz.transport.guard import Guard
from oz.transport.publisher import publish as ways
from oz.transport.publisher.publish import LOOK_EVERY, short_way
from oz.transport.publisher.sender import Sender
from oz.wire.batch import LARGE
from support.cases import each
from support.sizes import size

pytestmark = [pytest.mark.skipif(HOT is None, reason="the compiled part does not run"), pytest.mark.sized]


class Dispatch:
    __slots__ = ("is_blocked",)

    def __init__(self):
        self.is_blocked = False


class Accumulator:
    """Records what is asked of it."""

    __slots__ = ("error", "limit", "log", "messages")

    def __init__(self, log):
        self.messages, self.limit, self.log, self.error = [], 9, log, None

    def begin(self, socket, recipients, raw, payload):
        self.log.append(("begin", recipients, raw, payload))
        self.messages += (recipients, raw, payload)

    def flush(self, socket):
        self.log.append(("flush", list(self.messages)))
        self.messages.clear()
        if self.error is not None:
            raise self.error


class Parts:
    """What of a sender its short way uses; the clock says what it is told."""

    __slots__ = (
        "accumulator", "check_open", "dispatch", "flags", "guard", "hand_over", "has_short_way", "in_use",
        "is_behind", "is_unheard", "listen", "listened_at", "log", "monotonic", "notices", "now", "routes",
        "send_alone", "stats", "tries",
    )  # fmt: skip

    flush_full, look = Sender.flush_full, Sender.look

    def __init__(self, log, quick, accumulator, dispatch, stats):
        self.has_short_way = True
        self.accumulator, self.dispatch, self.stats, self.log = accumulator, dispatch, stats, log
        self.routes = SimpleNamespace(quick=quick)
        self.now, self.listened_at, self.is_behind, self.is_unheard, self.tries = (
            10.0,
            0.0,
            False,
            False,
            True,
        )
        self.flags, self.hand_over, self.notices = 1, self._hand_over, False
        self.guard, self.send_alone = Guard(), None
        self.monotonic = lambda: self.now
        self.in_use = lambda: log.append("in use")
        self.listen = lambda: log.append("listen")
        self.check_open = lambda: log.append("check")

    def _hand_over(self, *given):
        if self.notices:
            # Another thread has looked meanwhile.
            self.is_unheard = False
        if self.tries is not True:
            # It is not noted: where there is no room the compiled one tries it once more.
            raise self.tries
        self.log.append(given)


class Publisher:
    """What a sender's short way is made of, and the short way."""

    def __init__(self, *, looks=False):
        self.log, self.stats = [], PublisherStats()
        self.accumulator, self.dispatch = Accumulator(self.log), Dispatch()
        self.quick = {
            "wanted": ("all", b"wanted"),
            b"wanted": ("all", b"wanted"),
            "rare": ("some", b"rare"),
            "unwanted": None,
            "both": False,
            "plain": b"plain",
            "odd": ("one",),
        }
        self.parts = parts = Parts(self.log, self.quick, self.accumulator, self.dispatch, self.stats)
        self.publish = short_way(parts, "socket", self._long_way, looks=looks)

    def _long_way(self, *given, **fields):
        self.log.append(("long", given, fields))
        return "long"

    def call(self, given, fields):
        """Publish; tell what it gives or raises."""
        try:
            return self.publish(*given, **fields)
        except Exception as error:
            return repr(error)


def both(**options):
    """Make one that is compiled, and its twin."""
    ours = Publisher(**options)
    ways.HOT = None
    try:
        pure = Publisher(**options)
    finally:
        ways.HOT = HOT
    assert type(ours.publish) is HOT.Publish
    assert type(pure.publish) is not HOT.Publish
    return ours, pure


class Text(str):
    """A subject that is no plain text."""


subjects = st.sampled_from(["wanted", b"wanted", "rare", "unwanted", "both", "plain", "new", Text("wanted")])
odd = st.sampled_from([None, 1, [], bytearray(b"wanted")])
payloads = st.sampled_from([b"", b"x", b"x" * (LARGE - 1), b"x" * LARGE, "text", None, bytearray(b"x")])
extras = st.sampled_from([(), (None,), ("extras",), (None, None)])
fields = st.sampled_from([{}, {}, {"headers": {}}, {"payload": b"x"}, {"subject": "a"}, {"extras": None}])
calls = st.tuples(st.tuples(subjects | odd, payloads), extras, fields)
steps = st.lists(
    calls
    | st.tuples(subjects).map(lambda one: (one, (), {}))
    | st.sampled_from([("limit", 3), ("limit", 0), ("limit", 9), ("blocked", True), ("blocked", False)])
    | st.sampled_from(
        [("now", 10.0), ("now", 10.0005), ("now", 10.002), ("is_behind", True), ("is_behind", False)]
    )
    | st.sampled_from([("is_handing_over", True), ("is_handing_over", False), ("held",)])
    | st.sampled_from([("tries", True), ("notices", True), ("notices", False)])
    | st.sampled_from([("tries", zmq.Again()), ("tries", zmq.ZMQError(zmq.ENOTSOCK)), ("tries", KeyError())])
    | st.sampled_from([("error", zmq.ZMQError(zmq.ENOTSOCK)), ("error", KeyError("x")), ("error", None)]),
    max_size=30,
)


@given(steps, st.booleans())
def test_calls_of_any_kind_do_what_those_of_the_twin_do(steps, looks):
    ours, pure = both(looks=looks)
    for step in steps:
        results = []
        for one in (ours, pure):
            if step[0] == "limit":
                one.accumulator.limit = step[1]
            elif step[0] == "blocked":
                one.dispatch.is_blocked = step[1]
            elif step[0] in ("now", "is_behind", "tries", "notices"):
                setattr(one.parts, step[0], step[1])
            elif step[0] == "is_handing_over":
                one.parts.guard.is_handing_over = step[1]
            elif step[0] == "held":
                (one.parts.guard.release if one.parts.guard.is_mine else one.parts.guard.acquire)()
            elif step[0] == "error":
                one.accumulator.error = step[1]
            else:
                results.append(one.call((*step[0], *step[1]), step[2]))
        assert not results or results[0] == results[1]
        assert ours.log == pure.log
        assert ours.accumulator.messages == pure.accumulator.messages
        assert ours.stats == pure.stats
        assert ours.parts.is_unheard == pure.parts.is_unheard
        assert ours.parts.listened_at == pure.parts.listened_at
    for one in (ours, pure):
        # A waiting of another test would be taken for that of a signal handler which holds others up.
        if one.parts.guard.is_mine:
            one.parts.guard.release()


def test_a_plain_message_goes_without_the_twin_when_no_look_is_due():
    ours, pure = both()
    for one in (ours, pure):
        one.publish("plain", b"1")
        one.publish("plain", b"2")
        one.publish("plain", b"3")
    sent = [("socket", b"plain", payload, 1) for payload in (b"1", b"2", b"3")]
    assert ours.log == pure.log == ["listen", sent[0], "listen", "in use", *sent[1:]]


def test_a_send_during_which_somebody_looked_is_followed_by_a_look():
    ours, pure = both()
    for one in (ours, pure):
        one.publish("plain", b"1")
        one.publish("plain", b"2")
        one.parts.notices = True
        one.publish("plain", b"3")
    assert ours.log == pure.log
    assert ours.log[-2:] == [("socket", b"plain", b"3", 1), "listen"]


@each("given", [(), ("wanted", b"x", None, 1)])
def test_a_wrong_number_of_arguments_is_the_error_of_the_twin(given):
    ours, pure = both()
    assert ours.call(given, {}) == pure.call(given, {}) == ours.call(given, {})


def test_a_publisher_that_looks_for_itself_does_so_as_often_as_the_twin():
    ours, pure = both(looks=True)
    for one in (ours, pure):
        for _ in range(3 * LOOK_EVERY + 1):
            one.publish("unwanted", b"")
    assert ours.log == pure.log == ["listen", "in use"]
    assert ours.stats.unwanted == pure.stats.unwanted == 3 * LOOK_EVERY + 1


def test_a_count_beyond_what_c_counts_goes_on():
    ours, pure = both()
    for one in (ours, pure):
        one.stats.unwanted = 2**63 - 2
        for _ in range(3):
            one.publish("unwanted", b"")
        one.stats.sent = 2**63 - 2
        for _ in range(4):
            one.publish("plain", b"")
    assert ours.stats.unwanted == pure.stats.unwanted == 2**63 + 1
    assert ours.stats.sent == pure.stats.sent == 2**63 + 2


def test_parts_without_the_slots_are_refused_when_it_is_made():
    with pytest.raises(TypeError, match="is_blocked"):
        HOT.Publish(
            twin=print,
            flush=print,
            quick={},
            waiting=[],
            dispatch=SimpleNamespace(is_blocked=False),
            accumulator=Accumulator([]),
            stats=PublisherStats(),
            sender=None,
            guard=Guard(),
            monotonic=print,
            socket="socket",
            error=zmq.ZMQError,
            alone=None,
            large=1,
            look_every=0,
            listen_every=0.0,
        )


def test_it_leads_to_its_twin_and_goes_with_the_publisher():
    ours, _ = both()
    assert callable(ours.publish.__wrapped__)
    gone = weakref.ref(ours.accumulator.__class__)  # a class may be referred to, a slotted object not
    assert gone() is Accumulator
    before = len(gc.get_objects())
    for _ in range(100):
        # In a circle, as a publisher's engine is.
        one, _ = both()
        one.quick["itself"] = one
    del one
    gc.collect()
    assert len(gc.get_objects()) - before < 100


def test_messages_leave_no_reference_behind():
    ours, _ = both()
    # Its own, which no publisher of another test refers to.
    payload, way = b"payload", (object(), bytes(bytearray(b"wanted")))
    ours.quick["wanted"] = way

    def work():
        for _ in range(3):
            ours.publish("wanted", payload)
        ours.publish("unwanted", payload)
        ours.publish("plain", payload)
        ours.log.clear()

    work()
    gc.collect()
    before = sys.getrefcount(payload), sys.getrefcount(way), sys.getrefcount(way[0]), sys.getrefcount(None)
    for _ in range(size(1_000, 1_000_000)):
        work()
    gc.collect()
    after = sys.getrefcount(payload), sys.getrefcount(way), sys.getrefcount(way[0]), sys.getrefcount(None)
    assert after[:3] == before[:3]
    assert abs(after[3] - before[3]) < 100
