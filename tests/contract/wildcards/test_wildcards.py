"""Wildcards and dialects over sockets."""

import re
import unicodedata
from contextlib import suppress

import pytest

from contract.adapter import compile_pattern, errors
from contract.promises import cases, promise
from support.waiting import until

TABLE = {
    # dialect: pattern, subjects that match, refused subjects with its prefix, subjects without its prefix
    "nats": ("time.*.east", ["time.us.east"], ["time.us.west", "time.a.b.east", "time.east"], ["tim.a.east"]),
    "rv": ("RUN.>", ["RUN.DMC", "RUN.SWIM.BIKE"], [], ["RUN", "Run.away", "HOME.RUN"]),
    "kubemq": ("foo*.bar", ["foo.bar", "foo1.bar"], ["foo.baz", "foo"], ["fo.bar"]),
    "redis": ("h[ae]?lo", ["hallo", "hello", "ha.lo"], ["hallo!", "haalloo"], ["hillo", "xhallo"]),
    "raims.sub": ("foo.*", ["foo.*"], ["foo.*.a"], ["foo.a", "foo"]),
    "raims.rv": ("a*.b.>", ["a*.b.c", "a*.b.c.d"], [], ["ax.b.c", "a*.b"]),
    "raims.glob": ("fo?.bar", ["foo.bar", "fo.bar"], ["fooo.bar", "foo.bar.x"], ["f.bar"]),
    "regex": (r"^order\.(new|fill)\..*", ["order.new.1", "order.fill."], [], ["order.cancel.1", "order"]),
    "mqtt": (
        "home/+/temp/#",
        ["home/a/temp", "home//temp/x"],
        ["home/a/b/temp", "home/a"],
        ["home", "x/a/temp"],
    ),
    "amqp": ("stock.#.nyse", ["stock.nyse", "stock.a.b.nyse"], ["stock.nyse.a"], ["stocks.nyse", "nyse"]),
    "zmq": ("foo", ["foo", "foobar", "foo.bar"], [], ["fo", "xfoo"]),
}


@promise("A pattern of each dialect selects its subjects; subjects without its prefix are not sent.")
@cases("dialect", TABLE)
def test_pattern_of_each_dialect_selects_its_subjects(sockets, dialect):
    pattern, matching, refused, outside = TABLE[dialect]
    publisher = sockets.publisher(dialect="zmq")
    subscriber = sockets.subscriber(publisher)
    sockets.subscribe(publisher, subscriber, pattern, dialect=dialect)
    sockets.subscribe(publisher, subscriber, "end", dialect="zmq")
    for subject in [*outside, *refused, *matching, *refused, *outside, "end"]:
        publisher.publish(subject, subject.encode())
    got = [subscriber.receive() for _ in [*matching, "end"]]
    assert [message.subject for message in got] == [*matching, "end"]
    assert [message.payload for message in got] == [subject.encode() for subject in [*matching, "end"]]
    sent = len(got) + (2 * len(refused) if sockets.filtering == "prefix" else 0)
    assert (subscriber.stats.received, subscriber.stats.delivered) == (sent, len(got))


@promise("A pattern with several prefixes receives its subjects; other subjects are not sent.")
def test_pattern_with_several_prefixes(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, subscriber, r"regex:(us|eu)\.(east|west)\..*")
    for region in ("us.east", "ap.east", "eu.west", "us.north", "um.east", "eu.east"):
        publisher.publish(f"{region}.1", region.encode())
    assert got.receive_all(3) == [b"us.east", b"eu.west", b"eu.east"]
    assert subscriber.stats.received == 3


@promise("A literal matches one subject, and not the longer subjects that begin with it.")
def test_literal_matches_one_subject(pair):
    got = pair.subscribe("foo")
    for subject in ("foo", "foobar", "foo.bar", "fo"):
        pair.publisher.publish(subject, subject.encode())
    pair.publisher.publish("foo", b"end")
    assert got.receive_all(2) == [b"foo", b"end"]


@promise("A message that several patterns of a subscription match is delivered once.")
def test_list_of_patterns_delivers_a_message_once(pair):
    got = pair.subscribe(["a.*", "*.b", compile_pattern(re.compile(r"a\.[bc]"))])
    for subject in ("a.b", "a.c", "x.b", "x.c", "a.d"):
        pair.publisher.publish(subject, subject.encode())
    assert got.receive_all(4) == [b"a.b", b"a.c", b"x.b", b"a.d"]
    pair.publisher.publish("a.b", b"end")
    assert got.receive().payload == b"end"


@promise("A message that several subscriptions match is delivered once and names them.")
def test_message_names_its_subscriptions(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    patterns = ["md.>", "md.*.ibm", "redis:md.n*", "md.nyse.ibm"]
    made = {pattern: sockets.subscribe(publisher, subscriber, pattern) for pattern in patterns}
    for subject in ("md.nyse.ibm", "md.nyse.ge", "md.xetra.ibm", "md.end"):
        publisher.publish(subject)
    named = {}
    for _ in range(4):
        message = subscriber.receive()
        named[message.subject] = [pattern for pattern in patterns if message.is_for(made[pattern])]
    assert named == {
        "md.nyse.ibm": patterns,
        "md.nyse.ge": ["md.>", "redis:md.n*"],
        "md.xetra.ibm": ["md.>", "md.*.ibm"],
        "md.end": ["md.>"],
    }


@promise(
    "A pattern of bytes is a plain prefix in every dialect.",
    not_for={"node": "A node reads bytes as a pattern, because it replaces no ZeroMQ socket."},
)
def test_bytes_are_a_prefix(pair):
    got = pair.subscribe(b"foo.*")
    for subject in ("foo.a", "foo", "foo.*x", "foo.*x.y"):
        pair.publisher.publish(subject, subject.encode())
    assert got.receive_all(2) == [b"foo.*x", b"foo.*x.y"]


@promise("A dialect is named before a colon, by dialect=, or by a compiled pattern.")
@cases(
    "pattern, options",
    [("mqtt:a/+", {}), ("a/+", {"dialect": "mqtt"}), (compile_pattern("a/+", "mqtt"), {})],
    ids=["colon", "argument", "compiled"],
)
def test_dialect_of_a_subscription(pair, pattern, options):
    got = pair.subscribe(pattern, **options)
    for subject in ("a/b/c", "a/b", "a/+x"):
        pair.publisher.publish(subject, subject.encode())
    assert got.receive_all(2) == [b"a/b", b"a/+x"]


@promise("Subjects are compared as bytes, without Unicode normalization; text and its UTF-8 are one subject.")
def test_subjects_are_compared_as_bytes(pair):
    composed, decomposed = (unicodedata.normalize(form, "café.1") for form in ("NFC", "NFD"))
    got = pair.subscribe(unicodedata.normalize("NFC", "café.*"))
    for subject in (decomposed, composed, decomposed.encode(), composed.encode()):
        pair.publisher.publish(subject, b"1")
    messages = [got.receive(), got.receive()]
    assert [message.subject for message in messages] == [composed] * 2
    assert [message.subject_bytes for message in messages] == [composed.encode()] * 2
    pair.publisher.publish(composed, b"end")
    assert got.receive().payload == b"end"


@promise("A subject that is not UTF-8 is matched by the byte dialects, and published again unchanged.")
def test_subject_that_is_not_utf_8(sockets):
    publisher = sockets.publisher(dialect="redis")
    subscriber = sockets.subscriber(publisher)
    sockets.subscribe(publisher, subscriber, "redis:*.[\xff\xe9]*")
    sockets.subscribe(publisher, subscriber, "redis:??.end")
    publisher.publish(b"\xff\xfe.end", b"1")
    message = subscriber.receive()
    assert (message.subject_bytes, message.subject) == (b"\xff\xfe.end", "\udcff\udcfe.end")
    publisher.publish(message.subject, b"2")
    again = subscriber.receive()
    assert (again.subject_bytes, again.payload) == (b"\xff\xfe.end", b"2")


@promise("An invalid subject raises SubjectError and is not sent; other messages are sent.")
@cases("subject", ["a..b", "a.*", "a b", ""])
def test_invalid_subject_is_refused(pair, subject):
    got = pair.subscribe(">")
    pair.publisher.publish("a.1", b"1")
    with pytest.raises(errors.SubjectError) as caught:
        pair.publisher.publish(subject, b"refused")
    assert (caught.value.dialect, caught.value.text) == ("nats", subject)
    assert isinstance(caught.value.position, int)
    assert caught.value.rule
    pair.publisher.publish("a.2", b"2")
    assert got.receive_all(2) == [b"1", b"2"]


@promise("An invalid pattern raises PatternError and subscribes to nothing; other subscriptions remain.")
def test_invalid_pattern_is_refused(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, subscriber, "a.*")
    for invalid in ("md..ibm", "regex:(", ["b.*", "b.>.c"]):
        with pytest.raises(errors.PatternError) as caught:
            subscriber.subscribe(invalid)
        assert caught.value.rule
    sockets.subscribe(publisher, subscriber, "last.*")
    for subject in ("b.1", "a.1", "md.x", "last.1"):
        publisher.publish(subject, subject.encode())
    assert got.receive().payload == b"a.1"
    assert subscriber.receive().payload == b"last.1"
    assert subscriber.stats.received == 2


@promise(
    "After unsubscribe nothing more is sent or delivered for the subscription, not even queued messages."
)
def test_unsubscribe_ends_delivery(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    ended = sockets.subscribe(publisher, subscriber, "a.*")
    sockets.subscribe(publisher, subscriber, "a.shared")
    sockets.subscribe(publisher, subscriber, "end.*")
    publisher.publish_many(("a.own", b"%d" % number) for number in range(50))
    publisher.publish("a.shared", b"shared")
    assert subscriber.receive().payload == b"0"
    ended.unsubscribe()
    ended.unsubscribe()
    assert not ended.active
    publisher.publish("a.own", b"late")
    publisher.publish("end.1", b"end")
    shared = subscriber.receive()
    assert shared.payload == b"shared"
    assert not shared.is_for(ended)
    assert subscriber.receive().payload == b"end"
    with suppress(errors.Timeout):
        subscriber.receive(timeout=0.01)
    until(lambda: not publisher.has_subscribers("a.own"))


@promise("Unsubscribing sends few bytes, and the connection of the other subscriptions stays.")
def test_unsubscribe_leaves_the_connection(proxied):
    # To declare all patterns again costs thousands of bytes.
    kept, ended = proxied.subscribe([f"a.{number}.x" for number in range(200)]), proxied.subscribe("b.x")
    proxy = proxied.proxy
    passed, accepted = proxy.passed, proxy.accepted
    ended.unsubscribe()
    until(lambda: not proxied.publisher.has_subscribers("b.x"))
    proxied.publisher.publish("a.199.x", b"1")
    assert kept.receive().payload == b"1"
    assert proxy.passed - passed < 2_000
    assert proxy.accepted == accepted


@promise("A pattern that takes too long for a subject affects no other message.")
def test_slow_pattern_costs_no_other_message(sockets):
    publisher = sockets.publisher(dialect="regex")
    subscriber = sockets.subscriber(publisher)
    sockets.subscribe(publisher, subscriber, "ok.*")
    sockets.subscribe(publisher, subscriber, "(a|aa)+$", dialect="regex")
    subjects = ["a" * 50 + "b" if number == 100 else f"ok.{number}" for number in range(300)]
    publisher.publish_many((subject, b"") for subject in subjects)
    expected = [subject for subject in subjects if subject.startswith("ok")]
    assert [subscriber.receive().subject for _ in expected] == expected


@promise("A literal part that is longer than the longest prefix is matched as a whole.")
def test_long_literal_part(sockets):
    publisher = sockets.publisher(dialect="regex")
    subscriber = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, subscriber, r"(x){1500}\.y", dialect="regex")
    for subject in ("x" * 1500, "x" * 1499 + ".y", "x" * 1500 + ".y", "x" * 1500 + ".yy"):
        publisher.publish(subject, b"%d" % len(subject))
    publisher.publish("x" * 1500 + ".y", b"end")
    assert got.receive_all(2) == [b"1502", b"end"]


@promise("In a regex `$` is the very end of a subject, also before a newline.")
def test_dollar_is_the_very_end():
    for text in ("a$\\n", "a$\n"):
        assert not compile_pattern(text, "regex").matches("a\n")
    assert not compile_pattern("a$", "regex").matches("a\n")
    assert compile_pattern("a\\n$", "regex").matches("a\n")
