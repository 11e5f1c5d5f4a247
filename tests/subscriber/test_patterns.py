"""Patterns and handlers that `subscribe` takes, warns of or refuses; deliveries beside a naive filter."""

import contextlib
import random
import re
import tempfile
import warnings
from functools import partial

import pytest

import oz
import oz.asyncio
from support.cases import each
from support.waiting import DEADLINE

WORDS = ["a", "b", "c", "dd", "e-f", "mark"]

FOREIGN = [
    ("home/+/temp", "'+' is an ordinary character in nats, and a wildcard in mqtt: give dialect='mqtt'"),
    ("stock.#", "'#' is an ordinary character in nats, and a wildcard in amqp: give dialect='amqp'"),
    ("#", "wildcard in mqtt and in amqp"),
    (
        "a*",
        "'a*' is an ordinary character in nats, and a wildcard in redis and in kubemq: give dialect='redis'",
    ),
    ("md.*x.y", "'*x' is an ordinary character in nats, and a wildcard in redis"),
]


@each(("pattern", "text"), FOREIGN)
@each("make", [oz.Subscriber, oz.asyncio.Subscriber])
def test_a_wildcard_of_another_dialect_gives_a_warning(make, pattern, text):
    subscriber = make()
    with pytest.warns(oz.SubjectWarning, match=re.escape(text)) as caught:
        subscriber.subscribe(pattern)
    assert [warning.filename for warning in caught] == [__file__]
    subscriber.close()


MISSPELLED = "no dialect has the name 'redsi', so it is part of the pattern; did you mean redis:Foo.x"


def test_a_misspelled_dialect_gives_a_warning():
    with oz.Subscriber() as subscriber, pytest.warns(oz.SubjectWarning, match=MISSPELLED):
        subscriber.subscribe("redsi:Foo.x")


PATTERNS = ["a.*", ">", "a+b", "c#", "a.b#.c", "a.+1", b"a*", b"home/+", "nats:a*", oz.compile("a*")]


@each("pattern", PATTERNS)
def test_other_patterns_give_no_warning(pattern):
    with warnings.catch_warnings(), oz.Subscriber() as subscriber:
        warnings.simplefilter("error", oz.SubjectWarning)
        subscriber.subscribe(pattern)


@each(
    ("pattern", "dialect", "expected"),
    [
        ("rv:Foo.*", None, oz.compile("Foo.*", "rv")),
        ("rv:Foo.*", "nats", oz.compile("rv:Foo.*", "nats")),
        (b"rv:Foo.", None, oz.compile("rv:Foo.", "zmq")),
        ("foo:bar", None, oz.compile("foo:bar", "nats")),
    ],
)
def test_a_known_dialect_before_a_colon_is_read(pattern, dialect, expected):
    with oz.Subscriber() as subscriber:
        assert subscriber.subscribe(pattern, dialect=dialect).patterns == (expected,)
    with oz.Subscriber(dialect="zmq") as subscriber:
        assert subscriber.subscribe("rv:Foo.*").patterns == (oz.compile("rv:Foo.*", "zmq"),)


def test_nodes_read_a_dialect_before_the_colon_and_warn():
    # ipc paths are short.
    with (
        tempfile.TemporaryDirectory(prefix="oz-", dir="/tmp") as directory,
        oz.Node(options=oz.NodeOptions(directory=directory)) as node,
    ):
        assert node.subscribe("rv:Foo.*").patterns == (oz.compile("Foo.*", "rv"),)
        assert node.subscribe("rv:Foo.*", dialect="nats").patterns[0].text == "rv:Foo.*"
        with pytest.warns(oz.SubjectWarning, match="a wildcard in mqtt"):
            node.subscribe("home/+/temp")


class AsyncObject:
    async def __call__(self, message):
        raise NotImplementedError


async def async_function(message):
    raise NotImplementedError


@each("handler", [async_function, partial(async_function), AsyncObject()])
def test_a_coroutine_handler_is_refused_by_a_subscriber_for_threads(handler):
    with oz.Subscriber() as subscriber:
        with pytest.raises(TypeError, match=r"use oz\.asyncio\.Subscriber"):
            subscriber.subscribe("a", handler)
        assert subscriber.subscriptions == ()


def random_pattern(rng):
    tokens = [rng.choice([*WORDS[:5], "*", "*"]) for _ in range(rng.randint(1, 4))]
    # An empty prefix would hide whether the prefix `served` has arrived.
    tokens[0] = rng.choice(WORDS[:5])
    if len(tokens) > 1 and rng.random() < 0.3:
        tokens[-1] = ">"
    return ".".join(tokens)


def random_subject(rng):
    return ".".join(rng.choice(WORDS) for _ in range(rng.randint(1, 5)))


@each("seed", range(3))
@each("filtering", ["publisher", "prefix"])
def test_random_subscriptions_get_what_a_naive_filter_gives_them(filtering, seed):
    rng = random.Random(seed)
    with (
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        oz.Subscriber(pub.endpoint, filtering=filtering) as sub,
    ):
        sub.subscribe("end.*")
        standing = {}
        for turn in range(20):
            for _ in range(rng.randint(0, 4)):
                pattern, calls = oz.compile(random_pattern(rng)), []
                handler = calls.append if rng.random() < 0.5 else None
                standing[sub.subscribe(pattern, handler)] = (pattern, handler, calls)
            for item in [item for item in standing if rng.random() < 0.2]:
                item.unsubscribe()
                del standing[item]
            # A prefix of its own shows that the subscriptions before it have arrived.
            sub.subscribe(f"served.{turn:03}")
            pub.wait_for_subscribers(f"served.{turn:03}", timeout=DEADLINE)
            sub.wait_ready(timeout=DEADLINE)
            subjects = [random_subject(rng) for _ in range(60)]
            pub.publish_many((subject, b"") for subject in [*subjects, f"end.{turn}"])
            listed = [pattern for pattern, handler, _ in standing.values() if handler is None]
            got = []
            while not got or got[-1] != f"end.{turn}":
                got.append(sub.receive(timeout=DEADLINE).subject)
            assert got[:-1] == [
                subject for subject in subjects if any(each.matches(subject) for each in listed)
            ]
            for pattern, handler, calls in standing.values():
                if handler is not None:
                    # The last handler runs when the program waits again.
                    with contextlib.suppress(oz.Timeout):
                        sub.receive(timeout=0)
                    expected = [subject for subject in [*subjects, f"end.{turn}"] if pattern.matches(subject)]
                    assert [message.subject for message in calls] == expected
                    calls.clear()
        assert sub.stats.lost == 0
