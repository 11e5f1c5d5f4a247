"""Nodes close in time, whatever became of their peers, and leave nothing behind."""

import os
import signal
import sys
import threading
import time

import pytest
import zmq

import oz
from support.inside import engine_of, shell_of
from support.scripts import finished, started
from support.sizes import size
from support.waiting import DEADLINE, Thread, until

SLACK = 15.0
"""Seconds by which a close may be late on a busy machine; less than any handler here would hold it up."""


HWM = 1_000
"""Batches that ZeroMQ takes in for a node that does not read."""


def timed(work):
    began = time.monotonic()
    work()
    return time.monotonic() - began


def test_closing_lets_handlers_handle_what_has_come_and_sends_what_they_publish(make, met, collected):
    one, two = make("one"), make("two")
    got = collected()

    def handle(message):
        time.sleep(0.002)
        two.publish("b", message.payload)

    two.subscribe("a", handler=handle)
    one.subscribe("b", handler=got)
    met(one, two)
    for number in range(200):
        one.publish("a", number)
    one.flush()
    until(lambda: two.stats.received)
    two.close(timeout=DEADLINE)
    # Whatever had been sent to it before it left was handled, and what came of it has arrived.
    assert got.wait(200) == list(range(200))


def test_handlers_that_ask_in_their_turn_get_their_answers_while_their_node_closes(make, met):
    desk, service, back = make("desk"), make("service"), make("back")
    all_have_come, go = threading.Event(), threading.Event()

    def handle(message):
        go.wait(DEADLINE)
        message.reply(service.request("back", message.payload, timeout=DEADLINE).payload + 1)

    service.subscribe("service", handler=handle)
    service.subscribe("marker", handler=lambda _: all_have_come.set())
    back.subscribe("back", handler=lambda message: message.reply(message.payload + 1))
    met(desk, service, back)
    asking = [Thread(lambda n=n: desk.request("service", n, timeout=DEADLINE).payload) for n in range(20)]
    until(lambda: desk.stats.requests == 20)
    desk.publish("marker")
    assert all_have_come.wait(DEADLINE)
    closing = Thread(lambda: service.close(timeout=DEADLINE))
    until(lambda: not desk.interest("service"))
    go.set()
    closing.outcome()
    assert [one.outcome() for one in asking] == [number + 2 for number in range(20)]


def test_closing_without_draining_lets_it_go(make, collected):
    node = make("node")
    go, begun = threading.Event(), threading.Event()
    got = collected()

    def slow(message):
        got(message)
        begun.set()
        go.wait(DEADLINE)

    node.subscribe("a", handler=slow)
    node.wait_ready(DEADLINE)
    for number in range(100):
        node.publish("a", number)
    node.flush()
    assert begun.wait(DEADLINE)
    assert timed(lambda: node.close(drain=False, timeout=1.0)) < 1.0 + SLACK
    go.set()
    assert got == [0]


@pytest.mark.parametrize("count", [HWM // 2, HWM + 200], ids=["that fits", "that is too much"])
def test_what_a_peer_had_sent_when_it_closed_arrives_or_is_reported(make, met, collected, count):
    """A socket of this host that is closed takes along what ZeroMQ had not read from it at a full queue."""
    near, far = make("near"), make("far", lost_after=0.2)
    got, gaps = collected(), collected()
    far.subscribe("a", handler=got)
    far.subscribe("_OZ.ADVISORY.WARN.GAP", handler=gaps)
    met(near, far)
    begun, go = threading.Event(), threading.Event()
    standing = Thread(lambda: shell_of(far).call(lambda: (begun.set(), go.wait(DEADLINE))))
    try:
        assert begun.wait(DEADLINE)
        for number in range(count):
            near.publish("a", number)
            near.flush()
        near.close(drain=False)
    finally:
        go.set()
    standing.outcome()
    until(lambda: len(got) == count or gaps)
    assert list(got) == list(range(len(got)))
    assert len(got) == count or count > HWM
    assert [(gap.about, gap.count) for gap in gaps] in ([], [("near", None)])


def test_a_peer_that_is_killed_may_have_sent_more_and_that_is_reported_once(make, met, spawn, collected):
    node = make("node", lost_after=0.2)
    got, gaps = collected(), collected()
    node.subscribe("a", handler=got)
    node.subscribe("_OZ.ADVISORY.WARN.GAP", handler=gaps)
    victim = spawn("victim")
    node.wait_for_peers("victim", timeout=DEADLINE)
    node.wait_ready(DEADLINE)
    victim.ask("publish a 3")
    got.wait(3)
    victim.kill()
    until(lambda: gaps)
    until(lambda: not engine_of(node).links.connections.draining)
    assert [(gap.about, gap.count) for gap in gaps] == [("victim", None)]


def test_a_peer_that_closes_in_order_leaves_no_doubt(make, met, collected):
    node, other = make("node"), make("other", bind="tcp://127.0.0.1:*")
    got, gaps = collected(), collected()
    node.subscribe("a", handler=got)
    node.subscribe("a", handler=got, group="g")
    node.subscribe("_OZ.ADVISORY.WARN.GAP", handler=gaps)
    met(node, other)
    other.publish("a", 1)
    other.close()
    until(lambda: not node.peers and not engine_of(node).links.connections.draining)
    got.wait(2)
    assert gaps == []


def test_closing_does_not_wait_longer_than_it_may_for_a_handler_and_says_what_it_dropped(make, caplog):
    node = make("node")
    go, begun = threading.Event(), threading.Event()
    node.subscribe("a", handler=lambda _: (begun.set(), go.wait(DEADLINE)))
    node.wait_ready(DEADLINE)
    for _ in range(10):
        node.publish("a")
    node.flush()
    assert begun.wait(DEADLINE)
    until(lambda: node.stats.waiting == 9)
    took = timed(lambda: node.close(timeout=0.5))
    assert 0.4 < took < 0.5 + SLACK
    assert "node closed before its handlers had handled 9 messages" in caplog.text
    go.set()


@pytest.mark.parametrize(("number", "drain"), [(signal.SIGSTOP, True), (signal.SIGKILL, False)])
def test_closing_beside_peers_that_are_dead_and_full_queues(make, spawn, number, drain):
    node = make("node", high_water_mark=10)
    peers = [spawn(f"peer {count}", "listen a") for count in range(2)]
    node.wait_for_peers(2, timeout=DEADLINE)
    node.wait_ready(DEADLINE)
    for peer in peers:
        peer.send_signal(number)
    for _ in range(2_000):
        node.publish("a", b"x" * 10_000)
    try:
        assert timed(lambda: node.close(drain=drain, timeout=1.0)) < 1.0 + SLACK
    finally:
        for peer in peers:
            peer.send_signal(signal.SIGCONT)


def test_closing_with_on_full_block_and_a_thread_that_waits_for_room(make, spawn):
    node = make("node", high_water_mark=2, on_full="block")
    peer = spawn("peer", "listen a")
    node.wait_for_peers(1, timeout=DEADLINE)
    node.wait_ready(DEADLINE)
    peer.send_signal(signal.SIGSTOP)

    def publish():
        while True:
            node.publish("a", b"x" * 50_000)

    publishing = Thread(publish)
    time.sleep(0.5)
    try:
        assert timed(lambda: node.close(timeout=1.0)) < 1.0 + SLACK
        with pytest.raises(oz.OzError):
            publishing.outcome()
    finally:
        peer.send_signal(signal.SIGCONT)


def test_closing_beside_a_dead_name_server(make, serving):
    with serving() as server:
        node = make("node", nameserver=server.endpoint)
    assert timed(lambda: node.close(timeout=2.0)) < 1.0 + SLACK


def test_a_second_close_does_nothing_also_from_other_threads(make):
    node = make("node")
    threads = [Thread(lambda: node.close(timeout=2.0)) for _ in range(4)]
    for thread in threads:
        thread.outcome()
    node.close()
    node.close(drain=False, timeout=0)
    assert "closed" in repr(node)


def test_everything_says_that_it_is_closed(make):
    node = make("node")
    mailbox = node.subscribe("a")
    node.close()
    for call in (
        lambda: node.publish("a"),
        lambda: node.flush(),
        lambda: node.subscribe("a"),
        lambda: node.request("a"),
        lambda: node.request_many("a"),
        lambda: node.wait_ready(1),
        lambda: node.wait_for_peers(1, 1),
        lambda: mailbox.receive(1),
    ):
        with pytest.raises(oz.ClosedError):
            call()
    mailbox.unsubscribe()
    assert node.peers == []
    assert node.stats.published == 0


def test_with_closes_and_lets_errors_through(make, place):
    with pytest.raises(KeyError), oz.Node("node", directory=place) as node:
        raise KeyError("on purpose")
    with pytest.raises(oz.ClosedError):
        node.publish("a")
    assert os.listdir(place) == []


EXITS = """
import sys, oz
node = oz.Node("node", directory=sys.argv[1])
node.subscribe("a", handler=print)
node.wait_ready(60)
node.publish("b", 1)
{end}
"""


@pytest.mark.heavy
@pytest.mark.parametrize(
    "end",
    [
        "",
        "del node",
        "import threading; threading.Thread(target=lambda: node.publish('b')).start()",
        "import time; node.subscribe('c', handler=lambda _: time.sleep(99)); node.publish('c'); node.flush()",
        "sys.exit()",
    ],
)
def test_a_program_ends_that_has_not_closed_its_node(place, end):
    with started("-c", EXITS.format(end=end), place) as process:
        finished(process)


def test_an_error_at_the_start_leaves_nothing(place):
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for options in (
        {"bind": "tcp://192.0.2.1:5000"},
        {"bind": "tcp://nonsense"},
        {"nameserver": "tcp://127.0.0.1:1", "join_timeout": 0.05},
        {"dialect": "klingon"},
        {"on_full": "explode"},
        {"threads": 0},
        {"on_peer": 7},
    ):
        with pytest.raises((oz.OzError, ValueError, TypeError, OSError, zmq.ZMQError)):
            oz.Node("node", directory=place, **options)
    until(lambda: threading.active_count() <= before[0])
    until(lambda: len(os.listdir("/proc/self/fd")) <= before[1])
    assert not os.path.exists(place) or os.listdir(place) == []


@pytest.mark.sized
@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_nothing_is_left_after_many_rounds(place, nameserver):
    def round_trip(number):
        options = [{}, {"nameserver": nameserver.endpoint}, {"bind": "tcp://127.0.0.1:*"}][number % 3]
        with oz.Node("a", directory=place, **options) as a, oz.Node("b", directory=place, **options) as b:
            b.subscribe("svc", handler=lambda message: message.reply(1))
            a.wait_for_peers("b", timeout=DEADLINE)
            for node in (b, a):
                node.wait_ready(DEADLINE)
            assert a.request("svc", timeout=DEADLINE).payload == 1

    def left():
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    for number in range(3):
        round_trip(number)
    before = left()
    for number in range(size(6, 12)):
        round_trip(number)
    until(lambda: left()[0] <= before[0] and left()[1] <= before[1])
    assert os.listdir(place) == []
