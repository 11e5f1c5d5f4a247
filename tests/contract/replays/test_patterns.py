"""Public bug reports about patterns. Each test is named after the issue."""

import zmq

from contract.adapter import compile_pattern
from contract.promises import promise
from support.waiting import DEADLINE

COMBINED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def _assert_matches(dialect, table):
    """Check rows of pattern, subject, and whether they match."""
    answers = [
        (pattern, subject, compile_pattern(pattern, dialect).matches(subject))
        for pattern, subject, _ in table
    ]
    assert answers == table


@promise("AMQP: `*` is one token.")
def test_kombu_2568_star_is_one_token():
    _assert_matches(
        "amqp",
        [("a.*.c", "a.b.c", True), ("a.*.c", "a.b.x.c", False), ("a.*.c", "a.c", False), ("*", "a.b", False)],
    )


@promise("AMQP: `#` is no token, one, or many.")
def test_lavinmq_1608_hash_may_be_no_token():
    _assert_matches(
        "amqp",
        [
            ("a.*.c.#", "a.b.c", True),
            ("a.*.c.#", "a.b.c.d.e", True),
            ("a.#.b", "a.b", True),
            ("a.#.b", "a.x.y.b", True),
            ("a.#.b", "a.b.c", False),
            ("#.b", "b", True),
        ],
    )


@promise("MQTT: `#` matches whole levels, not the beginning of a level.")
def test_home_assistant_16354_hash_matches_whole_levels():
    _assert_matches(
        "mqtt",
        [
            ("home/log/#", "home/log/x", True),
            ("home/log/#", "home/log", True),
            ("home/log/#", "home/login/x", False),
            ("test/6/#", "test/6/1", True),
            ("test/6/#", "test/3", False),
        ],
    )


@promise("MQTT: wildcards at the start do not match `$`, and `+` matches an empty level.")
def test_fastapi_mqtt_60_wildcards_at_the_start_pass_dollar():
    _assert_matches(
        "mqtt",
        [
            ("#", "$SYS/a", False),
            ("+/a", "$SYS/a", False),
            ("$SYS/#", "$SYS/a", True),
            ("#", "a/$SYS", True),
            ("a/+/b", "a//b", True),
            ("+/b", "/b", True),
        ],
    )


@promise("Bytes decide: the same letter as one or two code points makes two subjects.")
def test_lv_mqtt_128_composed_and_decomposed_letters_differ(pair):
    got = pair.subscribe(f"menu.{COMBINED}")
    pair.publisher.publish(f"menu.{DECOMPOSED}", b"other")
    pair.publisher.publish(f"menu.{COMBINED}", b"own")
    message = got.receive()
    assert (message.subject, message.payload) == (f"menu.{COMBINED}", b"own")


@promise(
    "A subject that is not UTF-8 costs that message at most: it is delivered or counted.",
    not_for={"publisher": "A foreign publisher filters by prefix."},
)
def test_mosquitto_2168_invalid_bytes_are_delivered_or_counted(sockets):
    with zmq.Context() as context, context.socket(zmq.XPUB) as foreign:
        foreign.linger = 0
        foreign.bind("tcp://127.0.0.1:*")
        subscriber = sockets.subscriber(foreign.last_endpoint.decode())
        got = subscriber.subscribe("tick.>")
        assert foreign.poll(DEADLINE * 1000)
        foreign.send_multipart([b"tick.\xff\xfe", b"invalid"])
        foreign.send_multipart([b"tick.a", b"valid"])
        payloads = [got.receive().payload]
        while payloads[-1] != b"valid":
            payloads.append(got.receive().payload)
        stats = subscriber.stats
        assert payloads.count(b"invalid") + stats.malformed + stats.filtered == 1
