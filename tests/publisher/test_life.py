"""Life cycle of a publisher: close, end of the program, garbage, idle publisher."""

import gc
import os
import subprocess
import sys
import warnings

import pytest
import zmq

import oz.publisher.sync
from oz.errors import ClosedError
from oz.transport.errors import EndpointError
from oz.wire import links
from support.waiting import DEADLINE, Thread, until

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
def test_the_end_of_its_context_is_a_closed_error_in_each_call(make, caplog, end, call):
    context, foreign = zmq.Context(), zmq.Context()
    publisher = make(context=context)
    plain = foreign.socket(zmq.SUB)
    plain.subscribe(b"")
    plain.connect(publisher.endpoint)
    publisher.wait_for_subscribers("a", timeout=DEADLINE)
    publisher.publish("a", b"first")
    assert plain.recv_multipart() == [b"a", b"first"]

    def destroy():
        # `destroy` is not thread-safe: no other thread may be inside a call of a socket.
        with publisher._engine.lock:
            context.destroy(0)

    def is_closed():
        try:
            CALLS[call](publisher)
        except ClosedError:
            return True
        return False

    ending = Thread(context.term) if end == "term" else Thread(lambda: publisher.shell.call(destroy))
    if end == "destroy":
        ending.outcome()
    until(is_closed)
    ending.outcome()
    assert publisher.close() == 0
    assert publisher.stats.published >= 1
    if call != "bind":
        # A link endpoint that fails because the context ends is logged.
        assert caplog.records == []
    plain.close(0)
    foreign.term()


def test_close_is_the_first_call_after_the_end_of_the_context(make, caplog):
    context = zmq.Context()
    publisher = make(context=context)

    def destroy():
        with publisher._engine.lock:
            context.destroy(0)

    publisher.shell.call(destroy)
    assert publisher.close() == 0
    assert caplog.records == []


def test_close_ends_waits(make):
    publisher = make()
    thread = Thread(lambda: publisher.wait_for_subscribers(timeout=None))
    until(lambda: publisher._engine.waiters)
    publisher.close()
    with pytest.raises(ClosedError):
        thread.outcome()


def test_a_blocked_publisher_may_be_closed(make, join):
    publisher = make(on_full="block", resume_bytes=1_000, high_water_mark=50, batch=1)
    peer = join(publisher, "a")
    peer.is_acking = False
    thread = Thread(lambda: publisher.publish_many([("a", bytes(60))] * 1_000))
    peer.until(lambda: publisher.subscribers[0].pending >= 60)
    publisher.close(timeout=0)
    with pytest.raises(ClosedError):
        thread.outcome()


def test_close_does_not_wait_for_frames_of_a_session_that_has_ended(make, join, tmp_path):
    publisher = make(f"ipc://{tmp_path}/a")
    peer = join(publisher, "a", equip=lambda router: router.setsockopt(zmq.RCVHWM, 2))
    # More than the buffers of the system hold. The peer reads none of them.
    publisher.publish_many([("a", bytes(50_000))] * 100)
    publisher.flush()
    peer._send(links.encode_bye(links.Bye(links.CLOSED, links.SUBSCRIBER, 0, {})))
    until(lambda: not publisher.subscribers)
    assert Thread(lambda: publisher.close(timeout=2 * DEADLINE)).outcome() == 0
    assert publisher.stats.given_up == 100


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


def test_an_idle_publisher_sleeps(make, join):
    publisher = make()
    peer = join(publisher, "a")
    engine = publisher._engine
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
