"""Headers, keys and ids of messages: refused values, received values, and repeats that a subscriber drops."""

import math

import pytest

import oz
from support.waiting import DEADLINE

EVERY_KIND = {
    "text": "ünï\0code",
    "": "",
    "bytes": b"\x00\xff",
    "int": 42,
    "least": -(2**63),
    "most": 2**64 - 1,
    "float": 1.5,
    "inf": math.inf,
    "yes": True,
    "none": None,
}


def connected(publisher, *patterns, **options):
    """Return a subscriber over a link whose patterns are served."""
    made = oz.Subscriber(publisher.endpoint, filtering="publisher", **options)
    for pattern in patterns:
        made.subscribe(pattern)
    made.wait_ready(timeout=DEADLINE)
    return made


@pytest.fixture
def pub():
    with oz.Publisher("tcp://127.0.0.1:*") as made:
        yield made


def test_every_kind_of_header_arrives_as_it_was_published(pub):
    with connected(pub, "a.*") as sub:
        given = dict(EVERY_KIND)
        pub.publish("a.b", b"x", headers=given)
        given["late"] = 1
        message = sub.receive(timeout=DEADLINE)
        assert message.headers == EVERY_KIND
        assert [type(header) for header in message.headers.values()] == [
            type(item) for item in EVERY_KIND.values()
        ]


BAD = [
    {"headers": []},
    {"headers": {"x": [1]}},
    {"headers": {"x": 2**64}},
    {"headers": {"\ud800": "x"}},
    {"key": 1},
    {"id": (b"s", 2**64)},
]


def test_wrong_fields_are_refused_and_other_messages_of_the_batch_arrive(pub):
    with pytest.raises(TypeError):
        pub.publish("a.b", b"no subscriber", headers=[])
    with connected(pub, "a.*") as sub:
        with pub.batch():
            pub.publish("a.b", b"before", headers={"good": 1})
            for fields in BAD:
                with pytest.raises((TypeError, ValueError)):
                    pub.publish("a.b", b"bad", **fields)
            pub.publish("a.b", b"after")
        assert [sub.receive(timeout=DEADLINE).payload for _ in range(2)] == [b"before", b"after"]
        assert pub.stats.published == 2


DEDUPE = oz.Options(dedupe=True)


def test_a_subscription_gets_last_values_that_another_one_has_received():
    with (
        oz.Publisher("tcp://127.0.0.1:*", last_value=True) as pub,
        connected(pub, "a", options=DEDUPE) as sub,
    ):
        pub.publish("a", b"x", id=b"id")
        assert sub.receive(timeout=DEADLINE).payload == b"x"
        late = sub.subscribe("a", last_value=True)
        message = sub.receive(timeout=DEADLINE)
        assert (message.payload, message.subscriptions) == (b"x", (late,))


def test_each_subject_is_whole_for_subscriptions_that_join_under_traffic():
    """A subscription receives the last value of a subject and each later message, none twice."""
    with oz.Publisher("tcp://127.0.0.1:*", last_value=True, on_full="block") as pub:
        number = 0

        def publish(count):
            nonlocal number
            for _ in range(count):
                pub.publish(f"a.{number % 10}", b"%d" % number)
                number += 1

        publish(10)
        for _ in range(10):
            with oz.Subscriber(pub.endpoint, filtering="publisher") as sub:
                sub.subscribe("a.*", last_value=True)
                publish(500)
                sub.wait_ready(timeout=DEADLINE)
                publish(100)
                last = {f"a.{at % 10}": at for at in range(number - 10, number)}
                got = {subject: [] for subject in last}
                while any(not numbers or numbers[-1] != last[item] for item, numbers in got.items()):
                    message = sub.receive(timeout=DEADLINE)
                    got[message.subject].append(int(message.payload))
            for numbers in got.values():
                assert numbers == list(range(numbers[0], numbers[-1] + 1, 10))
