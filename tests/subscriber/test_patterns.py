"""Patterns and handlers that `subscribe` takes, warns of or refuses; deliveries beside a naive filter."""

import re
import warnings
from functools import partial

import pytest

import oz
import oz.asyncio
from support.cases import each

FOREIGN = [
    (
        "home/+/temp",
        "'+' is literal text in nats, and is a wildcard in mqtt (mqtt separates at '/'): give dialect='mqtt'",
    ),
    ("stock.#", "'#' is literal text in nats, and is a wildcard in amqp: give dialect='amqp'"),
    ("#", "wildcard in mqtt and in amqp"),
    ("a*", "'a*' is literal text in nats, and has a wildcard in redis and in kubemq: give dialect='redis'"),
    ("md.*x.y", "'*x' is literal text in nats, and has a wildcard in redis"),
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


def test_nodes_read_a_dialect_before_the_colon_and_warn(directory):
    with oz.Node(options=oz.NodeOptions(directory=directory)) as node:
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
