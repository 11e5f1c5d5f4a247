"""Who is there, and from when on nothing is lost."""

import threading
import time

import pytest
import zmq

import oz
from support.sizes import size
from support.waiting import DEADLINE, Thread, until


def test_on_peer_tells_up_left_and_lost_in_order(make, spawn):
    told = []
    node = make("node", on_peer=lambda peer, what: told.append((peer.name, what)))
    leaves = spawn("leaves")
    until(lambda: told == [("leaves", "up")])
    leaves.ask("close")
    until(lambda: len(told) == 2)
    dies = spawn("dies")
    until(lambda: len(told) == 3)
    dies.kill()
    until(lambda: len(told) == 4)
    assert told == [("leaves", "up"), ("leaves", "left"), ("dies", "up"), ("dies", "lost")]
    assert node.peers == []


def test_on_peer_may_use_its_node_and_may_raise(make):
    told = []
    first = threading.Event()

    def on_peer(peer, what):
        first.wait(DEADLINE)
        told.append((what, [one.name for one in node.peers]))
        if len(told) == 1:
            raise ValueError("on purpose")

    node = make("node", on_peer=on_peer)
    other = make("other")
    node.wait_for_peers("other", timeout=DEADLINE)
    first.set()
    until(lambda: told == [("up", ["other"])])
    other.close()
    until(lambda: told[1:] == [("left", [])])
    assert node.stats.advisories >= 3


def test_peers_say_who_they_are(make, met):
    one, two = make("one"), make("two")
    met(one, two)
    [peer] = one.peers
    assert peer == two.announcement
    assert (peer.name, peer.bus, peer.endpoints) == ("two", "default", ())


def test_wait_for_peers_counts_or_names_them(make):
    node = make("node")
    node.wait_for_peers(0, timeout=0)
    with pytest.raises(oz.Timeout, match="0 of 2 peers are up"):
        node.wait_for_peers(2, timeout=0.05)
    waiting = Thread(lambda: node.wait_for_peers(["a", "b"], timeout=DEADLINE))
    make("a")
    with pytest.raises(oz.Timeout, match="b are not up"):
        node.wait_for_peers(["a", "b"], timeout=0.05)
    make("b")
    waiting.outcome()
    node.wait_for_peers("a", timeout=0)
    node.wait_for_peers(2, timeout=0)


def test_waiting_for_a_peer_passes_by_what_is_left_of_a_killed_one(make, spawn):
    asks = make("asks", lost_after=DEADLINE)
    first = spawn("answers", "serve svc")
    asks.wait_for_peers("answers", timeout=DEADLINE)
    first.kill()

    def are_missing(wanted):
        try:
            asks.wait_for_peers(wanted, timeout=0)
        except oz.Timeout:
            return True
        return False

    until(lambda: are_missing("answers") and are_missing(1))
    assert [peer.name for peer in asks.peers] == ["answers"]
    spawn("answers", "serve svc")
    asks.wait_for_peers("answers", timeout=DEADLINE)
    assert asks.request("svc", 1, timeout=DEADLINE).payload == ["answers", 1]


def test_a_node_says_at_which_endpoint_others_find_it(make, met, place):
    bound = make("bound", bind="tcp://127.0.0.1:*")
    assert bound.endpoint.removeprefix("tcp://127.0.0.1:").isdecimal()
    # As the sockets of pyzmq tell them, too.
    peers = [bound.endpoint.encode() + b"\0"]
    other = make("other", peers=peers, bind=b"tcp://127.0.0.1:*", directory=f"{place}.other")
    met(bound, other)
    assert make("local", bind=f"ipc://{place}.socket").endpoint == f"ipc://{place}.socket"
    assert make("neither").endpoint is None
    bound.close()
    assert bound.endpoint is None


def test_a_node_alone_is_ready(make):
    make("node").wait_ready(timeout=DEADLINE)


def test_closing_ends_the_waiting_of_others(make):
    node = make("node")
    waiting = Thread(lambda: node.wait_for_peers(1))
    node.wait_ready(DEADLINE)
    node.close()
    with pytest.raises(oz.ClosedError):
        waiting.outcome()


@pytest.mark.sized
@pytest.mark.parametrize("order", ["publisher first", "subscriber first"])
def test_what_is_published_once_ready_is_never_lost(make, met, collected, order):
    """Whatever comes first, and however much is subscribed to."""
    for number in size((5, 8), range(10)):
        got = collected()
        if order == "publisher first":
            pub, sub = make("pub"), make("sub")
        else:
            sub, pub = make("sub"), make("pub")
        sub.subscribe("a.*", handler=got)
        for other in range(number * 8):
            sub.subscribe(f"other.{other}.{'x' * 50}", handler=print)
        sub.subscribe("b.*", handler=got, group="workers")
        sub.subscribe("c.*", handler=got, overflow="drop_oldest")
        pub.wait_for_peers("sub", timeout=DEADLINE)
        # The subscriptions were made before; the one that waits is who publishes, or who subscribed.
        (sub if number % 2 else pub).wait_ready(DEADLINE)
        if number % 2 == 0:
            sub.wait_ready(DEADLINE)
        for subject in ("a.1", "b.1", "c.1"):
            pub.publish(subject, subject)
        assert sorted(got.wait(3)) == ["a.1", "b.1", "c.1"]
        pub.close()
        sub.close()


@pytest.mark.sized
def test_a_subscriber_that_comes_with_much_gets_all_once_the_publisher_is_ready(make, collected, free_port):
    """Only the publisher waits: what a peer had subscribed to before it came is there when it is up."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    for _ in range(size(1, 5)):
        got = collected()
        sub = make("sub", peers=endpoint)
        for other in range(300):
            sub.subscribe(f"other.{other}.{'x' * 50}", handler=print)
        sub.subscribe("b.*", handler=got, group="workers")
        sub.subscribe("c.*", handler=got, overflow="drop_oldest")
        pub = make("pub", bind=endpoint)
        pub.wait_for_peers("sub", timeout=DEADLINE)
        pub.publish("b.1", 1)
        pub.publish("c.1", 2)
        assert sorted(got.wait(2)) == [1, 2]
        sub.close()
        pub.close()


def test_a_presence_announcement_comes_behind_everything_that_its_node_asked_for(make, free_port):
    """On every connection; so a link that is up has all of it."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    sub = make("sub", peers=endpoint)
    for number in range(300):
        sub.subscribe(f"a.{number}.{'x' * 50}", handler=print)
    sub.subscribe("b", handler=print, group="g")
    sub.subscribe("c", handler=print, overflow="conflate")
    keys = []
    with zmq.Context() as context, context.socket(zmq.XPUB) as pub:
        pub.bind(endpoint)
        ends = time.monotonic() + DEADLINE
        while not any(b"_OZ.PEER." in key for key in keys):
            assert pub.poll(max(0, ends - time.monotonic()) * 1000)
            keys.append(pub.recv())
    assert sum(key.count(b"x" * 50) for key in keys) >= 300
    assert [key for key in keys if b"_OZ.PEER." in key] == keys[-1:]
