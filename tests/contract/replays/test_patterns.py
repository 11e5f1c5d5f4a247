"""Public bug reports about patterns. Each test is named after the issue."""

import zmq

from contract.adapter import compile_pattern
from contract.promises import promise
from support.waiting import DEADLINE

REPORTED = {
    # kombu 2568: `*` is one token. lavinmq 1608: `#` is no token, one, or many.
    "amqp": [
        ("a.*.c", ["a.b.c"], ["a.b.x.c", "a.c"]),
        ("*", [], ["a.b"]),
        ("a.*.c.#", ["a.b.c", "a.b.c.d.e"], []),
        ("a.#.b", ["a.b", "a.x.y.b"], ["a.b.c"]),
        ("#.b", ["b"], []),
    ],
    # home_assistant 16354: `#` is whole levels. fastapi_mqtt 60: wildcards at the start do not match `$`.
    "mqtt": [
        ("home/log/#", ["home/log/x", "home/log"], ["home/login/x"]),
        ("test/6/#", ["test/6/1"], ["test/3"]),
        ("#", ["a/$SYS"], ["$SYS/a"]),
        ("+/a", [], ["$SYS/a"]),
        ("$SYS/#", ["$SYS/a"], []),
        ("a/+/b", ["a//b"], []),
        ("+/b", ["/b"], []),
    ],
}


@promise("Wildcards of AMQP and MQTT match whole words and levels; in MQTT no first wildcard matches `$…`.")
def test_wildcards_match_whole_tokens():
    for dialect, rows in REPORTED.items():
        for text, matched, others in rows:
            pattern = compile_pattern(text, dialect)
            assert [subject for subject in [*matched, *others] if pattern.matches(subject)] == matched, text


@promise(
    "A message whose subject is not UTF-8 is delivered or counted, and other messages arrive.",
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
