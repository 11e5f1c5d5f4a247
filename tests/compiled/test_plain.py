"""Plain messages are read, taken in and handed over by the compiled part as its Python twins do it."""

import gc
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

import oz
from compiled.handed import Publisher, raised
from oz.compiled import HOT, LIBZMQ
from oz.protocol.messages import Message
from oz.protocol.subscriber.receiver import PrefixReceiver, shortest
from oz.sync.subscriptions import Subscription
from oz.transport import frames as reading
from oz.transport.guard import StrictGuard
from oz.transport.subscriber import receiver as receivers
from oz.transport.subscriber.receiver import ReceivePath
from support.sizes import size
from support.waiting import DEADLINE

pytestmark = [pytest.mark.skipif(HOT is None, reason="the compiled part does not run"), pytest.mark.sized]


@pytest.fixture
def pair():
    """A socket that sends, and one that receives."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
        pull.bind("inproc://pair")
        push.connect("inproc://pair")
        pull.rcvtimeo = round(1000 * DEADLINE)
        yield push, pull


def readers(pull):
    """Make a compiled reader and its twin."""
    ours = reading.frame_reader(pull)
    reading.HOT = None
    try:
        pure = reading.frame_reader(pull)
    finally:
        reading.HOT = HOT
    assert type(ours) is HOT.FrameReader
    assert type(pure) is not HOT.FrameReader
    return ours, pure


@pytest.mark.parametrize("frames", [[b""], [b"a", b"b"], [b"a", b"", b"c"], [b"%d" % n for n in range(100)]])
def test_a_reader_gives_all_frames_of_one_message(pair, frames):
    push, pull = pair
    for read in readers(pull):
        push.send_multipart(frames)
        push.send(b"next")
        assert read(pull, 0) == frames
        assert read(pull, zmq.NOBLOCK) == [b"next"]
        with pytest.raises(zmq.Again):
            read(pull, zmq.NOBLOCK)


def test_a_reader_of_a_closed_socket_raises_as_its_twin(pair):
    _, pull = pair
    both = readers(pull)
    pull.close()
    for read in both:
        with pytest.raises(zmq.ZMQError) as raised:
            read(pull, 0)
        assert raised.value.errno == zmq.ENOTSOCK
    with pytest.raises(TypeError, match="takes a socket and flags"):
        both[0](pull)
    with pytest.raises(TypeError, match="int"):
        both[0](pull, "no flags")
    with pytest.raises(ValueError, match="address"):
        HOT.FrameReader(recv=print, socket=0)


def test_a_reader_says_with_its_number_that_there_is_nothing(pair):
    _, pull = pair
    pull.rcvtimeo = 1
    for read in readers(pull):
        for flags in (0, zmq.NOBLOCK):
            with pytest.raises(zmq.Again) as raised:
                read(pull, flags)
            assert raised.value.errno == zmq.EAGAIN


def test_a_reader_of_an_ended_context_raises_as_its_twin():
    context = zmq.Context()
    with context.socket(zmq.PULL) as pull, ThreadPoolExecutor(1) as other:
        both = readers(pull)
        ending = other.submit(context.term)
        for read in both:
            with pytest.raises(zmq.ContextTerminated):
                read(pull, 0)
        pull.close()
        ending.result(DEADLINE)


@contextmanager
def on_alarm(handler):
    """Call something once in this thread while what follows waits; signals come until it has."""
    todo, me = [handler], threading.get_ident()
    has_begun, is_done = threading.Event(), threading.Event()

    def handle(*_):
        if todo:
            todo.pop()()

    def ring():
        has_begun.wait()
        while not is_done.wait(0.01):
            signal.pthread_kill(me, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, handle)
    ringing = threading.Thread(target=ring)
    ringing.start()
    try:
        # What is called may raise from here on.
        has_begun.set()
        yield
    finally:
        is_done.set()
        ringing.join()
        signal.signal(signal.SIGALRM, before)


def test_a_signal_handler_runs_while_a_reader_waits(pair):
    push, pull = pair
    for read in readers(pull):
        with on_alarm(lambda: push.send_multipart([b"a", b"by the handler"])):
            assert read(pull, 0) == [b"a", b"by the handler"]


def test_a_socket_that_is_closed_is_never_used_by_its_address(pair):
    # The address of one and the object of another: what goes by the address finds the first one open.
    _, pull = pair
    given = []
    read = HOT.FrameReader(recv=lambda *how: given.append(how) or b"by pyzmq", socket=pull.underlying)
    with zmq.Context() as context:
        other = context.socket(zmq.PULL)
        other.close()
        assert read(other, 0) == [b"by pyzmq"]
    assert given == [(other, 0)]


def test_what_libzmq_it_calls_is_told_whole():
    for wrong in [(), (1, 2, 3), ((1,) * 7, property(), zmq.Again)]:
        with pytest.raises(TypeError):
            HOT.know_libzmq(*wrong)
    with pytest.raises(ValueError, match="nine functions"):
        HOT.know_libzmq((0,) * len(LIBZMQ), property(), zmq.Again)
    with pytest.raises(TypeError, match="descriptor"):
        HOT.know_libzmq((1,) * len(LIBZMQ), 1, zmq.Again)


class Codec:
    def encode(self, payload):
        return payload

    def decode(self, payload):
        return payload.decode()


class Denying:
    """Publishers may publish nothing."""

    def allows(self, subject):
        return False


def receiver(codec=None):
    """A receiver with subscriptions: one that listens, one with a handler, one that ends after two."""
    made = PrefixReceiver(codec)
    for pattern, handler, limit in (("a", None, None), ("b", print, None), ("c", None, 2)):
        made.table.add(Subscription([oz.compile(pattern)], handler, lambda one: None, limit))
    return made


frames = st.lists(
    st.sampled_from([b"a", b"b", b"c", b"d", b"\xff", b""]) | st.binary(max_size=3), min_size=1, max_size=4
)


def shown(message):
    return message and [getattr(message, name) for name in Message.__slots__ if name != "route"]


@given(st.lists(frames | st.just("access"), max_size=20), st.sampled_from([None, Codec()]))
def test_messages_are_taken_in_as_by_the_twin(steps, codec):
    ours, pure = receiver(codec), receiver(codec)
    accept = shortest(ours)
    assert (type(accept) is HOT.Accept) is (codec is None)
    for number, step in enumerate(steps):
        if step == "access":
            for one in (ours, pure):
                one.access = Denying() if one.access is None else None
            continue
        got, expected = accept(list(step), number), pure.accept(list(step), number)
        assert type(got) is type(expected)
        assert shown(got) == shown(expected)
        assert got is None or got.route is ours.table.routes[step[0]]
    assert ours.stats == pure.stats


def test_a_subclass_and_wrong_arguments_are_for_the_twin():
    class Other(PrefixReceiver):
        pass

    assert shortest(Other()).__func__ is PrefixReceiver.accept
    accept = shortest(receiver())
    accept([b"a", b"x"], 0)
    for wrong in [(), ([b"a", b"x"],), ((b"a", b"x"), 0, 0)]:
        with pytest.raises(TypeError):
            accept(*wrong)
    assert accept((b"a", b"x"), 0).payload == b"x"
    with pytest.raises(TypeError, match="received"):
        HOT.Accept(twin=print, receiver=receiver(), routes={}, stats=object())


def test_a_count_beyond_what_c_counts_goes_on():
    one = receiver()
    accept = shortest(one)
    accept([b"a", b"x"], 0)
    one.stats.received, one.stats.delivered = 5, 2**63 - 2
    for _ in range(3):
        accept([b"a", b"x"], 0)
    assert (one.stats.received, one.stats.delivered) == (8, 2**63 + 1)


class Subscriber:
    """What takes messages, and what it needs; `read` gives in turn what stands in `line`."""

    def __init__(self, *, compiled):
        self.log, self.line, self.guard = [], [], StrictGuard()
        self.path = ReceivePath(self.guard, self, self._read, receiver())
        receivers.HOT = HOT if compiled else None
        try:
            self.take = self.path.shortest()
        finally:
            receivers.HOT = HOT
        assert (type(self.take) is HOT.Take) is compiled

    closed = False

    def get(self, socket, option):
        return False

    def recv(self, socket, flags):
        raise AssertionError("nothing is to be skipped")

    def time_ns(self):
        return len(self.log)

    def monotonic(self):
        return float(len(self.log))

    def _read(self, socket, flags):
        self.log.append((flags, self.guard.is_mine))
        found = self.line.pop(0) if self.line else zmq.Again()
        if isinstance(found, BaseException):
            raise found
        return list(found)

    def call(self, *given):
        try:
            return self.take(self, *given)
        except BaseException as error:
            return repr(error)


@given(
    st.lists(frames | raised, max_size=8), st.sampled_from([(0,), (1,), (1, None), (1, 2.0), (), ("x", 0, 0)])
)
def test_messages_are_taken_as_by_the_twin(line, given_too):
    ours, pure = Subscriber(compiled=True), Subscriber(compiled=False)
    for one in (ours, pure):
        one.line = list(line)
    for _ in range(len(line) + 1):
        got, expected = ours.call(*given_too), pure.call(*given_too)
        assert type(got) is type(expected)
        assert got == expected if isinstance(got, str) else shown(got) == shown(expected)
        assert ours.log == pure.log
        assert not ours.guard.is_mine
        assert not pure.guard.is_mine


def test_what_is_left_of_a_message_is_taken_before_an_exception_goes_on():
    for compiled in (True, False):
        one = Subscriber(compiled=compiled)
        one.line, left = [KeyboardInterrupt()], [b"rest", b"of it"]
        one.get = lambda socket, option, left=left: bool(left)
        one.recv = lambda socket, flags, left=left: left.pop()
        assert one.call(0) == "KeyboardInterrupt()"
        assert left == []
        assert not one.guard.is_mine


def test_another_thread_and_the_child_of_a_fork_are_refused():
    for compiled in (True, False):
        one = Subscriber(compiled=compiled)
        with one.guard, ThreadPoolExecutor(1) as other:
            assert "another thread" in other.submit(one.call, 0).result()
        one.guard.disown()
        assert "before a fork" in one.call(0)
        assert one.log == []


def test_messages_leave_no_reference_behind(pair):
    push, pull = pair
    ours, accept, (read, _) = Publisher(compiled=True), shortest(receiver()), readers(pull)
    taking = Subscriber(compiled=True)
    payload, subject = b"payload", b"a"

    def work():
        ours.hand_over("socket", subject, payload, 0)
        ours.errors[:] = [None, KeyError("x")]
        ours.call(subject, payload, 0)
        ours.log.clear()
        accept([subject, payload], 0)
        push.send_multipart([subject, payload])
        read(pull, 0)
        taking.line += [[subject, payload], [b"unwanted", payload], zmq.Again(), KeyError("x")]
        for _ in range(3):
            taking.call(0)
        taking.log.clear()

    work()
    # What earlier tests have left in circles refers to None too.
    gc.collect()
    before = [sys.getrefcount(one) for one in (payload, subject, None, True)]
    for _ in range(size(1_000, 100_000)):
        work()
    gc.collect()
    after = [sys.getrefcount(one) for one in (payload, subject, None, True)]
    assert all(abs(then - now) < 100 for then, now in zip(before, after, strict=True))
