"""Messages that the compiled part hands over, held to its twin."""

import ctypes
import gc
from types import SimpleNamespace

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from compiled.handed import Publisher, Sink, both
from oz.compiled import HOT
from oz.protocol.publisher.backlog import WATCHED_FROM
from oz.transport.backend import PYZMQ
from oz.transport.guard import Guard
from oz.transport.publisher.sink import PlainFrames

pytestmark = [pytest.mark.skipif(HOT is None, reason="the compiled part does not run"), pytest.mark.sized]


errors = st.sampled_from([None, zmq.Again(), zmq.ZMQError(zmq.ETERM), KeyboardInterrupt(), ValueError("x")])


payloads = st.sampled_from([b"", b"x", b"x" * (WATCHED_FROM - 1), b"x" * WATCHED_FROM, (b"x", b"y")])


calls = st.tuples(
    payloads, st.sampled_from([0, int(zmq.NOBLOCK)]), st.lists(errors, max_size=3), st.booleans()
)


@given(st.lists(calls, max_size=8))
def test_messages_are_handed_over_as_by_the_twin(steps):
    ours, pure = both()
    for payload, flags, raised, is_lossless in steps:
        results = []
        for one in (ours, pure):
            one.errors, one.guard.is_wanted, one.sink._is_lossless = list(raised), False, is_lossless
            results.append(one.call(b"subject", payload, flags))
            assert not one.guard.is_mine
            assert one.guard.is_wanted
        assert results[0] == results[1]
        assert ours.log == pure.log
        assert ours.errors == pure.errors


def test_in_the_child_of_a_fork_nothing_is_handed_over():
    for one in both():
        one.guard.disown()
        assert "OwnershipError" in one.call(b"subject", b"x", 0)
        assert one.log == []


def test_what_is_not_plain_and_wrong_arguments_are_for_the_twin():
    ours, pure = both()
    for wrong in [(bytearray(b"s"), b"x", 0), (b"s", "text", 0), (b"s", b"x", "no flags"), (b"s",)]:
        assert ours.call(*wrong) == pure.call(*wrong)
        assert ours.log == pure.log
    with pytest.raises(TypeError, match="is_wanted"):
        HOT.HandOver(
            twin=print, guard=object(), postponed=(), sink=ours.sink, make_lossy=print, send=print,
            error=zmq.ZMQError, more=2, counted_from=1, sendiov=0, fail=print,
        )  # fmt: skip


@pytest.mark.parametrize("compiled", [True, False])
def test_an_interrupt_before_the_first_frame_goes_leaves_messages_apart(compiled):
    # From C it is pending until pyzmq, or Python, looks for it.
    dispatch = SimpleNamespace(make_lossy=ctypes.pythonapi.PyErr_SetInterrupt)
    with zmq.Context() as context, context.socket(zmq.XPUB) as xpub, context.socket(zmq.SUB) as sub:
        xpub.bind("inproc://here")
        sub.connect("inproc://here")
        sub.subscribe(b"")
        assert xpub.recv() == b"\x01"
        sink = Sink([])
        plain = PlainFrames(Guard(), dispatch, sink, PYZMQ)
        hand_over = plain.shortest() if compiled else plain.hand_over
        with pytest.raises(KeyboardInterrupt):
            hand_over(xpub, b"a", b"first", 0)
        xpub.send_multipart([b"b", b"second"])
        messages = [sub.recv_multipart()]
        if messages[0][0] == b"a":
            messages.append(sub.recv_multipart())
        assert messages in ([[b"b", b"second"]], [[b"a", b"first"], [b"b", b"second"]])


@pytest.mark.parametrize("compiled", [True, False])
def test_what_cannot_be_handed_over_raises_as_pyzmq_does(compiled):
    with zmq.Context() as context, context.socket(zmq.XPUB) as xpub, context.socket(zmq.SUB) as sub:
        xpub.set(zmq.SNDHWM, 1)
        xpub.set(zmq.XPUB_NODROP, 1)
        sub.set(zmq.RCVHWM, 1)
        xpub.bind("inproc://here")
        sub.connect("inproc://here")
        sub.subscribe(b"")
        assert xpub.recv() == b"\x01"
        sink = Sink([])
        sink._is_lossless = False
        plain = PlainFrames(Guard(), sink, sink, PYZMQ)
        hand_over = plain.shortest() if compiled else plain.hand_over
        for _ in range(2):
            hand_over(xpub, b"a", b"payload", zmq.NOBLOCK)
        with pytest.raises(zmq.Again):
            hand_over(xpub, b"a", b"payload", zmq.NOBLOCK)
        assert sub.recv_multipart() == [b"a", b"payload"]
        xpub.close()
        with pytest.raises(zmq.ZMQError) as refused:
            hand_over(xpub, b"a", b"payload", zmq.NOBLOCK)
        assert refused.value.errno == zmq.ENOTSOCK


def test_what_hands_over_goes_with_the_publisher():
    before = len(gc.get_objects())
    for _ in range(100):
        one = Publisher(compiled=True)
        one.guard.when_disowned = one.call
    del one
    gc.collect()
    assert len(gc.get_objects()) - before < 100
