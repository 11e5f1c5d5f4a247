"""A wildcard of another dialect in a nats pattern: it is legal, matches itself, and is seldom meant."""

import re
import warnings

import pytest

import oz
from support.cases import each

FOREIGN = [
    ("home/+/temp", "'+' is no wildcard in nats, and one in mqtt: give dialect='mqtt'"),
    ("a.+", "'+' is no wildcard in nats, and one in mqtt"),
    ("home/#", "'#' is no wildcard in nats, and one in mqtt"),
    ("stock.#", "'#' is no wildcard in nats, and one in amqp: give dialect='amqp'"),
    ("#", "one in mqtt and in amqp"),
    ("a*", "'a*' is no wildcard in nats, and one in redis and in kubemq: give dialect='redis'"),
    ("md.*x.y", "'*x' is no wildcard in nats, and one in redis"),
]


@each(("pattern", "said"), FOREIGN)
@each("make", [oz.Subscriber, oz.asyncio.Subscriber])
def test_a_subscriber_is_warned_with_the_dialect_that_it_belongs_to(make, pattern, said):
    with make() as subscriber, pytest.warns(oz.SubjectWarning, match=re.escape(said)) as caught:
        subscriber.subscribe(pattern)
    assert [warning.filename for warning in caught] == [__file__]


def test_a_node_is_warned(tmp_path):
    with oz.Node(directory=tmp_path) as node, pytest.warns(oz.SubjectWarning, match="one in mqtt"):
        node.subscribe("home/+/temp")


@each("pattern", ["a.*", ">", "a+b", "c#", "a.b#.c", "a.+1", b"a*", b"home/+", ""])
def test_what_is_none_is_not_warned_of(pattern):
    with warnings.catch_warnings(), oz.Subscriber() as subscriber:
        warnings.simplefilter("error")
        subscriber.subscribe(pattern)


@each("pattern", [pattern for pattern, _ in FOREIGN])
def test_who_compiles_it_means_it(pattern):
    with warnings.catch_warnings(), oz.Subscriber() as subscriber:
        warnings.simplefilter("error")
        subscriber.subscribe(oz.compile(pattern))
