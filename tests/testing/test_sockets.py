"""The model of ZeroMQ by itself."""

import pytest
import zmq

from oz.testing.context import Context
from oz.testing.network import Network
from support.cases import each
from support.model_proxy import ModelProxy


def pair(network, kind=zmq.XPUB):
    pub = Context(network, "a").socket(kind)
    pub.bind("tcp://127.0.0.1:*")
    sub = Context(network, "b").socket(zmq.SUB)
    sub.connect(pub.getsockopt_string(zmq.LAST_ENDPOINT))
    return pub, sub


def fits(pub, frame):
    try:
        pub.send(frame, zmq.NOBLOCK)
    except zmq.Again:
        return False
    return True


@each("seed", range(20))
def test_subscriptions_come_again_in_lexicographic_order_after_a_cut(seed):
    network = Network(seed)
    pub, sub = pair(network)
    for topic in (b"b", b"c", b"a"):
        sub.subscribe(topic)
    assert [pub.recv() for _ in range(3)] == [b"\1b", b"\1c", b"\1a"]
    network.cut("a", "b")
    assert [pub.recv() for _ in range(3)] == [b"\0a", b"\0b", b"\0c"]
    network.run_until(network.now + 10)
    assert not pub.get(zmq.EVENTS) & zmq.POLLIN
    sub.get(zmq.EVENTS)
    network.heal()
    assert [pub.recv() for _ in range(3)] == [b"\1a", b"\1b", b"\1c"]


def test_subscriber_comes_back_only_while_its_owner_looks():
    network = Network(1)
    pub, sub = pair(network)
    sub.subscribe(b"a")
    pub.recv()
    network.reset("a", "b")
    assert pub.recv() == b"\0a"
    network.run_until(network.now + 10)
    assert not pub.get(zmq.EVENTS) & zmq.POLLIN
    sub.get(zmq.EVENTS)
    assert pub.recv() == b"\1a"


@pytest.mark.parametrize("host", ["a", "b"])
def test_a_connection_that_breaks_for_one_side_as_it_comes_about_comes_again(host):
    network = Network(1)
    pub, sub = pair(network)
    sub.subscribe(b"a")
    assert network.wait(lambda: bool(network._links), network.now + 1)
    network.half_open(host, "b" if host == "a" else "a")
    network.run_until(network.now + 1)
    network.heal()

    def has_come():
        # A subscriber comes back only while its owner looks.
        sub.get(zmq.EVENTS)
        return bool(pub.get(zmq.EVENTS) & zmq.POLLIN)

    assert network.wait(has_come, network.now + 9)
    assert pub.recv() == b"\1a"


def test_stalled_link_loses_nothing():
    network = Network(2, capacity=(4, 4))
    pub, sub = pair(network)
    sub.subscribe(b"")
    pub.recv()
    network.stall("a", "b")
    pub.set(zmq.XPUB_NODROP, 1)
    sent = 0
    while pub.get(zmq.EVENTS) and fits(pub, b"%d" % sent):
        network.run_until(network.now + 0.01)
        sent += 1
    # Four are on their way, but room is told only when half of the pipe has been read.
    assert sent == 1000
    sub.set(zmq.RCVTIMEO, 10)
    with pytest.raises(zmq.Again):
        sub.recv()
    network.heal()
    assert [sub.recv() for _ in range(sent)] == [b"%d" % number for number in range(sent)]


def test_half_open_connection_keeps_its_subscription_until_it_is_healed():
    network = Network(3)
    pub, sub = pair(network)
    sub.subscribe(b"a")
    pub.set(zmq.XPUB_VERBOSER, 1)
    pub.recv()
    network.half_open("b", "a")
    sub.poll(500)
    assert pub.recv() == b"\1a"
    assert not pub.poll(500)
    network.heal()
    assert pub.recv() == b"\0a"
    assert not pub.poll(500)
    pub.send(b"ab")
    assert sub.recv() == b"ab"


def test_throttled_link_takes_its_time():
    network = Network(4)
    pub, sub = pair(network)
    sub.subscribe(b"")
    pub.recv()
    network.throttle("a", "b", 10)
    began = network.now
    for _ in range(50):
        pub.send(b"")
    for _ in range(50):
        sub.recv()
    assert 4.8 < network.now - began < 5.2


def test_killed_process_sends_nothing_more_and_a_new_one_takes_its_place():
    network = Network(5)
    pub, sub = pair(network)
    endpoint = pub.getsockopt_string(zmq.LAST_ENDPOINT)
    sub.subscribe(b"")
    pub.recv()
    pub.send(b"lost")
    network.kill("a")
    network.run_until(network.now + 5)
    sub.get(zmq.EVENTS)
    pub = Context(network, "a").socket(zmq.XPUB)
    pub.bind(endpoint)
    assert pub.recv() == b"\1"
    pub.send(b"new")
    assert sub.recv() == b"new"


def test_linger_lasts_until_all_is_sent():
    network = Network(6)
    pub, sub = pair(network)
    sub.subscribe(b"")
    pub.recv()
    for number in range(500):
        pub.send(b"%d" % number)
    pub.close()
    pub.context.term()
    assert [sub.recv() for _ in range(500)] == [b"%d" % number for number in range(500)]


def test_wait_that_cannot_end_is_refused():
    network = Network(7)
    _, sub = pair(network)
    network.run_until(1)
    with pytest.raises(zmq.ZMQError, match="deadlock"):
        sub.recv()
    sub.set(zmq.RCVTIMEO, 2500)
    now = network.now
    with pytest.raises(zmq.Again):
        sub.recv()
    assert network.now == now + 2.5


def test_plain_proxy_hides_the_second_subscription_and_forgets_with_its_process():
    network = Network(8)
    own = Context(network, "proxy")
    front, back = own.socket(zmq.XSUB), own.socket(zmq.XPUB)
    front.bind("tcp://*:5000")
    back.bind("tcp://*:5001")
    ModelProxy(front, back)
    pub = Context(network, "pub").socket(zmq.XPUB)
    pub.set(zmq.IMMEDIATE, 1)
    pub.connect("tcp://localhost:5000")
    subs = [Context(network, "sub").socket(zmq.SUB) for _ in range(2)]
    for sub in subs:
        sub.connect("tcp://127.0.0.1:5001")
        sub.subscribe("x")
    assert pub.recv() == b"\1x"
    assert not pub.poll(1000)
    pub.send_multipart([b"xy", b"z"])
    assert [sub.recv_multipart() for sub in subs] == [[b"xy", b"z"]] * 2
    network.kill("proxy")
    assert pub.recv() == b"\0x"


def test_router_answers_its_dealer():
    network = Network(9)
    context = Context(network)
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    router.set(zmq.ROUTER_MANDATORY, 1)
    router.bind("ipc://here")
    dealer.set(zmq.IMMEDIATE, 1)
    dealer.connect("ipc://here")
    dealer.send(b"question")
    who, what = router.recv_multipart()
    assert what == b"question"
    router.send_multipart([who, b"answer"])
    assert dealer.recv() == b"answer"
    dealer.close()
    network.run_until(network.now + 1)
    router.get(zmq.EVENTS)
    with pytest.raises(zmq.ZMQError, match="unreachable"):
        router.send_multipart([who, b"answer"])


def test_same_seed_gives_the_same_run():
    def run(seed):
        network = Network(seed)
        pub, sub = pair(network)
        sub.subscribe(b"")
        pub.recv()
        seen = []
        pub.set(zmq.XPUB_NODROP, 1)
        for number in range(50):
            pub.send(b"%d" % number)
            seen.append((network.now, network.random.random()))
            if number % 10 == 0:
                sub.recv()
        return seen

    assert run(1) == run(1) != run(2)
