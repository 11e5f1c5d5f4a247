import gc
import signal
import socket
import warnings

import pytest
import zmq

import oz
from support import scripts
from support.cases import each
from support.sizes import size
from support.waiting import DEADLINE, Thread, until

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


NO_PAIRS = (
    "ab",
    b"ab",
    {"a.b": 1, "a.c": 2},
    {"a.b", "a.c"},
    ("a.b",),
    ("a.b", 1, {"trace": "7"}),
    ["a.b"],
    None,
    5,
)


@each("no_pair", NO_PAIRS)
def test_what_is_no_pair_of_subject_and_payload_is_named(no_pair):
    with oz.Publisher("tcp://127.0.0.1:*", codec="msgpack") as pub:
        with pytest.raises(TypeError, match="takes pairs of subject and payload, not ") as raised:
            pub.publish_many([("a.b", 1), no_pair, ("a.b", 2)])
        assert repr(no_pair) in str(raised.value)
        assert pub.stats.published == 1
        assert pub.publish_many([["a.b", 1], ("a.b", 2), ("a.b", "ab")]) == 3


def test_the_items_of_a_dict_are_pairs_and_the_dict_is_none():
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        with pytest.raises(TypeError, match=r"not 'ab': of a dict give its items\(\)"):
            pub.publish_many({"ab": b"1"})
        assert pub.publish_many({"ab": b"1"}.items()) == 1


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
        "sub.recv_multipart()",
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
