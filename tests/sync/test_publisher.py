import gc
import logging
import signal
import socket
import threading
import time
import warnings

import pytest
import zmq

import oz
from oz.transport import socket as sockets
from support import scripts
from support.sizes import size
from support.waiting import DEADLINE, Thread, frames_of, until


@pytest.fixture
def stalled(context):
    """Make a publisher with room for next to nothing, and a subscriber that does not read."""
    made = []

    def make(high_water_mark=2, **options):
        pub = oz.Publisher("tcp://127.0.0.1:*", high_water_mark=high_water_mark, **options)
        sub = context.socket(zmq.SUB)
        made.append((pub, sub))
        sub.set(zmq.RCVHWM, 2)
        sub.set(zmq.RCVBUF, 4096)
        sub.subscribe(b"")
        sub.connect(pub.endpoint)
        pub.wait_for_subscribers(timeout=DEADLINE)
        return pub, sub

    yield make
    for pub, sub in made:
        pub.close(0)
        sub.close(0)


LARGE = bytes(1_000_000)
EPGM = "epgm://127.0.0.1;239.192.1.1:5555"
WITHOUT_PGM = pytest.mark.skipif(zmq.has("pgm"), reason="this libzmq has PGM")


@pytest.mark.sized
def test_what_was_published_after_waiting_for_a_fresh_subscriber_is_never_lost(context):
    for number in range(size(50, 200)):
        with (
            oz.Publisher("tcp://127.0.0.1:*", context=context) as pub,
            oz.Subscriber(pub.endpoint, context=context) as sub,
        ):
            sub.subscribe("a.*")
            pub.wait_for_subscribers(timeout=DEADLINE)
            pub.publish("a.b", b"%d" % number)
            assert sub.receive(timeout=DEADLINE).payload == b"%d" % number


def test_waiting_counts_only_what_lets_the_subject_through(pair):
    two = pair("a.*", "b.*")
    two.pub.wait_for_subscribers(2, timeout=0)
    two.pub.wait_for_subscribers(1, "a.x", timeout=0)
    with pytest.raises(oz.Timeout, match=r"1 of 2 subscriptions for 'a\.x'"):
        two.pub.wait_for_subscribers(2, "a.x", timeout=0)
    with pytest.raises(oz.SubjectError):
        two.pub.wait_for_subscribers(1, "a.*", timeout=0)


def test_interest_follows_subscriptions_and_their_end(pair):
    two = pair("a.*")
    assert two.pub.interest("a.b")
    assert not two.pub.interest("b.c")
    two.subscriptions[0].unsubscribe()
    until(lambda: not two.pub.interest("a.b"))


def test_interest_ends_with_the_subscriber(pair):
    two = pair("a.*")
    assert two.pub.interest("a.b")
    two.sub.close()
    until(lambda: not two.pub.interest("a.b"))


def test_waiting_ends_with_a_clear_error_when_another_thread_closes():
    pub = oz.Publisher("tcp://127.0.0.1:*")
    waiting = Thread(lambda: pub.wait_for_subscribers(timeout=DEADLINE))
    pub.close()
    with pytest.raises(oz.ClosedError):
        waiting.outcome()


# payloads


@pytest.mark.parametrize(
    ("payload", "frames"),
    [
        (b"", [b""]),
        (bytearray(b"x"), [b"x"]),
        (memoryview(b"abcdef")[::2], [b"ace"]),
        ([b"one", b"", bytearray(b"three")], [b"one", b"", b"three"]),
        ([b"%d" % number for number in range(300)], [b"%d" % number for number in range(300)]),
        (bytes(3_000_000), [bytes(3_000_000)]),
    ],
    ids=["empty", "bytearray", "memoryview", "list", "many", "large"],
)
def test_payloads_arrive_as_they_are(pair, payload, frames):
    two = pair("a")
    two.pub.publish("a", payload)
    message = two.sub.receive(timeout=DEADLINE)
    assert message.frames[1:] == frames
    assert message.payload == frames[0]


@pytest.mark.parametrize("payload", ["text", None, 7, [], [b"x", "y"], [[b"x"]], (b"x", (b"y", b"z"))])
def test_a_payload_of_a_wrong_type_is_refused_and_the_next_message_is_whole(pair, payload):
    two = pair("a", "b")
    with pytest.raises(TypeError, match="a payload is bytes"):
        two.pub.publish("a", payload)
    two.pub.publish("b", b"whole")
    assert two.sub.receive(timeout=DEADLINE).frames == [b"b", b"whole"]
    assert two.pub.stats.published == two.pub.stats.sent == 1


class TextCodec:
    def encode(self, value):
        return str(value)

    def decode(self, payload):
        return payload


def test_a_codec_that_makes_no_bytes_is_refused_and_the_next_message_is_whole(pair):
    two = pair("a", pub={"codec": TextCodec()})
    with pytest.raises(TypeError, match="a payload is bytes"):
        two.pub.publish("a", "x")
    two.pub.send_multipart([b"a", b"whole"])
    assert two.sub.receive(timeout=DEADLINE).frames == [b"a", b"whole"]


def test_a_codec_packs_values_and_unpacks_them(pair):
    two = pair("a", codec="msgpack")
    value = {"n": [1, 2.5, None, True], "b": b"\x00\xff", "t": "ä", 3: -1}
    two.pub.publish("a", value)
    assert two.sub.receive(timeout=DEADLINE).payload == value
    with pytest.raises(TypeError):
        two.pub.publish("a", object())
    two.pub.publish("a", None)
    assert two.sub.receive(timeout=DEADLINE).payload is None


# subjects


@pytest.mark.parametrize(
    ("dialect", "subject"),
    [
        ("nats", "a..b"),
        ("nats", ""),
        ("nats", "a.*"),
        ("nats", "a.>"),
        ("nats", b"a.\xff"),
        ("nats", "a.\udc80"),
        ("kubemq", "a.*"),
        ("kubemq", "a.>"),
        ("rv", "a..b"),
        ("rv", "_RV.x"),
        ("rv", ".".join(["a"] * 200)),
    ],
)
def test_an_invalid_subject_is_refused_by_the_dialect_and_counted_nowhere(pair, dialect, subject):
    two = pair("", dialect=dialect)
    with pytest.raises(oz.SubjectError) as caught:
        two.pub.publish(subject, b"x")
    assert caught.value.dialect == dialect
    assert two.pub.stats == oz.PublisherStats()
    two.pub.publish("ok", b"next")
    assert two.sub.receive(timeout=DEADLINE).frames == [b"ok", b"next"]


@pytest.mark.parametrize("subject", [None, 7, ["a"], object(), ("a", "b")])
def test_a_subject_that_is_no_text_is_a_type_error(pair, subject):
    two = pair("")
    with pytest.raises(TypeError, match="str or bytes"):
        two.pub.publish(subject, b"x")


@pytest.mark.parametrize("dialect", ["redis", "raims.glob", "regex"])
def test_byte_and_regex_dialects_see_nothing_special_in_a_wildcard(pair, dialect):
    two = pair("", dialect=dialect)
    for subject in ("a.*", "a..b", ">"):
        two.pub.publish(subject, b"x")
        assert two.sub.receive(timeout=DEADLINE).subject == subject


def test_rv_sends_a_wildcard_as_an_ordinary_subject_and_warns_at_the_caller(pair):
    two = pair("", dialect="rv")
    with pytest.warns(oz.SubjectWarning, match="wildcard") as caught:
        two.pub.publish("a.*", b"x")
    assert caught[0].filename == __file__
    assert two.sub.receive(timeout=DEADLINE).subject == "a.*"


@pytest.mark.parametrize("subject", [b"\x001", b"\x001abc", "\x001abc"])
def test_subjects_that_open_ozs_own_keys_are_refused(pair, subject):
    two = pair("", dialect="redis")
    with pytest.raises(oz.ProtocolError, match="own keys"):
        two.pub.publish(subject, b"x")
    two.pub.publish(b"\x00\x32", b"fine")
    assert two.sub.receive(timeout=DEADLINE).frames == [b"\x00\x32", b"fine"]


def test_local_subjects_stay_on_this_host(tmp_path, context):
    def refused(pub):
        with pytest.raises(oz.SubjectError, match="stay on this host"):
            pub.publish("_LOCAL.a", b"x")

    with oz.Publisher("tcp://0.0.0.0:*", dialect="rv") as pub:
        refused(pub)
    for endpoint in ("tcp://127.0.0.1:*", f"ipc://{tmp_path}/s", "inproc://local"):
        with oz.Publisher(endpoint, dialect="rv", context=context) as pub:
            pub.publish("_LOCAL.a", b"x")
            pub.bind("tcp://0.0.0.0:*")
            refused(pub)


# high-water marks


def test_on_full_drop_goes_on_past_a_stalled_subscriber(stalled):
    pub, _ = stalled()
    for _ in range(200):
        pub.publish("a", LARGE)
    assert pub.stats.published == pub.stats.sent == 200


def test_on_full_error_raises_at_once(stalled):
    pub, _ = stalled(on_full="error")
    with pytest.raises(oz.WouldBlock, match="'a'"):
        pub.publish_many(("a", LARGE) for _ in range(200))
    assert pub.stats.dropped == 1
    assert pub.stats.published == pub.stats.sent + pub.stats.dropped


def test_on_full_block_raises_when_its_time_is_over(stalled):
    pub, _ = stalled(on_full="block", full_timeout=0.2)
    for _ in range(200):
        started = time.monotonic()
        try:
            pub.publish("a", LARGE)
        except oz.WouldBlock:
            break
    assert 0.15 < time.monotonic() - started < DEADLINE
    assert pub.stats.dropped == 1


def test_on_full_block_loses_nothing_once_the_subscriber_reads(stalled):
    pub, sub = stalled(on_full="block")
    count = 60

    def publish():
        for number in range(count):
            pub.publish("a", b"%d" % number + LARGE)

    publishing = Thread(publish)
    until(lambda: pub.stats.sent)
    got = []
    sub.set(zmq.RCVTIMEO, int(DEADLINE * 1000))
    while len(got) < count:
        frames = sub.recv_multipart()
        assert frames[0] == b"a"
        got.append(int(frames[1].partition(b"\0")[0]))
    assert got == list(range(count))
    publishing.outcome()


def test_closing_ends_a_publish_that_blocks_in_another_thread(stalled):
    pub, _ = stalled(on_full="block")

    def publish():
        while True:
            pub.publish("a", LARGE)

    publishing = Thread(publish)
    last = -1
    while not last or last != pub.stats.sent:
        last = pub.stats.sent
        publishing.join(0.3)
    Thread(lambda: pub.close(timeout=0.1)).outcome()
    with pytest.raises(oz.ClosedError):
        publishing.outcome()


# closing


def test_a_stalled_subscriber_holds_up_closing_no_longer_than_the_timeout(stalled, caplog):
    pub, _ = stalled(high_water_mark=1_000)
    for _ in range(100):
        pub.publish("a", LARGE)
    caplog.set_level(logging.WARNING, "oz.socket")
    started = time.monotonic()
    pub.close(timeout=0.5)
    assert 0.4 < time.monotonic() - started < DEADLINE
    assert "unsent" in caplog.text


def test_closing_without_subscribers_is_quick_and_may_be_repeated():
    pub = oz.Publisher("tcp://127.0.0.1:*")
    pub.publish("a", b"x")
    started = time.monotonic()
    pub.close(timeout=2 * DEADLINE)
    pub.close()
    pub.close(0)
    assert time.monotonic() - started < DEADLINE
    assert pub.closed


def test_threads_may_close_at_the_same_time():
    for _ in range(20):
        pub = oz.Publisher("tcp://127.0.0.1:*")
        barrier = threading.Barrier(4)

        def close(pub=pub, barrier=barrier):
            barrier.wait(DEADLINE)
            pub.close()

        for thread in [Thread(close) for _ in range(4)]:
            thread.outcome()


def test_use_after_close_is_a_clear_error():
    pub = oz.Publisher("tcp://127.0.0.1:*")
    pub.close()
    for use in (
        lambda: pub.publish("a", b"x"),
        lambda: pub.publish_many([("a", b"x")]),
        lambda: pub.interest("a"),
        lambda: pub.wait_for_subscribers(timeout=0),
    ):
        with pytest.raises(oz.ClosedError):
            use()


@pytest.mark.parametrize("own_context", [True, False])
def test_a_monitor_left_open_does_not_hold_up_closing(context, own_context):
    pub = oz.Publisher("tcp://127.0.0.1:*", context=None if own_context else context)
    monitor = pub.get_monitor_socket()
    Thread(pub.close).outcome()
    monitor.close(0)


def test_with_a_shared_context_closing_leaves_the_context_open(context):
    with (
        oz.Publisher("inproc://x", context=context) as pub,
        oz.Subscriber("inproc://x", context=context) as sub,
    ):
        sub.subscribe("a")
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.close()
        assert not context.closed
        with oz.Publisher("inproc://y", context=context):
            pass


# making


@pytest.fixture
def taken_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


@pytest.mark.parametrize("socket_class", [oz.Publisher, oz.Subscriber])
@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(
            [({"bind": EPGM}, oz.TransportUnavailable), ({"connect": EPGM}, oz.TransportUnavailable)],
            marks=WITHOUT_PGM,
        ),
        [
            ({"bind": "nonsense"}, ValueError),
            ({"bind": "tcp://"}, ValueError),
            ({"bind": 5}, TypeError),
            ({"bind": "tcp://192.0.2.1:1"}, zmq.ZMQError),
            ({"connect": "tcp://127.0.0.1:port"}, zmq.ZMQError),
            ({"connect": "inproc://x"}, ValueError),
            ({"dialect": "klingon"}, ValueError),
            ({"codec": "klingon"}, ValueError),
            ({"codec": b"bytes"}, TypeError),
            ({"high_water_mark": -1}, ValueError),
            ({"high_water_mark": "many"}, TypeError),
        ],
    ],
    ids=["without PGM", "anywhere"],
)
def test_what_cannot_be_made_leaves_nothing_open(socket_class, refused):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for options, error in refused:
            print(options)  # which a failure shows last
            with pytest.raises(error):
                socket_class(**options)
        gc.collect()
    assert not [str(one.message) for one in caught if "zmq" in str(one.message).lower()]


def test_a_publisher_with_a_bad_policy_leaves_nothing_open():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for options in (
            {"on_full": "wait"},
            {"on_full": "block", "full_timeout": -5},
            {"on_full": "block", "full_timeout": "x"},
        ):
            with pytest.raises((ValueError, TypeError, zmq.ZMQError)):
                oz.Publisher(**options)
        gc.collect()
    assert not [str(one.message) for one in caught if "zmq" in str(one.message).lower()]


def test_an_address_in_use_is_an_error_that_names_it_and_leaves_nothing_open(taken_port):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(zmq.ZMQError, match=str(taken_port)) as error:
            oz.Publisher(["tcp://127.0.0.1:*", f"tcp://127.0.0.1:{taken_port}"])
        gc.collect()
    assert error.value.errno == zmq.EADDRINUSE
    assert not [str(one.message) for one in caught if "zmq" in str(one.message).lower()]


def test_a_socket_of_another_type_is_refused(context):
    with pytest.raises(ValueError, match="not PULL"):
        context.socket(zmq.PULL, socket_class=oz.Publisher)
    with pytest.raises(ValueError, match="not PUB"):
        context.socket(zmq.PUB, socket_class=oz.Subscriber)


# threads and signals


@pytest.mark.sized
def test_many_threads_publish_on_one_publisher_and_nothing_is_lost(pair):
    two = pair("t.*")
    count, threads = size(1_000, 3_000), 8

    def publish(name):
        for number in range(count):
            two.pub.publish(f"t.{name}", [b"%d" % number, b"end"])

    running = [Thread(lambda name=name: publish(name)) for name in range(threads)]
    got = {f"t.{name}": [] for name in range(threads)}
    for _ in range(count * threads):
        message = two.sub.receive(timeout=DEADLINE)
        assert len(message.frames) == 3
        assert message.frames[2] == b"end"
        got[message.subject].append(int(message.payload))
    assert all(numbers == list(range(count)) for numbers in got.values())
    for thread in running:
        thread.outcome()
    assert two.pub.stats.published == two.pub.stats.sent == count * threads


def test_subscriptions_of_a_script_that_only_sends_do_not_pile_up(context):
    with (
        oz.Publisher("inproc://x", context=context) as pub,
        oz.Subscriber("inproc://x", context=context) as sub,
    ):
        sub.subscribe("a")
        for _ in range(5_000):
            pub.send_multipart([b"b", b"x"])
        assert not pub.poll(0)


def until_asleep(pid):
    looks = []

    def sleeps():
        with open(f"/proc/{pid}/stat") as stat:
            looks.append(stat.read().rpartition(")")[2].split()[0])
        return looks[-10:] == ["S"] * 10

    until(sleeps)


SIGINT_PROGRAM = """
import os, signal, sys, threading
import oz
with oz.Publisher("tcp://127.0.0.1:*", on_full="block", high_water_mark=2) as pub:
    with oz.Subscriber(pub.endpoint, high_water_mark=2) as sub:
        sub.subscribe("a")
        pub.wait_for_subscribers(timeout=60)
        try:
            print("ready", flush=True)
            WAIT
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            pub.close(0)
"""


@pytest.mark.parametrize(
    "wait",
    [
        "sub.receive()",
        "sub.receive(timeout=60)",
        "sub.recv_multipart()",
        "next(iter(sub))",
        "sub.run()",
        "sub.poll(60_000)",
        "pub.wait_for_subscribers(5)",
        "while True: pub.publish('a', bytes(1_000_000))",
    ],
)
def test_ctrl_c_ends_what_waits(wait):
    with scripts.started("-c", SIGINT_PROGRAM.replace("WAIT", wait)) as process:
        assert process.stdout.readline() == "ready\n"
        # A signal just before a wait in C begins does not end it, in any program: let it begin.
        until_asleep(process.pid)
        process.send_signal(signal.SIGINT)
        assert scripts.finished(process) == "interrupted\n"


def test_publish_many_publishes_all_before_the_first_that_raises(pair):
    two = pair("a")
    with pytest.raises(oz.SubjectError):
        two.pub.publish_many([("a", b"1"), ("a", b"2"), ("a..b", b"3"), ("a", b"4")])
    assert two.pub.publish_many(("a", b"%d" % number) for number in range(3)) == 3
    assert [frames[1] for frames in frames_of(two.sub, 5)] == [b"1", b"2", b"0", b"1", b"2"]


def test_close_with_a_linger_of_minus_one_waits_until_all_is_fetched(stalled, monkeypatch):
    monkeypatch.setattr(sockets, "_PATIENCE", 0.05)
    pub, sub = stalled(high_water_mark=0)
    for _ in range(300):
        pub.publish("a", bytes(20_000))
    closing = Thread(lambda: pub.close(linger=-1))
    # By then it would have given up.
    closing.join(0.5)
    assert closing.is_alive()
    assert len([sub.recv_multipart() for _ in range(300)]) == 300
    closing.outcome()


def test_ctrl_c_ends_a_close_that_waits_for_ever(stalled):
    pub, _ = stalled(high_water_mark=0)
    for _ in range(300):
        pub.publish("a", bytes(20_000))
    interrupting = threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,))
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        pub.close(linger=-1)
    pub.close(linger=0)
    assert pub.closed
