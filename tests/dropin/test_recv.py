"""`recv` of a drop-in SUB, frame by frame. The compiled part does most of it; with OZ_COMPILED=0 Python does all."""

import gc
import itertools
import os
import signal
import sys
import threading

import pytest
import zmq

import oz
from oz.compiled import HOT
from support.alarms import alarms
from support.waiting import DEADLINE, Thread


@pytest.mark.parametrize(
    "receive",
    [
        lambda sub: sub.recv(),
        lambda sub: sub.recv(0),
        lambda sub: sub.recv(zmq.Flag(0), True, False),
        lambda sub: sub.recv(flags=0, copy=True, track=False),
        lambda sub: sub.recv(**{"".join(["fl", "ags"]): 0, "".join(["co", "py"]): 1}),
        lambda sub: sub.recv(track=True),
        lambda sub: sub.recv(copy=False).bytes,
        lambda sub: sub.recv(0, copy=False, track=True).bytes,
        lambda sub: oz.SubSocket.recv(sub, 0),
        lambda sub: zmq.Socket.recv_string(sub).encode(),
    ],
)
@pytest.mark.parametrize("patterns", [("a.*", "end"), ("a.*", "end", b"a.b"), (b"a.",)])
def test_all_forms_of_the_arguments_are_taken(make_sub, publisher, receive, patterns):
    sub = make_sub(*patterns)
    for number in range(4):
        if patterns != (b"a.",):
            publisher.send(f"a.c.{number}", "1")
        publisher.send("a.b", str(number))
    for number in range(4):
        assert receive(sub) == b"a.b"
        assert sub.rcvmore
        assert receive(sub) == b"%d" % number
        assert not sub.rcvmore


def test_wrong_arguments_are_refused_as_by_pyzmq(make_sub, publisher, context):
    for sub in (make_sub("a.*"), make_sub(b"a.")):
        publisher.send("a.b")
        with context.socket(zmq.SUB) as plain:
            calls = [
                ((1, True, False, 0), {}), ((0,), {"flags": 0}), ((), {"flag": 0}), ((), {"flags": "0"}),
                ((None,), {}), ((1 << 70,), {}),
            ]  # fmt: skip
            for arguments, names in calls:
                with pytest.raises((TypeError, OverflowError)) as expected:
                    plain.recv(*arguments, **names)
                with pytest.raises(expected.type):
                    sub.recv(*arguments, **names)
            with pytest.raises((TypeError, AttributeError)):
                oz.SubSocket.recv(plain)
            with pytest.raises(TypeError):
                oz.SubSocket.recv()
        assert sub.recv() == b"a.b"


def shapes(alphabet, maximum):
    """Return all byte strings of up to `maximum` items of an alphabet."""
    for size in range(maximum + 1):
        for items in itertools.product(alphabet, repeat=size):
            yield b"".join(items)


@pytest.mark.parametrize(
    ("dialect", "patterns"),
    [
        ("nats", [">"]), ("nats", ["*"]), ("nats", ["*.*"]), ("nats", ["*.>"]), ("nats", ["*.a.*"]),
        ("nats", ["*.a.>"]), ("nats", ["*.*.a"]), ("nats", ["*.\u00e9"]), ("nats", ["*.a", "a.*", "b"]),
        ("nats", ["*.b", "*", "*.*.*", "*.a.>"]), ("nats", ["*.a", "a.a", "b.b", "a.>", "b.>"]),
        ("kubemq", ["*.a*"]), ("kubemq", ["*.a*", "*.b"]), ("raims.rv", ["*.a"]), ("mqtt", ["+"]),
        ("nats", ["*.a", b"b."]), ("nats", ["*.a", b"b\xc3"]), ("redis", ["ab", "*.b"]),
        ("kubemq", ["*.a", "b.a*"]), ("nats", ["*.a", oz.compile("*b", "redis")]), ("rv", ["*.*", "a.b.>"]),
        ("redis", ["*a?"]),
    ],
)  # fmt: skip
def test_a_subject_is_received_if_a_pattern_matches_it(context, dialect, patterns):
    """Each subject of a small alphabet, also with empty tokens, text beyond ASCII and no text at all."""
    compiled = [oz.compile(item, "zmq" if isinstance(item, bytes) else dialect) for item in patterns]
    subjects = list(shapes([b"a", b"b", b".", b"\xc3\xa9", b"\xff"], 5))

    def matches(pattern, subject):
        try:
            return pattern.matches(subject)
        except oz.SubjectError:
            return False

    def is_wanted(subject):
        return any(matches(pattern, subject) for pattern in compiled)

    with context.socket(zmq.PUB) as pub, oz.SubSocket(context, dialect=dialect) as sub:
        sub.rcvhwm = pub.sndhwm = 0
        pub.bind("inproc://subjects")
        sub.connect("inproc://subjects")
        for pattern in patterns:
            sub.subscribe(pattern)
        for subject in subjects:
            pub.send(subject)
        pub.send_multipart([next(filter(is_wanted, subjects)), b"end"])
        found = [sub.recv()]
        while not sub.rcvmore:
            found.append(sub.recv())
    assert found[:-1] == [*filter(is_wanted, subjects)]


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("timeout", [-1, int(DEADLINE * 1000)])
def test_a_wait_goes_on_after_refused_messages(make_sub, publisher, copies, timeout):
    """While it waits other threads run: the test would hang otherwise."""
    sub = make_sub("a.*")
    sub.rcvtimeo = timeout
    received = Thread(lambda: sub.recv(copy=copies))
    for _ in range(3):
        received.wait_until_stuck()
        publisher.send("a.b.c", "x")
    received.wait_until_stuck()
    publisher.send("a.b", "y")
    found = received.outcome()
    assert (found if copies else found.bytes) == b"a.b"
    assert sub.recv() == b"y"


# Closed sockets and signals -----------------------------------------------------------------------


@pytest.mark.parametrize("receive", [lambda sub: sub.recv(), lambda sub: sub.recv(copy=False)])
@pytest.mark.parametrize("patterns", [("a.*",), (b"a.",)])
def test_a_socket_that_another_thread_closed_says_so(make_sub, publisher, receive, patterns):
    sub = make_sub(*patterns)
    publisher.send("a.b", "1")
    assert receive(sub)
    Thread(sub.close).outcome()
    for _ in range(3):
        with pytest.raises(zmq.ZMQError) as raised:
            receive(sub)
        assert raised.value.errno == zmq.ENOTSOCK


@pytest.mark.parametrize("receive", [lambda sub: sub.recv(), lambda sub: sub.recv(copy=False)])
def test_a_closed_socket_does_not_receive_from_a_new_one_in_the_same_memory(context, receive):
    with context.socket(zmq.PUB) as pub:
        pub.bind("inproc://memory")
        address, closed, others = 0, None, []
        while closed is None or all(other.underlying != address for other in others):
            closed = oz.SubSocket(context, dialect="nats")
            closed.subscribe("*")
            address = closed.underlying
            closed.close()
            # libzmq frees it in a thread of its own.
            others += [context.socket(zmq.SUB) for _ in range(20)]
            if len(others) > 600:
                pytest.skip("the memory was not used again")
        other = next(item for item in others if item.underlying == address)
        other.connect("inproc://memory")
        other.subscribe("")
        other.rcvtimeo = int(DEADLINE * 1000)
        pub.send(b"a")
        assert other.poll(DEADLINE * 1000)
        with pytest.raises(zmq.ZMQError) as raised:
            receive(closed)
        assert raised.value.errno == zmq.ENOTSOCK
        assert other.recv() == b"a"
        for item in others:
            item.close()


def test_the_end_of_the_context_ends_a_wait_and_a_message():
    context = zmq.Context()
    pub, sub = context.socket(zmq.XPUB), oz.SubSocket(context, dialect="nats")
    pub.bind("inproc://end")
    sub.connect("inproc://end")
    sub.subscribe("a.*")
    assert pub.recv() == b"\1a."
    received = threading.Event()

    def receive():
        try:
            assert sub.recv() == b"a.b"
            received.set()
            sub.recv()
            sub.recv()
        finally:
            pub.close(0)
            sub.close(0)

    waiting = Thread(receive)
    pub.send_multipart([b"a.b", b"1"])
    assert received.wait(DEADLINE)
    waiting.wait_until_stuck()
    context.term()
    with pytest.raises(zmq.ContextTerminated):
        waiting.outcome()


class Interruption(Exception):
    """Raised by the signal handler."""


needs_timers = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="the system has no interval timers"
)


@needs_timers
def test_a_handler_that_raises_ends_a_wait_and_nothing_is_lost(make_sub, publisher):
    sub = make_sub("a.*", "end")

    def handle(number, frame):
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise Interruption

    for number in range(20):
        is_armed = True
        with pytest.raises(Interruption), alarms(handle, 0.005):
            sub.recv()
        publisher.send("a.b.c", "x")
        publisher.send(f"a.{number}", "1", "2")
        assert sub.recv() == b"a.%d" % number
        assert sub.recv() == b"1"
        assert sub.recv() == b"2"


@needs_timers
def test_a_handler_may_close_the_socket(make_sub):
    sub = make_sub("a.*")
    with alarms(lambda number, frame: sub.close(0), 0.01), pytest.raises(zmq.ZMQError) as raised:
        sub.recv()
    assert raised.value.errno == zmq.ENOTSOCK


# Memory -------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_makes_a_socket_of_its_own(make_sub, publisher):
    sub = make_sub("a.*")
    publisher.send("a.1")
    assert sub.recv() == b"a.1"
    if (child := os.fork()) == 0:
        status = 1
        try:
            sub.close()
            with zmq.Context() as context, context.socket(zmq.PUB) as pub:
                pub.bind("inproc://child")
                with oz.SubSocket(context, dialect="nats") as own:
                    own.connect("inproc://child")
                    own.subscribe("b.*")
                    pub.send(b"b.c.d")
                    pub.send(b"b.c")
                    status = int(own.recv() != b"b.c")
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    publisher.send("a.2")
    assert sub.recv() == b"a.2"


@pytest.mark.skipif(HOT is None, reason="the compiled part does not run")
def test_no_reference_stays_of_received_frames(context):
    """Counts those that the C code handles by hand: the state's True and False, the socket, its state, the subjects."""
    with context.socket(zmq.PUB) as pub, oz.SubSocket(context, dialect="nats") as sub:
        sub.rcvhwm = pub.sndhwm = 0
        pub.bind("inproc://references")
        sub.connect("inproc://references")
        sub.subscribe("*.b")
        sub.subscribe(oz.compile("x?", "redis"))
        watched = [
            sub,
            sub._reading,
            sub._reading.filter,
            sub._reading.rules,
            zmq.NOBLOCK,
            oz.SubSocket.recv,
            *held(),
        ]

        def work():
            for number in range(1000):
                pub.send_multipart([b"a.b.c", b"refused"])
                pub.send_multipart([b"x%d" % (number % 10), b"\xff" * 600])
                pub.send_multipart([b"xyz%d" % number, b""])
            for _ in range(1000):
                frames = [sub.recv(zmq.NOBLOCK), sub.recv(copy=False), zmq.Socket.recv]
                assert len(frames[1].bytes) == 600
                with pytest.raises(zmq.Again):
                    empty.recv(zmq.NOBLOCK)
                with pytest.raises(TypeError):
                    sub.recv("wrong")

        with oz.SubSocket(context, dialect="nats") as empty:
            empty.subscribe("a.*")
            work()
            # A leak grows in each round. Threads of other tests change the counts of None, True and False in some.
            grown = [_growth(work, watched) for _ in range(3)]
        assert min(blocks for _, blocks in grown) < 500
        minimum = [min(counts, key=abs) for counts in zip(*(counts for counts, _ in grown), strict=True)]
        assert max(map(abs, minimum)) < 100, dict(zip(map(repr, watched), minimum, strict=True))


def _growth(work, watched):
    """Return by how much references to objects, and blocks of memory, grow."""
    gc.collect()
    before, blocks = [sys.getrefcount(item) for item in watched], sys.getallocatedblocks()
    work()
    gc.collect()
    after = [sys.getrefcount(item) for item in watched]
    return [
        item - other for item, other in zip(after, before, strict=True)
    ], sys.getallocatedblocks() - blocks


def held():
    """Return objects that every frame refers to, if their references are counted."""
    return [] if sys.version_info >= (3, 12) else [True, False, None]
