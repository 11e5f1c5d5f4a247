"""Headers, codecs, ids and the fields of messages."""

import time

import pytest
import zmq

from contract.adapter import Options, errors
from contract.promises import cases, promise
from support.waiting import DEADLINE

NO_PREFIX = {"prefix": "A plain ZeroMQ message has subject and payload only."}


@promise("Headers arrive with their message.", not_for=NO_PREFIX)
def test_headers_arrive_with_their_message(pair):
    got = pair.subscribe("a.*")
    pair.publisher.publish("a.b", b"1", headers={"source": "gps", "n": 7})
    pair.publisher.publish("a.b", b"2")
    assert [got.receive().headers for _ in range(2)] == [{"source": "gps", "n": 7}, {}]


@promise("With codec= on both ends, payloads are Python values.")
@cases("codec", ["msgpack", "json"])
def test_codecs_carry_values(sockets, codec):
    publisher = sockets.publisher(codec=codec)
    subscriber = sockets.subscriber(publisher, codec=codec)
    got = sockets.subscribe(publisher, subscriber, "a.*")
    values = [{"bid": 1.09, "sizes": [1, 2]}, "text", None, 7]
    for value in values:
        publisher.publish("a.b", value)
    assert got.receive_all(4) == values


@promise("A payload that cannot be decoded is counted as malformed; other messages arrive.")
def test_undecodable_payload_is_counted(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher, codec="json")
    got = sockets.subscribe(publisher, subscriber, "a.*")
    for payload in (b"1", b"{", b"2"):
        publisher.publish("a.b", payload)
    assert got.receive_all(2) == [1, 2]
    assert subscriber.stats.malformed == 1


@promise("With dedupe a message with a repeated id is delivered once.", not_for=NO_PREFIX)
def test_repeated_ids_are_delivered_once(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher, options=Options(dedupe=True))
    got = sockets.subscribe(publisher, subscriber, "a.*")
    for number in (1, 2, 1, 3, 2, 4):
        publisher.publish("a.b", b"%d" % number, id=(b"series", number))
    assert got.receive_all(4) == [b"1", b"2", b"3", b"4"]
    assert subscriber.stats.repeated == 2


@promise(
    "A message has subject, payload, frames, time of receipt, origin and a sequence number.",
    not_for=NO_PREFIX,
)
def test_fields_of_a_message(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, subscriber, "a.*")
    before = time.time_ns()
    for _ in range(3):
        publisher.publish("a.b", b"x")
    messages = [got.receive() for _ in range(3)]
    assert {(message.subject, message.subject_bytes, message.payload) for message in messages} == {
        ("a.b", b"a.b", b"x")
    }
    assert all(message.frames == [b"a.b", b"x"] for message in messages)
    assert all(before <= message.time_ns <= time.time_ns() for message in messages)
    assert len({message.origin for message in messages}) == 1
    first = messages[0].sequence
    assert [message.sequence for message in messages] == [first, first + 1, first + 2]


@promise(
    "All frames of a message of a foreign publisher are in `message.frames`.",
    not_for={"publisher": "A foreign publisher filters by prefix."},
)
def test_foreign_publisher_may_send_several_frames(sockets):
    with zmq.Context() as context, context.socket(zmq.XPUB) as foreign:
        foreign.linger = 0
        foreign.bind("tcp://127.0.0.1:*")
        got = sockets.subscriber(foreign.last_endpoint.decode()).subscribe("a.*")
        assert foreign.poll(DEADLINE * 1000)
        foreign.send_multipart([b"a.b", b"first", b"", b"x" * 200_000])
        message = got.receive()
    assert message.frames == [b"a.b", b"first", b"", b"x" * 200_000]
    assert message.payload == b"first"


@promise("`reply` to a message that is not a request raises an error.")
def test_reply_needs_a_request(pair):
    got = pair.subscribe("a.*")
    pair.publisher.publish("a.b", b"x")
    with pytest.raises(errors.OzError, match="is no request"):
        got.receive().reply(b"")


@promise("Statistics of a publisher: published = sent + unmatched + dropped.")
def test_statistics_add_up(sockets):
    publisher = sockets.publisher()
    subscriber = sockets.subscriber(publisher)
    got = sockets.subscribe(publisher, subscriber, "a.*")
    for subject in ("a.1", "b.1", "a.2", "c.1"):
        publisher.publish(subject, b"x")
    publisher.flush()
    assert got.receive_all(2) == [b"x", b"x"]
    stats = publisher.stats
    assert (stats.published, stats.sent, stats.unmatched) == (4, 2, 2)
    assert subscriber.stats.delivered == 2
