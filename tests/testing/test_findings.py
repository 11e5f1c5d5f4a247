"""What libzmq does that oz rests on, each on libzmq itself and on the model."""

import signal
import subprocess
import sys

import pytest
import zmq

from support.zmq_worlds import ModelWorld, RealWorld


@pytest.fixture(params=[RealWorld, ModelWorld], ids=["libzmq", "model"])
def world(request):
    made = request.param(0)
    yield made
    made.close()


def bound(world, kind=zmq.XPUB, endpoint="tcp://127.0.0.1:*", host="pub", **options):
    socket = world.socket(kind, host, **options)
    return socket, world.bind(socket, endpoint)


def connected(world, endpoint, topics=(), kind=zmq.SUB, host="sub", **options):
    socket = world.socket(kind, host, **options)
    socket.connect(endpoint)
    for topic in topics:
        socket.set(zmq.SUBSCRIBE, topic)
    return socket


def read(world, socket, last=None, count=None):
    """Read up to a frame or message, or so many."""
    found = []

    def is_all():
        while socket.get(zmq.EVENTS) & zmq.POLLIN:
            frames = socket.recv_multipart()
            found.append(frames[0] if len(frames) == 1 else frames)
        return last in found if count is None else len(found) >= count

    world.until(is_all)
    return found


def sends(socket, *parts):
    try:
        for part in parts[:-1]:
            socket.send(part, zmq.SNDMORE | zmq.NOBLOCK)
        socket.send(parts[-1], zmq.NOBLOCK)
    except zmq.Again:
        return False
    return True


def test_sub_forwards_as_many_subscriptions_of_a_burst_as_its_send_mark_and_drops_the_rest(world):
    pub, endpoint = bound(world, RCVHWM=0)
    sub = connected(world, endpoint, [b"%04d" % number for number in range(1500)], SNDHWM=1000)
    assert read(world, pub, b"\1" + b"%04d" % 999) == [b"\1%04d" % number for number in range(1000)]
    # The marker finds room again, so nothing else was on its way.
    world.until(lambda: sub.get(zmq.EVENTS) is not None)
    sub.set(zmq.SUBSCRIBE, b"~")
    assert read(world, pub, b"\1~") == [b"\1~"]


def test_sub_without_a_send_mark_forwards_all(world):
    pub, endpoint = bound(world)
    connected(world, endpoint, [b"%04d" % number for number in range(3000)], SNDHWM=0)
    assert read(world, pub, count=3000) == [b"\1%04d" % number for number in range(3000)]


def test_sub_that_subscribed_first_says_so_in_lexicographic_order(world):
    pub, endpoint = bound(world)
    sub = world.socket(zmq.SUB, "sub")
    for topic in (b"b", b"\xff", b"", b"ab", b"a", b"\0"):
        sub.set(zmq.SUBSCRIBE, topic)
    sub.connect(endpoint)
    assert read(world, pub, count=6) == [b"\1", b"\1\0", b"\1a", b"\1ab", b"\1b", b"\1\xff"]


def test_sub_says_each_subscription_and_the_last_unsubscription_of_a_topic(world):
    pub, endpoint = bound(world, XPUB_VERBOSER=1)
    sub = connected(world, endpoint, [b"a", b"a", b"b"])
    for topic in (b"a", b"a", b"a", b"c"):
        sub.set(zmq.UNSUBSCRIBE, topic)
    sub.set(zmq.SUBSCRIBE, b"~")
    assert read(world, pub, b"\1~") == [b"\1a", b"\1a", b"\1b", b"\0a", b"\1~"]


def seen_by(world, mode):
    options = {mode: 1} if mode else {}
    pub, endpoint = bound(world, **options)
    one = connected(world, endpoint, [b"a", b"1~"])
    seen = read(world, pub, b"\1" + b"1~")
    two = connected(world, endpoint, [b"a", b"2~"], host="other")
    seen += read(world, pub, b"\1" + b"2~")
    for number, sub in ((b"1", one), (b"2", two)):
        sub.set(zmq.UNSUBSCRIBE, b"a")
        sub.set(zmq.SUBSCRIBE, number + b"~~")
        seen += read(world, pub, b"\1" + number + b"~~")
    return [frame for frame in seen if b"~" not in frame]


def test_plain_xpub_sees_the_first_subscription_and_the_last_unsubscription(world):
    assert seen_by(world, None) == [b"\1a", b"\0a"]


def test_verbose_xpub_sees_each_subscription_and_the_last_unsubscription(world):
    assert seen_by(world, "XPUB_VERBOSE") == [b"\1a", b"\1a", b"\0a"]


def test_verboser_xpub_sees_all(world):
    assert seen_by(world, "XPUB_VERBOSER") == [b"\1a", b"\1a", b"\0a", b"\0a"]


def test_manual_xpub_sees_all_and_may_refuse_or_replace(world):
    pub, endpoint = bound(world, XPUB_MANUAL=1)
    sub = connected(world, endpoint, [b"no", b"yes", b"~"])
    for _ in range(3):
        world.until(lambda: pub.get(zmq.EVENTS) & zmq.POLLIN)
        topic = pub.recv()[1:]
        if topic == b"yes":
            pub.set(zmq.SUBSCRIBE, b"ye")
        elif topic == b"~":
            pub.set(zmq.SUBSCRIBE, topic)
    for subject in (b"no", b"yes", b"yet", b"~"):
        pub.send(subject)
    # The subscriber filters too.
    assert read(world, sub, b"~") == [b"yes", b"~"]


def test_empty_subscription_can_be_replaced_by_the_255_first_bytes(world):
    pub, endpoint = bound(world, XPUB_MANUAL=1)
    sub = connected(world, endpoint, [b""])
    world.until(lambda: pub.get(zmq.EVENTS) & zmq.POLLIN)
    assert pub.recv() == b"\1"
    for first in range(1, 256):
        pub.set(zmq.SUBSCRIBE, bytes((first,)))
    for subject in (b"", b"\0ours", b"\1", b"a", b"\xff"):
        pub.send(subject)
    assert read(world, sub, b"\xff") == [b"\1", b"a", b"\xff"]


def test_manual_xpub_hears_of_all_that_a_lost_subscriber_asked_for(world):
    pub, endpoint = bound(world, XPUB_MANUAL=1)
    sub = connected(world, endpoint, [b"b", b"a", b"c"])
    read(world, pub, b"\1c")
    sub.close(0)
    assert read(world, pub, b"\0c") == [b"\0a", b"\0b", b"\0c"]


@pytest.mark.parametrize("marks", [(1, 1), (3, 4), (10, 2), (1000, 1000)])
def test_pipe_within_a_context_takes_the_marks_of_both_sides(world, marks):
    pub, endpoint = bound(world, endpoint="inproc://pub", SNDHWM=marks[0], XPUB_NODROP=1)
    sub = connected(world, endpoint, [b""], host="pub", RCVHWM=marks[1])
    read(world, pub, b"\1")
    sent = 0
    while sends(pub, b"a", b"%d" % sent):
        sent += 1
    assert sent == sum(marks)
    assert read(world, sub, count=sent) == [[b"a", b"%d" % number] for number in range(sent)]


def test_room_is_told_only_when_half_of_a_pipe_is_read(world):
    pub, endpoint = bound(world, endpoint="inproc://pub", SNDHWM=6, XPUB_NODROP=1)
    sub = connected(world, endpoint, [b""], host="pub", RCVHWM=4)
    read(world, pub, b"\1")
    while sends(pub, b"a"):
        pass
    for _ in range(4):
        sub.recv()
    assert pub.get(zmq.EVENTS)
    assert not sends(pub, b"a")
    sub.recv()
    assert pub.get(zmq.EVENTS)
    assert [sends(pub, b"a") for _ in range(6)] == [True] * 5 + [False]


def test_frame_that_is_read_puts_a_full_pipe_back_though_there_is_no_room(world):
    pub, endpoint = bound(world, endpoint="inproc://pub", SNDHWM=1)
    sub = connected(world, endpoint, [b""], host="pub", RCVHWM=1)
    read(world, pub, b"\1")
    assert [sends(pub, b"a", b"b") for _ in range(3)] == [True] * 3
    pub.set(zmq.XPUB_NODROP, 1)
    # The full pipe is left out, so that there is nobody to refuse for.
    assert sends(pub, b"a", b"b")
    assert sub.get(zmq.EVENTS) & zmq.POLLIN
    assert pub.get(zmq.EVENTS)
    assert not sends(pub, b"a", b"b")


def test_raw_pub_drops_in_silence_what_a_pipe_has_no_room_for(world):
    pub, endpoint = bound(world, endpoint="inproc://pub", SNDHWM=5)
    sub = connected(world, endpoint, [b"a"], host="pub", RCVHWM=5)
    read(world, pub, b"\1a")
    assert all(sends(pub, b"a%d" % number) for number in range(30))
    assert read(world, sub, count=10) == [b"a%d" % number for number in range(10)]
    assert pub.get(zmq.EVENTS)
    pub.send(b"a!")
    assert read(world, sub, count=1) == [b"a!"]


def test_one_full_pipe_refuses_a_lossless_send_for_all_who_match(world):
    pub, endpoint = bound(world, endpoint="inproc://pub", SNDHWM=2, XPUB_NODROP=1)
    stuck = connected(world, endpoint, [b"a"], host="pub", RCVHWM=2)
    healthy = connected(world, endpoint, [b"a", b"b"], host="pub", RCVHWM=1000)
    read(world, pub, b"\1b")
    assert [sends(pub, b"a%d" % number) for number in range(5)] == [True] * 4 + [False]
    assert sends(pub, b"b")
    assert read(world, healthy, count=5) == [b"a0", b"a1", b"a2", b"a3", b"b"]
    # Sent past the full one, which is left out then until it has read.
    pub.set(zmq.XPUB_NODROP, 0)
    pub.send(b"a4")
    pub.set(zmq.XPUB_NODROP, 1)
    assert all(sends(pub, b"a%d" % number) for number in range(5, 500))
    assert read(world, healthy, count=496) == [b"a%d" % number for number in range(4, 500)]
    assert read(world, stuck, count=4) == [b"a0", b"a1", b"a2", b"a3"]
    assert pub.get(zmq.EVENTS)
    pub.send(b"a!")
    assert read(world, stuck, count=1) == read(world, healthy, count=1) == [b"a!"]


def test_full_tcp_connection_holds_both_marks_and_what_is_on_the_way_at_most(world):
    pub, endpoint = bound(world, SNDHWM=3, XPUB_NODROP=1, SNDBUF=65_536)
    sub = connected(world, endpoint, [b"a"], RCVHWM=4, RCVBUF=65_536)
    read(world, pub, b"\1a")
    sent = 0
    while sends(pub, b"a%04d" % sent + bytes(500_000)):
        sent += 1
        assert sent < 100
    assert sent >= 3
    got = [frame[:5] for frame in read(world, sub, count=sent)]
    assert got == [b"a%04d" % number for number in range(sent)]


def test_sub_comes_again_after_a_fault_only_while_its_owner_looks(world):
    pub, endpoint = bound(world)
    link = world.link(endpoint, "pub", "sub")
    sub = connected(world, link.endpoint, [b"b", b"a"])
    read(world, pub, b"\1a")
    link.cut()
    assert read(world, pub, b"\0b") == [b"\0a", b"\0b"]
    sub.set(zmq.SUBSCRIBE, b"0")
    link.heal()
    read(world, pub, b"\1b")
    sub.set(zmq.SUBSCRIBE, b"c")
    assert read(world, pub, b"\1c") == [b"\1c"]


def test_connecting_publisher_with_immediate_forgets_those_behind_a_killed_proxy(world):
    front, _ = bound(world, zmq.XSUB, host="proxy")
    back, backend = bound(world, zmq.XPUB, host="proxy")
    frontend = front.getsockopt_string(zmq.LAST_ENDPOINT)
    kill = world.proxy(front, back, "proxy")
    pub = world.socket(zmq.XPUB, "pub", IMMEDIATE=1)
    pub.connect(frontend)
    connected(world, backend, [b"a", b"b"])
    assert read(world, pub, b"\1b") == [b"\1a", b"\1b"]
    kill()
    assert read(world, pub, b"\0b") == [b"\0a", b"\0b"]


def test_connecting_publisher_without_immediate_keeps_them(world):
    front, frontend = bound(world, zmq.XSUB, host="front")
    pub = world.socket(zmq.XPUB, "pub", XPUB_VERBOSER=1)
    pub.connect(frontend)
    front.send(b"\1a")
    assert read(world, pub, b"\1a") == [b"\1a"]
    front.close(0)
    again = world.socket(zmq.XSUB, "front")
    world.bind(again, frontend)
    again.send(b"\1b")
    assert read(world, pub, b"\1b") == [b"\1b"]


def test_plain_proxy_hides_the_second_copy_of_a_subscription(world):
    front, frontend = bound(world, zmq.XSUB, host="proxy")
    back, backend = bound(world, zmq.XPUB, host="proxy")
    world.proxy(front, back, "proxy")
    pub = world.socket(zmq.XPUB, "pub", XPUB_MANUAL=1)
    pub.connect(frontend)
    connected(world, backend, [b"a", b"1"], host="one")
    assert read(world, pub, b"\1" + b"1") == [b"\1a", b"\1" + b"1"]
    connected(world, backend, [b"a", b"2"], host="two")
    assert read(world, pub, b"\1" + b"2") == [b"\1" + b"2"]


def test_messages_of_an_xsub_reach_an_xpub_and_not_its_subscriptions(world):
    pub, endpoint = bound(world, XPUB_VERBOSER=1)
    up = connected(world, endpoint, kind=zmq.XSUB)
    up.send(b"\1a")
    up.send(b"\2hello")
    up.send_multipart([b"two", b"frames"])
    up.send(b"\0a")
    assert read(world, pub, b"\0a") == [b"\1a", b"\2hello", [b"two", b"frames"], b"\0a"]


def test_disconnected_subscriber_loses_what_it_has_not_read(world):
    pub, endpoint = bound(world, endpoint="inproc://pub")
    sub = connected(world, endpoint, [b"a"], host="pub")
    read(world, pub, b"\1a")
    pub.send(b"a1")
    sub.disconnect(endpoint)
    world.settle()
    sub.connect(endpoint)
    world.settle()
    pub.get(zmq.EVENTS)
    pub.send(b"a2")
    assert read(world, sub, b"a2") == [b"a2"]


def test_closed_publisher_lingers_until_all_is_sent(world):
    pub, endpoint = bound(world, LINGER=-1, SNDHWM=0)
    sub = connected(world, endpoint, [b"a"], RCVHWM=10)
    read(world, pub, b"\1a")
    for number in range(2000):
        pub.send(b"a%d" % number)
    pub.close()
    assert read(world, sub, count=2000) == [b"a%d" % number for number in range(2000)]


def test_mandatory_router_says_who_is_not_there_and_who_is_full(world):
    router, endpoint = bound(world, zmq.ROUTER, "inproc://router", ROUTER_MANDATORY=1, SNDHWM=1)
    dealer = connected(world, endpoint, kind=zmq.DEALER, host="pub", ROUTING_ID=b"me", RCVHWM=2)
    dealer.send_multipart([b"hello", b"you"])
    assert read(world, router, count=1) == [[b"me", b"hello", b"you"]]
    with pytest.raises(zmq.ZMQError, match="unreachable"):
        router.send_multipart([b"nobody", b""])
    assert [sends(router, b"me", b"%d" % number) for number in range(4)] == [True, True, True, False]
    assert read(world, dealer, count=3) == [b"0", b"1", b"2"]


def test_dealer_without_a_connection_finds_no_room(world):
    dealer = world.socket(zmq.DEALER, "one", IMMEDIATE=1)
    dealer.connect("tcp://127.0.0.1:9")
    assert not sends(dealer, b"hello")
    assert not dealer.get(zmq.EVENTS) & zmq.POLLOUT


def test_messages_of_many_frames_are_dropped_whole(world):
    pub, endpoint = bound(world, endpoint="inproc://pub", SNDHWM=2)
    sub = connected(world, endpoint, [b"a"], host="pub", RCVHWM=2)
    read(world, pub, b"\1a")
    for number in range(9):
        pub.send_multipart([b"a", b"%d" % number, b"end"])
    assert read(world, sub, count=4) == [[b"a", b"%d" % number, b"end"] for number in range(4)]


_ABANDONED = """
import zmq
context = zmq.Context()
pub, sub = context.socket(zmq.XPUB), context.socket(zmq.SUB)
pub.bind("inproc://pub")
sub.connect("inproc://pub")
sub.subscribe(b"")
pub.recv()
pub.send_multipart([b"two", b"frames"])
assert sub.poll()
sub.disconnect("inproc://pub")
for _ in range(100):
    pub.get(zmq.EVENTS)
    sub.recv_multipart(zmq.NOBLOCK)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process ends otherwise there")
def test_libzmq_ends_a_process_that_disconnects_before_it_receives_what_was_announced():
    ended = subprocess.run([sys.executable, "-c", _ABANDONED], capture_output=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGABRT
    assert b"!_more" in ended.stderr


def test_model_refuses_to_disconnect_before_it_receives_what_was_announced():
    world = ModelWorld(0)
    pub, endpoint = bound(world)
    sub = connected(world, endpoint, [b""])
    read(world, pub, b"\1")
    pub.send_multipart([b"two", b"frames"])
    assert sub.poll()
    with pytest.raises(RuntimeError, match="receive it before you disconnect"):
        sub.disconnect(endpoint)
    assert sub.recv_multipart() == [b"two", b"frames"]
