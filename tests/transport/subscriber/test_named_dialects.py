"""A pattern of `subscribe` may name its dialect before a colon; subjects and bytes never do."""

import asyncio
import tempfile
import warnings

import pytest
import zmq

import oz
import oz.asyncio

SUBJECTS = ["Foo.a", "rv:Foo.a", "rv:Foo.*", "Foo.a.b"]
LAST = b"the.end"


def delivered(pattern, dialect="nats", of_call=None):
    """Return the subjects that reach a subscription to a pattern."""
    with (
        oz.Publisher(bind="tcp://127.0.0.1:*", dialect="zmq") as publisher,
        oz.Subscriber(publisher.endpoint, dialect=dialect) as subscriber,
    ):
        subscriber.subscribe(pattern, dialect=of_call)
        subscriber.subscribe(LAST)
        publisher.wait_for_subscribers(2, timeout=30)
        for subject in (*SUBJECTS, LAST):
            publisher.publish(subject, b"")
        found = [subscriber.receive(timeout=30).subject]
        while found[-1] != LAST.decode():
            found.append(subscriber.receive(timeout=30).subject)
    return found[:-1]


def test_subscribe_reads_a_dialect_before_the_colon():
    assert delivered("rv:Foo.*") == ["Foo.a"]
    assert delivered("redis:Foo*") == ["Foo.a", "Foo.a.b"]
    assert delivered("rv:Foo.*", dialect="redis") == ["Foo.a"]


def test_a_dialect_of_the_call_and_a_socket_of_zmq_read_the_whole_text():
    assert delivered("rv:Foo.*", of_call="nats") == ["rv:Foo.a", "rv:Foo.*"]
    assert delivered("rv:Foo.*", dialect="zmq") == ["rv:Foo.*"]
    assert delivered(b"rv:Foo.") == ["rv:Foo.a", "rv:Foo.*"]
    assert delivered("foo:bar") == []


def test_unsubscribe_reads_a_pattern_as_subscribe_does():
    with oz.Subscriber() as subscriber:
        for pattern in ("rv:Foo.*", ["mqtt:a/+", "b"]):
            subscriber.subscribe(pattern)
            assert "Foo.*" in repr(subscriber) or "a/+" in repr(subscriber)
            subscriber.unsubscribe(pattern)
            assert "Foo.*" not in repr(subscriber)
            assert "a/+" not in repr(subscriber)


def test_set_string_reads_a_pattern_as_subscribe_does():
    with oz.Publisher(bind="tcp://127.0.0.1:*") as publisher, oz.Subscriber(publisher.endpoint) as subscriber:
        subscriber.setsockopt_string(zmq.SUBSCRIBE, "redis:Foo*")
        publisher.wait_for_subscribers(1, timeout=30)
        publisher.publish("Foo.a", b"1")
        assert subscriber.receive(timeout=30).payload == b"1"


def test_nodes_read_a_dialect_before_the_colon(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="oz-") as directory:
        monkeypatch.setenv("OZ_DIRECTORY", directory)
        with oz.Node(bus="named") as node:
            subscription = node.subscribe("rv:Foo.*")
            assert subscription.patterns == (oz.compile("Foo.*", "rv"),)
            node.wait_ready(timeout=30)
            node.publish("Foo.a", b"1")
            assert subscription.receive(timeout=30).payload == b"1"
            assert node.subscribe("rv:Foo.*", dialect="nats").patterns[0].text == "rv:Foo.*"
        with oz.Node(bus="named", dialect="zmq") as node:
            assert node.subscribe("rv:Foo.*").patterns == (oz.compile("rv:Foo.*", "zmq"),)


def test_asyncio_reads_a_dialect_before_the_colon():
    async def patterns():
        async with oz.asyncio.Subscriber() as subscriber:
            return subscriber.subscribe("rv:Foo.*").patterns

    assert asyncio.run(patterns()) == (oz.compile("Foo.*", "rv"),)


def test_a_journal_reads_text_and_not_bytes(tmp_path):
    journal = pytest.importorskip("oz.journal")
    with journal.Writer(tmp_path) as writer:
        writer.append([(subject, b"") for subject in SUBJECTS])

    def found(pattern):
        return [one.subject for one in journal.Journal(tmp_path).read(pattern)]

    assert found("rv:Foo.*") == ["Foo.a"]
    assert found(b"rv:Foo.*") == ["rv:Foo.a", "rv:Foo.*"]


def test_a_named_dialect_gives_no_warning_of_the_wildcards_of_another():
    with oz.Subscriber() as subscriber, warnings.catch_warnings():
        warnings.simplefilter("error")
        subscriber.subscribe("nats:a*")
        with pytest.raises(oz.SubjectWarning):
            subscriber.subscribe("a*")
