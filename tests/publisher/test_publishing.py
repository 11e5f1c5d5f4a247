"""Arguments that a publisher refuses, its limits, and its list of subscribers."""

import pytest

import oz
from oz.errors import ConfigurationError, SubjectError, Timeout
from oz.options import Options
from support.waiting import DEADLINE


@pytest.mark.parametrize(
    ("payload", "remedy"),
    [
        *((payload, "codec") for payload in ("text", 1, None)),
        *((payload, r"one body of bytes.*join the parts") for payload in ([b"a", b"b"], (b"a",))),
    ],
)
def test_a_payload_is_one_body_of_bytes(make, join, payload, remedy):
    publisher = make()
    join(publisher, "a")
    for _ in range(2):
        with pytest.raises(TypeError, match=remedy):
            publisher.publish("a", payload)


def test_subjects_are_checked_by_the_dialect(make, join):
    publisher = make()
    peer = join(publisher, ">")
    for _ in range(2):
        for wrong in ("", "a..b", "a.*", b"\xff", "\ud800"):
            with pytest.raises(SubjectError):
                publisher.publish(wrong, b"")
        for wrong in (None, 7, ["a"]):
            with pytest.raises(TypeError):
                publisher.publish(wrong, b"")
    publisher.publish(b"a.b", b"1")
    publisher.publish(bytearray(b"a.b"), b"2")
    assert peer.receive(2) == [b"1", b"2"]
    assert make(dialect="zmq").publish("a..b", b"") is None


def test_local_subjects_do_not_leave_the_host(make):
    publisher = make()
    publisher.publish("_LOCAL.a", b"")
    publisher.bind("tcp://0.0.0.0:*")
    with pytest.raises(SubjectError, match=r"0\.0\.0\.0"):
        publisher.publish("_LOCAL.a", b"")


def test_wrong_arguments_are_refused(make):
    for wrong in (
        {"on_full": "wait"},
        {"security": "file.toml"},
        {"delimiter": "/"},
        {"links": 7},
    ):
        with pytest.raises(ConfigurationError):
            make(**wrong)


@pytest.mark.parametrize("cls", [oz.Publisher, oz.Subscriber, oz.asyncio.Publisher, oz.asyncio.Subscriber])
@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"codec": "xml"}, r"codec = 'xml'.*msgpack, json"),
        ({"dialect": "natz"}, r"dialect = 'natz'.*the dialects are nats, rv"),
        ({"dialect": ["nats"]}, r"dialect = \['nats'\]"),
    ],
)
def test_an_unknown_dialect_or_codec_is_named_with_the_remedy(cls, wrong, remedy):
    with pytest.raises(ConfigurationError, match=remedy):
        cls(**wrong)


def test_a_batch_keeps_messages_until_its_end(make, join):
    publisher = make()
    peer = join(publisher, "a")
    with publisher.batch():
        for number in range(10):
            publisher.publish("a", b"%d" % number)
        before = publisher.subscribers[0].pending
    peer.receive(10)
    assert before == 0
    assert peer.link.expected == 10


# wrong arguments


@pytest.mark.parametrize("size", [101, 5_000])
def test_a_large_payload_is_refused_with_and_without_subscribers(make, join, size):
    publisher = make(message_bytes=100)
    text = f"a payload of {size:,} bytes: at most 100 are allowed"
    with pytest.raises(ValueError, match=text):
        publisher.publish("a", b"x" * size)
    peer = join(publisher, "a")
    # The second message is published with the cached route.
    publisher.publish("a", b"0")
    publisher.publish("a", b"1" * 100)
    with pytest.raises(ValueError, match=text):
        publisher.publish("a", b"x" * size)
    assert peer.receive(2) == [b"0", b"1" * 100]
    assert publisher.stats.published == 2


@pytest.mark.parametrize("value", [-1, "10"])
def test_a_high_water_mark_is_a_number(value):
    with pytest.raises(ConfigurationError, match=r"high_water_mark.*0 or more"):
        Options(high_water_mark=value)


def test_misspelled_names_get_a_suggestion(make):
    publisher = make()
    publisher = publisher.raw
    with pytest.raises(AttributeError, match=r"oz\.(asyncio\.)?Publisher .*'publsh'.*did you mean 'publish'"):
        publisher.publsh  # noqa: B018
    with pytest.raises(TypeError, match=r"oz\.(asyncio\.)?Publisher .*'on_ful'.*did you mean 'on_full'"):
        type(publisher)(on_ful="drop")


def test_names_of_pyzmq_get_their_counterpart(make):
    publisher = make()
    publisher = publisher.raw
    with pytest.raises(AttributeError, match=r"'send_multipart'; use oz\.Publisher\.publish"):
        publisher.send_multipart  # noqa: B018
    with pytest.raises(AttributeError, match=r"'linger'; use oz\.Publisher\.close"):
        publisher.linger = 0
    with pytest.raises(TypeError, match=r"'high_water_mark'; use options=oz\.Options\(high_water_mark=…\)"):
        type(publisher)(high_water_mark=1)
    publisher.own = 1
    assert publisher.own == 1
    assert repr(publisher).startswith(("<oz.Publisher tcp://", "<oz.asyncio.Publisher tcp://"))


def test_pairs_are_no_dict_and_no_text(make):
    publisher = make()
    for wrong, remedy in (({"a": b""}, r"\.items\(\)"), ("ab", "publish")):
        with pytest.raises(TypeError, match=remedy):
            publisher.publish_many(wrong)


@pytest.mark.parametrize("wrong", [("b", b"", {}), ("b",), 7, None])
def test_an_element_of_publish_many_that_is_no_pair_is_named(make, join, wrong):
    publisher = make()
    peer = join(publisher, "*")
    with pytest.raises(ConfigurationError, match=r"pairs\[1\] = .*\(subject, payload\).*headers=") as found:
        publisher.publish_many([("a", b"first"), wrong])
    assert found.value.value == wrong
    assert peer.receive(1) == [b"first"]


def test_a_timeout_counts_subscribers_without_a_matching_pattern(make, join):
    publisher = make()
    join(publisher, "time.*")
    publisher.wait_for_subscribers("time.us", timeout=DEADLINE)
    with pytest.raises(Timeout, match=r"0 of 1 subscribers of 'time\.us\.east'.* matching pattern: 1;"):
        publisher.wait_for_subscribers("time.us.east", timeout=0)
