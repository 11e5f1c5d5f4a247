"""`oz.SubSocket`: all ways to receive, with subscriptions that refuse some messages."""

import array
import copy
import re
import threading
import time

import pytest
import regex
import zmq

import oz
from support.waiting import DEADLINE, Thread, until


def drain(sub):
    """Return what is there, once a message `end` has arrived."""
    found = []
    while (frames := sub.recv_multipart())[0] != b"end":
        found.append(frames)
    return found


RECEIVES = {
    "recv": lambda sub: sub.recv(),
    "recv copy=False": lambda sub: sub.recv(copy=False).bytes,
    "recv positional": lambda sub: sub.recv(0, False, True).bytes,
    "recv_multipart": lambda sub: sub.recv_multipart()[0],
    "recv_multipart copy=False": lambda sub: sub.recv_multipart(copy=False)[0].bytes,
    "recv_string": lambda sub: sub.recv_string().encode(),
    "recv_serialized": lambda sub: sub.recv_serialized(lambda frames: frames[0]),
    "recv_into": lambda sub: received_into(sub),
    "NOBLOCK": lambda sub: until(lambda: receive_at_once(sub)),
    "poll": lambda sub: sub.poll(DEADLINE * 1000) and sub.recv(zmq.NOBLOCK),
}


def received_into(sub):
    buffer = bytearray(100)
    return bytes(buffer[: sub.recv_into(buffer)])


def receive_at_once(sub):
    try:
        return sub.recv(zmq.NOBLOCK)
    except zmq.Again:
        return None


@pytest.mark.parametrize("way", RECEIVES)
def test_each_receive_skips_messages_that_do_not_match(make_sub, publisher, way):
    sub = make_sub("a.*.c")
    for subject in ("a.b.d", "a.b.c.d", "a.x.c", "a.", "a.b.c"):
        publisher.send(subject)
    assert [RECEIVES[way](sub) for _ in range(2)] == [b"a.x.c", b"a.b.c"]


def test_events_have_pollin_for_a_message_that_matches(make_sub, publisher):
    sub = make_sub("a.*", "end")
    publisher.send("a.b.c")
    until(lambda: zmq.Socket.get(sub, zmq.EVENTS) & zmq.POLLIN)
    assert not sub.get(zmq.EVENTS) & zmq.POLLIN
    publisher.send("end")
    until(lambda: sub.get(zmq.EVENTS) & zmq.POLLIN)
    assert sub.recv(zmq.NOBLOCK) == b"end"


def test_the_rest_of_a_message_is_received_as_multipart_and_without_copy(make_sub, publisher):
    sub = make_sub("a.*")
    for _ in range(3):
        publisher.send("a.b.c", "x", "y")
        publisher.send("a.b", "1", b"2" * 100_000)
    assert sub.recv() == b"a.b"
    assert sub.recv_multipart() == [b"1", b"2" * 100_000]
    assert sub.recv() == b"a.b"
    frame = sub.recv(copy=False, track=True)
    assert (frame.bytes, frame.more, frame.tracker is not None) == (b"1", True, True)
    assert sub.recv_multipart(copy=False)[0].bytes == b"2" * 100_000
    frames = sub.recv_multipart(copy=False)
    assert [frame.bytes for frame in frames] == [b"a.b", b"1", b"2" * 100_000]
    assert [frame.more for frame in frames] == [True, True, False]


def test_received_into_a_buffer_a_frame_is_cut(make_sub, publisher):
    sub = make_sub("a.*")
    for _ in range(2):
        publisher.send("a.b.c")
        publisher.send("a.bcd", "payload")
    small, numbers = bytearray(3), array.array("I", [0, 0])
    assert sub.recv_into(small) == 5
    assert small == b"a.b"
    assert sub.recv_into(numbers, nbytes=4) == 7
    assert numbers.tobytes() == b"payl\0\0\0\0"
    with pytest.raises(BufferError):
        sub.recv_into(b"readonly")
    with pytest.raises(ValueError, match="from 0 to 3, not 4"):
        sub.recv_into(small, nbytes=4)
    with pytest.raises(ValueError, match="-1"):
        sub.recv_into(small, nbytes=-1)
    assert sub.recv_into(bytearray()) == 5
    assert sub.recv() == b"payload"


# Subscriptions ------------------------------------------------------------------------------------


def test_text_may_name_a_dialect_where_the_socket_has_another(make_sub, publisher):
    sub = make_sub("end")
    sub.subscribe("rv:Foo.*")
    sub.subscribe("x.?", dialect="redis")
    publisher.expect(2)
    for subject in ("Foo.a", "Foo.a.b", "x.1", "x.12", "end"):
        publisher.send(subject)
    assert drain(sub) == [[b"Foo.a"], [b"x.1"]]


@pytest.mark.parametrize("compiled", [re.compile("a.c"), regex.compile("a.c"), oz.compile("a?c", "redis")])
def test_compiled_patterns_are_taken_as_they_are(make_sub, publisher, compiled):
    sub = make_sub("end")
    sub.subscribe(compiled)
    publisher.expect()
    for subject in ("abc", "abbc", "axc", "end"):
        publisher.send(subject)
    assert drain(sub) == [[b"abc"], [b"axc"]]


@pytest.mark.parametrize("text", ["", b""])
def test_empty_text_is_everything(make_sub, publisher, text):
    sub = make_sub("a.*.c")
    sub.subscribe(text)
    publisher.expect()
    for subject in ("", "a..", "x", b"\xff", "end"):
        publisher.send(subject)
    assert drain(sub) == [[b""], [b"a.."], [b"x"], [b"\xff"]]


def test_text_that_is_no_pattern_is_refused_with_the_bytes_to_give(make_sub):
    sub = make_sub()
    with pytest.raises(oz.PatternError, match="position 3") as refused:
        sub.subscribe("md.")
    assert refused.value.__notes__ == ["For a plain ZeroMQ prefix give bytes: b'md.'"]
    with pytest.raises(oz.ConfigurationError, match="dialect = 'nuts': no dialect has this name"):
        sub.subscribe("md", dialect="nuts")
    for wrong in (1, None, ["a"]):
        with pytest.raises(TypeError):
            sub.subscribe(wrong)
    with pytest.raises(TypeError):
        sub.setsockopt(zmq.SUBSCRIBE, "text")


def test_a_pattern_that_is_added_inside_a_message_counts_from_the_next_one(make_sub, publisher):
    sub = make_sub(b"a", b"end")
    publisher.send("ab", "1", "2")
    publisher.send("a.b.c", "1")
    publisher.send("end")
    assert sub.recv() == b"ab"
    sub.unsubscribe(b"a")
    sub.subscribe("a.*")
    assert sub.rcvmore
    assert sub.recv() == b"1"
    assert sub.recv_multipart() == [b"2"]
    assert drain(sub) == []


@pytest.mark.parametrize("option", ["CONFLATE", "INVERT_MATCHING"])
def test_options_that_choose_messages_are_refused_with_patterns(make_sub, option):
    sub = make_sub("a.*")
    with pytest.raises(oz.ConfigurationError, match=f"{option} = 1.*subscribe to prefixes"):
        sub.setsockopt(getattr(zmq, option), 1)
    setattr(sub, option.lower(), 0)
    other = make_sub()
    setattr(other, option.lower(), 1)
    for pattern in ("a.*", "a", ">", re.compile(".*")):
        with pytest.raises(oz.ConfigurationError, match=option):
            other.subscribe(pattern)
    other.subscribe(b"a")


# Time ---------------------------------------------------------------------------------------------


@pytest.fixture
def flood(context):
    """Endpoint of a publisher that sends refused messages without end, in a thread."""
    is_over = threading.Event()
    socket = context.socket(zmq.XPUB)
    socket.sndhwm = 0
    socket.linger = 0
    port = socket.bind_to_random_port("tcp://127.0.0.1")

    def publish():
        # A receive without a wait may be over before the subscription arrives.
        while not is_over.is_set() and not socket.poll(20):
            pass
        while not is_over.is_set():
            for _ in range(100):
                socket.send(b"a.refused.x")

    thread = Thread(publish)
    yield f"tcp://127.0.0.1:{port}"
    is_over.set()
    thread.outcome()
    socket.close()


@pytest.mark.parametrize(
    ("timeout", "flags", "minimum", "maximum"), [(100, 0, 0.1, 10), (0, 0, 0, 10), (-1, zmq.NOBLOCK, 0, 10)]
)
def test_refused_messages_without_end_do_not_prolong_a_receive(
    context, flood, timeout, flags, minimum, maximum
):
    with oz.SubSocket(context) as sub:
        sub.connect(flood)
        sub.subscribe("a.*", dialect="nats")
        sub.rcvtimeo = timeout
        for receive in (sub.recv, sub.recv_multipart, sub.recv_string):
            began = time.monotonic()
            with pytest.raises(zmq.Again):
                receive(flags)
            assert minimum <= time.monotonic() - began < maximum


# Life of a socket ---------------------------------------------------------------------------------


def test_constructors_and_wrong_types():
    with zmq.Context() as context:
        with oz.SubSocket(context) as one, context.socket(zmq.SUB, socket_class=oz.SubSocket) as two:
            assert {one.type, two.type} == {zmq.SUB}
            assert isinstance(one, zmq.Socket)
        assert one.closed
        for wrong in (zmq.PUB, zmq.XSUB, zmq.PAIR):
            with pytest.raises(oz.ConfigurationError, match=r"must be zmq\.SUB"):
                context.socket(wrong, socket_class=oz.SubSocket)
        with pytest.raises(ValueError, match="nuts"):
            oz.SubSocket(context, dialect="nuts")
        pair = context.socket(zmq.PAIR)
        with pytest.raises(oz.ConfigurationError):
            oz.SubSocket(pair)
        pair.close()
        known = oz.SubSocket(context)
        context.destroy()
        assert known.closed


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, oz.SubSocket, oz.SubSocket.shadow])
def test_shadows_share_subscriptions_and_held_messages(make_sub, publisher, make):
    sub = make_sub("a.*", "end")
    shadow = make(sub)
    assert shadow.underlying == sub.underlying
    assert shadow.dialect == "nats"
    publisher.send("a.b.c", "1")
    publisher.send("a.b", "1")
    publisher.send("a.c", "2")
    publisher.send("end")
    assert sub.poll(DEADLINE * 1000)
    assert shadow.recv() == b"a.b"
    assert sub.recv_multipart() == [b"1"]
    shadow.unsubscribe("a.*")
    assert drain(sub) == []


def test_a_closed_socket_says_so_as_pyzmq_does(context):
    sub = oz.SubSocket(context, dialect="nats")
    sub.subscribe("a.*")
    sub.close(linger=0)
    calls = [
        sub.recv,
        sub.recv_multipart,
        lambda: sub.recv_into(bytearray(1)),
        lambda: sub.subscribe("a.*"),
        lambda: sub.unsubscribe("a.*"),
        lambda: sub.get(zmq.EVENTS),
        lambda: sub.rcvmore,
        lambda: sub.poll(0),
    ]
    for call in calls:
        with pytest.raises(zmq.ZMQError):
            call()
