"""Lone messages are read and given by the compiled part as its Python twin does it."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from math import inf

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from compiled.handed import raised
from compiled.lone_frames import A, decoder, frame, shown, standing
from oz.compiled import HOT
from oz.transport.guard import StrictGuard
from oz.transport.subscriber import receive_path
from oz.transport.subscriber.receive_path import ReceivePath
from support.sizes import size

pytestmark = [pytest.mark.skipif(HOT is None, reason="the compiled part does not run"), pytest.mark.sized]


class Declarer:
    __slots__ = ("due_at", "flush", "hasten", "is_settled", "look")

    def __init__(self):
        self.due_at, self.is_settled = inf, True


class Subscriber:
    """What takes messages, and what it needs; `read` gives in turn what stands in `line`."""

    closed = False

    def __init__(self, *, compiled):
        self.log, self.line, self.guard, self.now = [], [], StrictGuard(), 10.0
        self.decoder = decoder()
        self.declarer = Declarer()
        self.declarer.look = lambda now: self.log.append("look")
        self.declarer.hasten = self._hasten
        self.declarer.flush = self._flush
        receive_path.HOT = HOT if compiled else None
        try:
            self.path = ReceivePath(self.guard, self, self._read, self.decoder, self.declarer)
            self.take = self.path.shortest()
        finally:
            receive_path.HOT = HOT
        assert (type(self.take) is HOT.TakeLone) is compiled

    def _hasten(self, seconds):
        self.log.append("hasten")
        self.declarer.is_settled = False

    def _flush(self):
        self.log.append("flush")
        self.decoder.streams.is_collecting = False

    def get(self, socket, option):
        return False

    def recv(self, socket, flags):
        raise AssertionError("nothing is to be skipped")

    def time_ns(self):
        return 10**18 + len(self.log)

    def monotonic(self):
        return self.now

    def _read(self, socket, flags):
        self.log.append((flags, self.guard.is_mine))
        if len(self.log) > 200:
            raise KeyError("it reads for ever")
        found = self.line.pop(0) if self.line else zmq.ZMQError(zmq.ETERM)
        if isinstance(found, BaseException):
            raise found
        return list(found)

    def call(self, *given):
        try:
            return shown(self.take(self, *given))
        except BaseException as error:
            return repr(error)


def arriving():
    """What comes: frames in order and others, and errors."""
    return st.sampled_from([0, 1, 2, 3, "unwanted", "malformed", "two", "again"]) | raised


def as_frames(one):
    if isinstance(one, BaseException):
        return one
    if one == "again":
        return zmq.Again()
    if isinstance(one, int):
        return [frame(one)]
    wanted = {"unwanted": b"c", "two": b"a.b"}
    if one == "malformed":
        return [b"?"]
    return [frame(0, wanted[one], epoch=2), *([b"more"] if one == "two" else [])]


changes = st.fixed_dictionaries(
    {},
    optional={
        "due_at": st.sampled_from([5.0, 15.0, inf]),
        "is_settled": st.booleans(),
        "is_collecting": st.just(True),
        "streams_due_at": st.sampled_from([-inf, 1.0]),
        "look_at": st.sampled_from([0, 2 * 10**18, 2**70]),
    },
)


def adjust(one, changed):
    values = dict(changed)
    for name, (holder, slot) in {
        "due_at": (one.declarer, "due_at"),
        "is_settled": (one.declarer, "is_settled"),
        "is_collecting": (one.decoder.streams, "is_collecting"),
        "streams_due_at": (one.decoder.streams, "due_at"),
        "look_at": (one.path, "_look_at"),
    }.items():
        if name in values:
            setattr(holder, slot, values[name])


@given(
    st.lists(st.tuples(arriving(), changes), max_size=8),
    st.sampled_from([(1,), (1, None), (1, 2.0), (1, 20.0), (), ("x", 0, 0)]),
)
def test_messages_are_taken_as_by_the_twin(line, given_too):
    ours, pure = Subscriber(compiled=True), Subscriber(compiled=False)
    for one in (ours, pure):
        one.line = [as_frames(arrival) for arrival, _ in line]
    for _, changed in [*line, (None, {})]:
        for one in (ours, pure):
            adjust(one, changed)
        assert ours.call(*given_too) == pure.call(*given_too)
        assert ours.log == pure.log
        assert standing(ours.decoder) == standing(pure.decoder)
        assert ours.path._look_at == pure.path._look_at
        assert not ours.guard.is_mine
        assert not pure.guard.is_mine


def test_what_is_left_of_a_message_is_taken_before_an_exception_goes_on():
    for compiled in (True, False):
        one = Subscriber(compiled=compiled)
        one.line, left = [KeyboardInterrupt()], [b"rest", b"of it"]
        one.get = lambda socket, option, left=left: bool(left)
        one.recv = lambda socket, flags, left=left: left.pop()
        assert one.call(1) == "KeyboardInterrupt()"
        assert left == []
        assert not one.guard.is_mine


def test_another_thread_and_the_child_of_a_fork_are_refused():
    for compiled in (True, False):
        one = Subscriber(compiled=compiled)
        with one.guard, ThreadPoolExecutor(1) as other:
            assert "another thread" in other.submit(one.call, 1).result()
        one.guard.disown()
        assert "before a fork" in one.call(1)
        assert one.log == []


def test_taking_leaves_no_reference_behind():
    taking = Subscriber(compiled=True)
    number = 0
    payload = b"payload"

    def work():
        nonlocal number
        taking.line += [[frame(number, b"a.b", payload)], [b"?"], zmq.Again(), KeyError("x")]
        number += 1
        for _ in range(3):
            taking.call(1)
        taking.log.clear()

    work()
    (stream,) = taking.decoder.streams.by_key.values()
    route, source = stream.table.routes[b"a.b"], stream.sources[A]
    gc.collect()
    before = [sys.getrefcount(one) for one in (route, source, stream)]
    for _ in range(size(1_000, 100_000)):
        work()
    gc.collect()
    after = [sys.getrefcount(one) for one in (route, source, stream)]
    assert all(abs(then - now) < 100 for then, now in zip(before, after, strict=True))
