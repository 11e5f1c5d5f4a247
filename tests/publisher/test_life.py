"""The life of a publisher: close, forks, the end of the program, garbage, interruptions, floods."""

import gc
import os
import signal
import subprocess
import sys
import time
import warnings

import pytest
import zmq

import oz.publisher.sync
from oz.errors import ClosedError, OwnershipError
from oz.publisher.sessions import Sessions
from oz.transport.endpoints import EndpointError
from oz.wire import links
from support.waiting import Thread, until


def test_close_waits_for_acknowledgements(make, join):
    publisher = make()
    peer = join(publisher, "a")
    for number in range(5_000):
        publisher.publish("a", b"%d" % number)
    thread = peer.in_background(lambda: peer.link.state == "ended")
    assert publisher.close() == 0
    thread.outcome()
    assert peer.payloads == [b"%d" % number for number in range(5_000)]
    assert peer.gaps == []
    assert publisher.close() == 0


def test_close_counts_what_was_not_acknowledged(make, join):
    publisher = make()
    peer = join(publisher, "a")
    peer.is_acking = False
    for _ in range(10):
        publisher.publish("a", b"")
    assert publisher.close(timeout=0.1) == 10


def test_close_reports_the_loss_to_the_subscriber(make, join):
    publisher = make(resume_bytes=100, high_water_mark=100)
    peer = join(publisher, "a")
    peer.is_acking = False
    for _ in range(50):
        publisher.publish("a", b"x" * 100)
        publisher.flush()
    left = publisher.close(timeout=0)
    peer.until(lambda: peer.link.state == "ended")
    assert left == 50
    assert len(peer.messages) + sum(gap.count for gap in peer.gaps) == 50


def test_close_counts_each_message_once(make, join):
    publisher = make(resume_bytes=100, high_water_mark=100)
    join(publisher, "a").is_acking = False
    for _ in range(50):
        publisher.publish("a", b"x" * 100)
        publisher.flush()
    assert publisher.close(timeout=0) == 50
    stats = publisher.stats
    assert stats.dropped["full"] > 0
    assert stats.given_up + sum(stats.dropped.values()) == 50


def test_close_does_not_wait_for_a_session_that_is_silent(make, join):
    publisher = make()
    join(publisher, "a")
    publisher.publish("a", b"x")
    # The subscriber is not turned: its session counts as silent after a second.
    assert Thread(lambda: publisher.close(timeout=None)).outcome() == 1


def test_a_closed_publisher_refuses(make, join):
    publisher = make()
    join(publisher, "a")
    publisher.publish("a", b"")
    publisher.close(timeout=0)
    for call in (
        lambda: publisher.publish("a", b""),
        lambda: publisher.publish("b", b""),
        publisher.flush,
        lambda: publisher.has_subscribers("a"),
        publisher.wait_for_subscribers,
        lambda: publisher.bind("tcp://127.0.0.1:*"),
        lambda: publisher.publish_many([("a", b"")]),
    ):
        with pytest.raises(ClosedError):
            call()
    assert publisher.subscribers == []
    assert publisher.endpoint is None
    assert publisher.stats.published == 1


CALLS = {
    "publish": lambda publisher: publisher.publish("a", b"x"),
    "publish_many": lambda publisher: publisher.publish_many([("a", b"x")]),
    "flush": lambda publisher: publisher.flush(),
    "report_loss": lambda publisher: publisher.report_loss(1),
    "bind": lambda publisher: publisher.bind("tcp://127.0.0.1:*"),
    "connect": lambda publisher: publisher.connect("tcp://127.0.0.1:9"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("end", ["term", "destroy"])
def test_the_end_of_its_context_is_a_closed_error_in_each_call(make, loop_of, caplog, end, call):
    context, foreign = zmq.Context(), zmq.Context()
    publisher = make(context=context)
    plain = foreign.socket(zmq.SUB)
    plain.subscribe(b"")
    plain.connect(publisher.endpoint)
    publisher.wait_for_subscribers("a")
    publisher.publish("a", b"first")
    assert plain.recv_multipart() == [b"a", b"first"]

    def destroy():
        # `destroy` is not thread-safe: no other thread may be inside a call of a socket.
        with getattr(publisher, "raw", publisher)._engine.lock:
            context.destroy(0)

    def is_closed():
        try:
            CALLS[call](publisher)
        except ClosedError:
            return True
        return False

    ending = Thread(context.term) if end == "term" else Thread(lambda: loop_of(publisher)(destroy))
    if end == "destroy":
        ending.outcome()
    until(is_closed)
    ending.outcome()
    assert publisher.close() == 0
    assert publisher.stats.published >= 1
    assert caplog.records == []
    plain.close(0)
    foreign.term()


def test_close_is_the_first_call_after_the_end_of_the_context(make, loop_of, caplog):
    context = zmq.Context()
    publisher = make(context=context)

    def destroy():
        with getattr(publisher, "raw", publisher)._engine.lock:
            context.destroy(0)

    loop_of(publisher)(destroy)
    assert publisher.close() == 0
    assert caplog.records == []


def test_close_ends_waits(make):
    publisher = make()
    thread = Thread(lambda: publisher.wait_for_subscribers(timeout=None))
    until(lambda: publisher.raw._engine.waiters if hasattr(publisher, "raw") else publisher._engine.waiters)
    publisher.close()
    with pytest.raises(ClosedError):
        thread.outcome()


def test_a_publisher_without_endpoint(make):
    publisher = make(None)
    publisher.publish("a", b"")
    assert (publisher.endpoint, publisher.stats.unmatched) == (None, 1)
    assert publisher.close() == 0


def test_a_terminated_context_closes_the_publisher(make, join):
    context = zmq.Context()
    publisher = make(context=context)
    join(publisher, "a")
    publisher.publish("a", b"")
    Thread(context.term).outcome()

    def publish():
        for _ in range(10_000):
            publisher.publish("a", b"")
            publisher.flush()

    with pytest.raises(ClosedError):
        publish()
    assert publisher.close() == 0


def test_a_closed_publisher_frees_its_descriptors(make, join):
    publisher = make()
    publisher.close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        made = make()
        made.close()
    del made
    gc.collect()
    # One socket pair for each publisher would be 40 more.
    assert len(os.listdir("/proc/self/fd")) < before + 30


# forks


def in_child(work):
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def refuses(call):
    try:
        call()
    except OwnershipError:
        return
    raise AssertionError(call)


def test_a_forked_child_is_refused(make, join):
    publisher = make()
    raw = getattr(publisher, "raw", publisher)
    peer = join(publisher, "a")
    publisher.publish("a", b"0")
    peer.receive(1)

    def child():
        for call in (
            lambda: raw.publish("a", b"child"),
            lambda: raw.publish("b", b"child"),
            raw.flush,
            lambda: raw.has_subscribers("a"),
            lambda: raw.bind("tcp://127.0.0.1:*"),
        ):
            refuses(call)
        assert raw.subscribers == []
        if isinstance(raw, oz.publisher.sync.Publisher):
            assert raw.close() == 0
            refuses(raw.wait_for_subscribers)

    in_child(child)
    for number in range(1, 100):
        publisher.publish("a", b"%d" % number)
    assert peer.receive(100) == [b"%d" % number for number in range(100)]
    assert peer.gaps == []


def test_a_child_has_publishers_of_its_own(make, join):
    make()

    def child():
        own = oz.publisher.sync.Publisher("tcp://127.0.0.1:*")
        peer = join(own, "a")
        own.publish("a", b"x")
        assert peer.receive(1) == [b"x"]
        own.close(timeout=0)

    in_child(child)


# the end of the program

PROGRAM = """
import asyncio, sys, zmq
import oz.publisher.{module} as module
from publisher.scripted import Peer

def open_publisher():
    global publisher, peer
    publisher = module.Publisher("tcp://127.0.0.1:*")
    peer = Peer(publisher.link_endpoints[0], "a")

async def main():
    open_publisher()
    await publisher.wait_for_subscribers("a")
    await publisher.publish("a", b"x")

if "{module}" == "aio":
    asyncio.run(main())
else:
    open_publisher()
    publisher.wait_for_subscribers("a")
    publisher.publish("a", b"x")
{end}
"""


@pytest.mark.parametrize("end", ["sys.exit(7)", "del publisher; sys.exit(7)", "1 / 0"])
def test_a_program_that_forgets_close_ends(kind, end):
    program = PROGRAM.format(module="aio" if kind == "asyncio" else "sync", end=end)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(("tests", "."))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, timeout=60, capture_output=True, text=True
    )
    assert done.returncode == (1 if end == "1 / 0" else 7), done.stderr
    assert ("ZeroDivisionError" in done.stderr) is (end == "1 / 0")
    assert "Fatal" not in done.stderr


DAEMON = """
import atexit, threading

def publish_in_a_daemon():
    # As if the thread had looked up the recipients before `close`.
    publisher._engine.quick["a"] = way
    thread = threading.Thread(target=publisher.publish, args=("a", b""), daemon=True)
    thread.start()
    thread.join()
    print("joined")

atexit.register(publish_in_a_daemon)
from oz.publisher.sync import Publisher
from oz import Subscriber

publisher = Publisher("tcp://127.0.0.1:*")
subscriber = Subscriber(publisher.endpoint)
subscriber.subscribe("a")
publisher.wait_for_subscribers()
publisher.publish("a", b"")
way = publisher._engine.quick["a"]
"""


def test_a_daemon_thread_that_publishes_at_the_end_of_a_program_prints_nothing():
    done = subprocess.run([sys.executable, "-c", DAEMON], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "joined\n", "")


def test_a_publisher_that_is_garbage_warns_and_closes(kind):
    if kind == "asyncio":
        pytest.skip("the loop of a test keeps no garbage: see test_asyncio")
    publisher = oz.publisher.sync.Publisher("tcp://127.0.0.1:*")
    endpoint = publisher.endpoint
    with pytest.warns(ResourceWarning, match="unclosed"):  # noqa: PT031
        del publisher
        gc.collect()
    until(lambda: _can_bind(endpoint))


def _can_bind(endpoint):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            oz.publisher.sync.Publisher(endpoint, links=False).close()
    except EndpointError:
        return False
    return True


# interruptions


def test_an_interrupted_publish_leaves_the_publisher_usable(make, join, monkeypatch):
    publisher = make()
    raw = getattr(publisher, "raw", publisher)
    peer = join(publisher, "a")
    publisher.publish("a", b"0")
    peer.receive(1)
    flush = Sessions.flush

    def interrupted(sessions):
        monkeypatch.setattr(Sessions, "flush", flush)
        raise KeyboardInterrupt

    monkeypatch.setattr(Sessions, "flush", interrupted)
    engine = raw._engine
    with pytest.raises(KeyboardInterrupt), raw.batch():
        engine.offer(engine.prepare("a", b"lost"))
    peer.until(lambda: peer.gaps and peer.link.is_answered)
    publisher.publish("a", b"1")
    assert peer.receive(2) == [b"0", b"1"]
    assert peer.lost == [(None, "restarted")]
    assert peer.positions == [0, 2]


@pytest.mark.parametrize("kind", ["sync"])
def test_signals_during_publish(make, join, monkeypatch):
    # Python drops what a signal handler raises in a callback of a weak reference.
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: None)
    publisher = make()
    peer = join(publisher, "a")
    interruptions = 0
    is_publishing = False

    class Interruption(Exception):
        pass

    def interrupt(*_):
        if is_publishing:
            raise Interruption

    def publish_for_a_while():
        # A function, because Python 3.13 does not catch what a signal handler raises at the jump of a loop.
        nonlocal is_publishing
        is_publishing = True
        signal.setitimer(signal.ITIMER_REAL, 0.0007)
        # Python drops what a handler raises in a callback of the garbage collector, so the loop has an end.
        round_ends = time.monotonic() + 0.1
        while time.monotonic() < round_ends:
            publisher.publish("a", b"x")
        is_publishing = False

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        ends = time.monotonic() + 1.0
        while time.monotonic() < ends:
            try:
                publish_for_a_while()
            except Interruption:
                is_publishing = False
                interruptions += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interruptions > 10
    peer.messages.clear()
    thread = peer.in_background(lambda: b"last" in peer.payloads)
    publisher.wait_for_subscribers("a")
    publisher.publish("a", b"last")
    thread.outcome()
    assert peer.link.malformed == 0


# peers that do harm


def test_a_flood_of_a_foreign_peer_does_not_stop_publishing(make, join):
    publisher = make()
    peer = join(publisher, "a")
    context = zmq.Context()
    foreign = context.socket(zmq.DEALER)
    foreign.set(zmq.LINGER, 0)
    foreign.connect(publisher.link_endpoints[0])
    garbage = [b"", b"x" * 100, bytes([links.ACK]), bytes([links.HELLO]) + b"x" * 90, b"\x90", b"\xff"]
    hello = links.Hello(os.urandom(16), os.urandom(16), bytes(16), 1, 0, 0, 64 << 20, 100)
    foreign.send(links.encode_hello(hello))
    is_over = []

    def flood():
        number = 0
        while not is_over:
            foreign.send(garbage[number % len(garbage)])
            foreign.send_multipart([b"a", b"b"])
            number += 1

    thread = Thread(flood)
    for number in range(300):
        publisher.publish("a", b"%d" % number)
        assert peer.receive(number + 1)[-1] == b"%d" % number
    is_over.append(True)
    # What the flood has sent is read to its end, so that the thread can send.
    thread.outcome()
    foreign.close()
    context.term()
    assert publisher.stats.rejected > 100
    assert peer.gaps == []


def test_a_frame_that_no_subscriber_needs_ends_its_connection(make):
    publisher = make()
    context = zmq.Context()
    foreign = context.socket(zmq.DEALER)
    foreign.set(zmq.LINGER, 0)
    foreign.connect(publisher.link_endpoints[0])
    assert foreign.recv() == b""
    foreign.send(b"\xff" * (links.MAX_CONTROL + 1))
    # The probe of the next connection.
    assert foreign.poll(10_000)
    assert foreign.recv() == b""
    foreign.close()
    context.term()


def test_sessions_are_bounded(make, join):
    publisher = make(peers=2)
    first, second = join(publisher, "a"), join(publisher, "a")
    third = join(publisher, "a", ready=False)
    third.until(lambda: links.BYE in third.frames)
    assert len(publisher.subscribers) == 2
    publisher.publish("a", b"x")
    assert first.receive(1) == second.receive(1) == [b"x"]


def test_another_version_is_refused(make, join):
    publisher = make()
    context = zmq.Context()
    foreign = context.socket(zmq.DEALER)
    foreign.connect(publisher.link_endpoints[0])
    hello = links.Hello(os.urandom(16), os.urandom(16), bytes(16), 1, 0, 0, 64 << 20, 100)
    frame = bytearray(links.encode_hello(hello))
    frame[1] = 99
    foreign.send(bytes(frame))
    assert foreign.recv() == b""
    assert links.decode_control(foreign.recv()).reason == links.OTHER_VERSION
    foreign.close(0)
    context.term()


def test_an_idle_publisher_sleeps(make, join):
    publisher = make()
    peer = join(publisher, "a")
    engine = getattr(publisher, "raw", publisher)._engine
    rounds, attend = [], engine.attend

    def count(**arguments):
        rounds.append(1)
        return attend(**arguments)

    engine.attend = count
    pings = peer.frames.count(links.PING)
    peer.until(lambda: peer.frames.count(links.PING) >= pings + 2)
    # One round for each PING and each ACK, and a few for the commands of libzmq.
    assert len(rounds) < 40
    assert publisher.subscribers[0].state == "up"
