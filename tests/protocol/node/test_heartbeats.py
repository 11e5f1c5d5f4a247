"""Which streams a node tells where they stand, and when: nothing that was lost may go unnoticed."""

import pytest

import oz
from oz.protocol.node.presence import Presence, local_origin, presence_pattern
from oz.protocol.publisher.batches import Batches
from oz.protocol.publisher.records import HEARTBEAT, Records
from oz.protocol.publisher.router import MOMENTS, Router
from oz.protocol.stats import PublisherStats
from oz.wire.declared import declare
from oz.wire.keys import Declaration, DeliveryOptions, stream_key
from support.announcing import announcement
from support.cases import each

OWN, PEER = announcement(2), announcement(4)
IN_GROUP = DeliveryOptions(group="g")


class Sink:
    """Takes every frame, and keeps the key of each."""

    def __init__(self):
        self.keys = []

    def try_send(self, frames, backlog=None):
        self.keys.append(frames[0][:19])
        return True

    def send_past_the_full(self, frames):
        pass

    def look(self):
        pass

    make_lossless = make_lossy = look


def router_of(origin):
    stats = PublisherStats()
    return Router(origin, stats, watcher=Presence(stats, OWN.bus))


class Node:
    """The router of a node's publisher, and what it sends."""

    def __init__(self):
        self.now = 100.3
        self.router = router_of(OWN.uuid)
        self.sink = Sink()
        self.batches = Batches(self.router, self.sink, lambda: self.now, drops=True)
        self.records = Records(self.router, self.batches, None, self.sink, lambda: self.now)

    def subscribe(self, name, pattern, delivery=None):
        """Have somebody declare a stream; gives the stream."""
        declared = Declaration(name, 1, delivery or DeliveryOptions(), patterns=(declare(pattern),))
        self.router.learn(b"\x01" + declared.encode(), self.now)
        self.router.learn(b"\x01" + stream_key(name), self.now)
        self.records.answer()
        return self.router.streams[stream_key(name)]

    def beat(self):
        """Let the next heartbeat come; the keys that were told where they stand."""
        self.now = max(self.now, self.records.beats_at)
        self.sink.keys.clear()
        self.records.beat(self.now)
        return list(self.sink.keys)


@pytest.fixture
def node():
    node = Node()
    node.beat()
    return node


@pytest.fixture
def peer(node):
    """The streams of a node: its presence, its subscriptions, and those in a queue group."""
    name = b"p" * 14
    return (
        node.subscribe(name + b"\xff\xfe", presence_pattern(PEER), DeliveryOptions(policy="failover")),
        node.subscribe(name + b"\x00\x01", oz.compile("a.>")),
        node.subscribe(name + b"\x00\x02", oz.compile("b"), IN_GROUP),
    )


def test_node_that_is_sent_nothing_hears_one_heartbeat_in_time(node, peer):
    presence, _, _ = peer
    for _ in range(3):
        assert node.beat() == [presence.key]
        assert node.records.beats_at % HEARTBEAT == OWN.uuid[0] % MOMENTS / MOMENTS


def test_every_stream_on_which_something_was_sent_is_told_at_the_next_heartbeat(node, peer):
    presence, plain, grouped = peer
    for stream in (plain, grouped):
        stream.sequence += 3
        assert set(node.beat()) == {presence.key, stream.key}
        assert node.beat() == [presence.key]


def test_stream_that_begins_to_count_anew_is_told(node, peer):
    presence, plain, _ = peer
    plain.sequence += 3
    node.beat()
    node.router.renumber(plain)
    node.records.answer()
    assert node.beat() == [presence.key]
    plain.sequence += 3
    assert set(node.beat()) == {presence.key, plain.key}


def test_record_that_found_no_room_is_made_again(node, peer):
    presence, plain, _ = peer
    plain.sequence += 3
    has_room, node.sink.try_send = node.sink.try_send, lambda *_: False
    assert node.beat() == []
    node.sink.try_send = has_room
    node.records.beat(node.now)
    assert set(node.sink.keys) == {presence.key, plain.key}


def test_all_streams_are_told_once_a_connection_was_left_out(node, peer):
    """It misses what is sent on its other streams as well, without a sign."""
    node.batches.left_out_at = node.now
    for _ in range(3):
        assert set(node.beat()) == {stream.key for stream in peer}


def test_subscriber_that_is_no_node_is_told_on_each_of_its_streams(node, peer):
    name = b"s" * 14
    streams = [
        node.subscribe(name + b"\x00\x01", oz.compile("a.>")),
        node.subscribe(name + b"\x00\x02", oz.compile("b"), IN_GROUP),
    ]
    for _ in range(3):
        assert set(node.beat()) == {peer[0].key, *(stream.key for stream in streams)}


@each("first", range(2 * MOMENTS))
@each("now", [0.0, 0.1, 100.25, 123456.75, 123456.999])
def test_both_publishers_of_a_node_beat_at_one_moment_of_each_second(first, now):
    uuid = bytes([first]) + bytes(15)
    routers = [router_of(origin) for origin in (uuid, local_origin(uuid))]
    first_at, second_at = (router.next_beat(now, HEARTBEAT) for router in routers)
    assert first_at == second_at
    assert now < first_at <= now + HEARTBEAT
    assert routers[0].next_beat(first_at, HEARTBEAT) == first_at + HEARTBEAT
    # However late it comes to it.
    assert routers[0].next_beat(first_at + 0.2, HEARTBEAT) == first_at + HEARTBEAT


def test_nodes_have_few_moments():
    moments = {router_of(bytes([first]) + bytes(15)).next_beat(100.0, HEARTBEAT) for first in range(256)}
    assert len(moments) == MOMENTS
