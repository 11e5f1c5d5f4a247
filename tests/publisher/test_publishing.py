"""Messages from a publisher to links: filters, extras, codecs, batches, last values, statistics."""

import threading

import pytest

import oz
from oz.errors import ConfigurationError, SubjectError, Timeout
from oz.options import Options
from support.waiting import Thread, until


def published(publisher, *pairs):
    for subject, payload in pairs:
        publisher.publish(subject, payload)
    publisher.flush()


def test_a_link_gets_the_messages_that_match_in_order(make, join):
    publisher = make()
    peer = join(publisher, "a.*", "b.>")
    sent = [(f"{one}.{number}", b"%d" % number) for number in range(1_000) for one in "abc"]
    published(publisher, *sent)
    wanted = [pair for pair in sent if pair[0][0] != "c"]
    peer.receive(len(wanted))
    assert [(subject, payload) for subject, payload, _ in peer.messages] == wanted
    assert peer.gaps == []


def test_a_lone_message_arrives_without_flush(make, join):
    publisher = make()
    peer = join(publisher, "a")
    for number in range(20):
        publisher.publish("a", b"%d" % number)
        assert peer.receive(number + 1)[-1] == b"%d" % number


def test_a_short_burst_arrives_without_flush(make, join):
    publisher = make(batch_delay=0.001)
    peer = join(publisher, "a")
    count = 0
    for size in (2, 3, 5) * 8:
        for _ in range(size):
            publisher.publish("a", b"%d" % count)
            count += 1
        peer.receive(count)


def test_two_links_share_a_stream_of_messages(make, join):
    publisher = make()
    first, second, third = (join(publisher, text) for text in ("a.*", "a.>", "a.1"))
    published(publisher, *[(f"a.{number % 3}", b"%d" % number) for number in range(300)])
    assert first.receive(300) == second.receive(300) == [b"%d" % number for number in range(300)]
    assert third.receive(100) == [b"%d" % number for number in range(1, 300, 3)]
    assert third.positions == list(range(1, 300, 3))


def test_links_that_joined_at_other_times_get_the_same_large_batch(make, join):
    # Links with equal numbers share the frame of a large body, others do not.
    publisher = make()
    early = [join(publisher, "a") for _ in range(2)]
    publisher.publish("a", b"0")
    publisher.flush()
    late = [join(publisher, "a") for _ in range(2)]
    sent = [b"%d" % number * 10 for number in range(1, 400)]
    published(publisher, *[("a", payload) for payload in sent])
    for peer in early:
        assert peer.receive(400) == [b"0", *sent]
    for peer in late:
        assert peer.receive(399) == sent
    assert not any(peer.gaps for peer in early + late)


def test_extras_travel_with_the_message(make, join):
    publisher = make()
    peer = join(publisher, "a")
    publisher.publish("a", b"", headers={"n": 1, "text": "é"}, id=b"one", key="k")
    publisher.publish("a", b"", id=(b"series", 7))
    publisher.flush()
    peer.receive(2)
    assert [extras for _, _, extras in peer.messages] == [
        {"headers": {"n": 1, "text": "é"}, "id": b"one"},
        {"id": [b"series", 7]},
    ]


def test_a_codec_encodes_payloads(make, join):
    publisher = make(codec="json")
    peer = join(publisher, "a")
    publisher.publish("a", {"x": [1, 2]})
    publisher.publish("b", 1)
    with pytest.raises(TypeError, match="JSON"):
        publisher.publish("a", object())
    assert peer.receive(1) == [b'{"x":[1,2]}']


@pytest.mark.parametrize("payload", [bytearray(b"x"), memoryview(b"x")])
def test_any_bytes_are_a_payload(make, join, payload):
    publisher = make()
    peer = join(publisher, "a")
    publisher.publish("a", payload)
    assert peer.receive(1) == [b"x"]


@pytest.mark.parametrize("payload", ["text", 1, None, [b"a"]])
def test_other_payloads_need_a_codec(make, join, payload):
    publisher = make()
    join(publisher, "a")
    for _ in range(2):
        with pytest.raises(TypeError, match="codec"):
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
        ({"dialect": "natz"}, r"dialect = 'natz'.*there are nats, rv"),
        ({"dialect": ["nats"]}, r"dialect = \['nats'\]"),
    ],
)
def test_an_unknown_dialect_or_codec_is_named_with_the_remedy(cls, wrong, remedy):
    with pytest.raises(ConfigurationError, match=remedy):
        cls(**wrong)


def test_publish_many_counts_and_keeps_the_order(make, join):
    publisher = make()
    peer = join(publisher, "a")
    assert publisher.publish_many(("a", b"%d" % number) for number in range(2_000)) == 2_000
    assert peer.receive(2_000) == [b"%d" % number for number in range(2_000)]
    with pytest.raises(SubjectError):
        publisher.publish_many([("a", b"last"), ("a..b", b"")])
    assert peer.receive(2_001)[-1] == b"last"


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


def test_messages_of_all_sizes_arrive(make, join):
    publisher = make()
    peer = join(publisher, "a")
    sizes = [0, 1, 8_000, 9_000, 65_535, 65_536, 1_000_000, 3_000_000, 5]
    for size in sizes:
        publisher.publish("a", b"x" * size)
    publisher.flush()
    assert [len(payload) for payload in peer.receive(len(sizes))] == sizes


def test_a_message_larger_than_the_subscriber_accepts_is_dropped_for_it(make, join):
    publisher = make()
    small, other = join(publisher, "a", largest_frame=2 << 20), join(publisher, "a")
    attempt = small.link.attempt
    published(publisher, ("a", b"1"), ("a", b"x" * (3 << 20)), ("a", b"2"))
    assert small.receive(2) == [b"1", b"2"]
    other.receive(3)
    assert small.lost == [(1, "dropped")]
    # The connection stays.
    assert small.link.attempt == attempt
    assert publisher.stats.dropped["too_large"] == 1
    (dropped,) = [one.dropped for one in publisher.subscribers if one.member == small.member.hex()]
    assert dropped["too_large"] == 1


def test_last_values_come_first_and_once(make, join):
    publisher = make(last_value=True)
    published(publisher, ("a.1", b"old"), ("a.1", b"new"), ("a.2", b"two"), ("b", b""))
    peer = join(publisher, "a.*", last_value=True)
    published(publisher, ("a.3", b"three"))
    assert peer.receive(3) == [b"new", b"two", b"three"]
    assert [extras and set(extras) for _, _, extras in peer.messages] == [{"sid"}, {"sid"}, None]
    assert join(publisher, "a.*").payloads == []


def test_published_is_the_sum_of_its_parts(make, join):
    publisher = make()
    join(publisher, "a.*")
    for number in range(100):
        for subject in (f"a.{number % 7}", "b.1", "c.1"):
            publisher.publish(subject, b"")
    publisher.flush()
    stats = publisher.stats
    assert (stats.published, stats.sent, stats.unmatched, stats.refused) == (300, 100, 200, 0)


def test_last_values_do_not_count_as_sent(make):
    publisher = make(last_value=True)
    publisher.publish("a", b"")
    assert (publisher.stats.published, publisher.stats.sent, publisher.stats.unmatched) == (1, 0, 1)


def test_subscribers_shows_each_link(make, join):
    publisher = make()
    peer = join(publisher, "a.*", "b.>")
    peer.is_acking = False
    published(publisher, ("a.1", b"x" * 100), ("b", b""), ("a.2", b"x"))
    (info,) = publisher.subscribers
    assert (info.member, info.state, set(info.patterns)) == (peer.member.hex(), "up", {"a.*", "b.>"})
    assert info.pending == 2
    assert info.pending_bytes > 100
    assert info.oldest >= 0
    assert peer.link.session.hex() not in repr(info)
    peer.is_acking = True
    peer.until(lambda: publisher.subscribers[0].pending == 0)
    assert publisher.subscribers[0].oldest is None


def test_waiting_for_subscribers(make, join):
    publisher = make()
    assert not publisher.has_subscribers("a")
    with pytest.raises(Timeout, match="0 of 1") as caught:
        publisher.wait_for_subscribers(timeout=0)
    assert publisher.link_endpoints[0] in str(caught.value)
    waiting = Thread(lambda: publisher.wait_for_subscribers("a.1", count=2))
    join(publisher, "a.*")
    with pytest.raises(Timeout, match=r"1 of 2.*a\.1"):
        publisher.wait_for_subscribers("a.1", count=2, timeout=0.01)
    join(publisher, "a.*", group="g")
    waiting.outcome()
    assert publisher.has_subscribers("a.1")
    assert not publisher.has_subscribers("b")


def test_a_subscriber_counts_once_its_declaration_is_applied(make, join):
    publisher = make()
    join(publisher, "a", ready=False)
    # The subscriber does nothing meanwhile.
    publisher.wait_for_subscribers("a")


def test_an_ended_subscription_gets_no_more(make, join):
    publisher = make()
    peer = join(publisher, "a")
    (more,) = peer.subscribe("b")
    peer.ready()
    publisher.publish("b", b"1")
    peer.receive(1)
    peer.unsubscribe(more)
    peer.ready()
    assert not publisher.has_subscribers("b")
    published(publisher, ("b", b"2"), ("a", b"3"))
    assert peer.receive(2) == [b"1", b"3"]


def test_a_subscriber_that_leaves_is_forgotten(make, join):
    publisher = make()
    peer = join(publisher, "a")
    peer.leave()
    until(lambda: not publisher.has_subscribers("a") and not publisher.subscribers)


def test_ten_thousand_patterns_join(make, join):
    publisher = make()
    peer = join(publisher, *[f"a.{number}.*" for number in range(10_000)])
    published(publisher, ("a.9999.x", b"1"), ("a.10000.x", b"2"))
    assert peer.receive(1) == [b"1"]


def test_a_pattern_that_is_not_valid_is_refused(make, join):
    publisher = make(patterns=2)
    peer = join(publisher, "a", "b", "c")
    assert [refusal.reason for refusal in peer.refused] == [
        "the session has 2 subscriptions, which is the limit"
    ]


@pytest.mark.parametrize("kind", ["sync"], indirect=False)
def test_many_threads_publish(make, join):
    publisher = make(on_full="block", resume_bytes=64 << 20)
    peer = join(publisher, "t.*")
    gate = threading.Barrier(5)

    def publish(thread):
        gate.wait()
        for number in range(5_000):
            publisher.publish(f"t.{thread}", b"%d" % number)

    threads = [Thread(lambda own=own: publish(own)) for own in range(4)]
    gate.wait()
    peer.until(lambda: len(peer.messages) >= 20_000)
    for one in threads:
        one.outcome()
    for thread in range(4):
        own = [payload for subject, payload, _ in peer.messages if subject == f"t.{thread}"]
        assert own == [b"%d" % number for number in range(5_000)]
    assert publisher.stats.published == publisher.stats.sent == 20_000
    assert sorted(peer.positions) == list(range(20_000))


def test_the_dialect_of_a_pattern_is_its_own(make, join):
    publisher = make()
    peer = join(publisher, oz.compile("rv:a.>").text, "regex:^b[0-9]$")
    published(publisher, ("b1", b"1"), ("bb", b"2"), ("a.b.c", b"3"))
    assert peer.receive(2) == [b"1", b"3"]


def test_a_pattern_that_takes_too_long_is_suspended(make, join):
    publisher = make()
    slow, other = join(publisher, "regex:^(a|aa)+$"), join(publisher, "regex:^a+!$")
    for number in range(3):
        publisher.publish("a" * (40 + number) + "!", b"")
    slow.until(lambda: slow.refused)
    assert "suspended" in slow.refused[0].reason
    other.receive(3)


def test_many_links(make, join):
    publisher = make()
    peers = [join(publisher, "a", f"b.{number}") for number in range(60)]
    published(publisher, *[("a", b"%d" % number) for number in range(500)], ("b.7", b"own"))
    for number, peer in enumerate(peers):
        peer.receive(501 if number == 7 else 500)
    assert [len(peer.messages) for peer in peers] == [501 if number == 7 else 500 for number in range(60)]
    assert peers[7].payloads[-1] == b"own"
    assert all(not peer.gaps for peer in peers)


# wrong arguments


@pytest.mark.parametrize("payload", [[b"a", b"b"], (b"a",)])
def test_a_payload_is_one_body(make, payload):
    publisher = make()
    with pytest.raises(TypeError, match=r"one body of bytes.*join the parts"):
        publisher.publish("a", payload)


@pytest.mark.parametrize("size", [101, 5_000])
def test_a_large_payload_is_refused_with_and_without_subscribers(make, join, size):
    publisher = make(message_bytes=100)
    text = f"a payload of {size:,} bytes: at most 100 are allowed"
    with pytest.raises(ValueError, match=text):
        publisher.publish("a", b"x" * size)
    peer = join(publisher, "a")
    # The second message is published without a look at the route.
    publisher.publish("a", b"0")
    publisher.publish("a", b"1" * 100)
    with pytest.raises(ValueError, match=text):
        publisher.publish("a", b"x" * size)
    assert peer.receive(2) == [b"0", b"1" * 100]
    assert publisher.stats.published == 2


def test_without_a_high_water_mark_bytes_are_the_limit(make, join):
    publisher = make(high_water_mark=0, resume_bytes=1_000)
    peer = join(publisher, "a")
    peer.is_acking = False
    for number in range(20_000):
        publisher.publish("a", b"%d" % number)
    peer.is_acking = True
    assert peer.receive(20_000) == [b"%d" % number for number in range(20_000)]
    assert peer.gaps == []


@pytest.mark.parametrize("value", [-1, "10"])
def test_a_high_water_mark_is_a_number(value):
    with pytest.raises(ConfigurationError, match=r"high_water_mark.*0 or more"):
        Options(high_water_mark=value)


def test_misspelled_names_get_a_suggestion(make):
    publisher = make()
    publisher = getattr(publisher, "raw", publisher)
    with pytest.raises(AttributeError, match=r"oz\.(asyncio\.)?Publisher .*'publsh'.*did you mean 'publish'"):
        publisher.publsh  # noqa: B018
    with pytest.raises(TypeError, match=r"oz\.(asyncio\.)?Publisher .*'on_ful'.*did you mean 'on_full'"):
        type(publisher)(on_ful="drop")


def test_names_of_pyzmq_get_their_counterpart(make):
    publisher = make()
    publisher = getattr(publisher, "raw", publisher)
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
    publisher.wait_for_subscribers("time.us", timeout=5)
    with pytest.raises(Timeout, match=r"0 of 1 subscribers of 'time\.us\.east'.* matching pattern: 1;"):
        publisher.wait_for_subscribers("time.us.east", timeout=0)
