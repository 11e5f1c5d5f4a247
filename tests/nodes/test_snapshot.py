"""Encoding of snapshots, with untrusted input, and their bounds."""

from dataclasses import replace
from math import inf, nan

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.node import sampling
from oz.node import snapshot as module
from oz.node.snapshot import (
    Changes,
    HandlerTimes,
    LinkStatus,
    Snapshot,
    SubscriptionStatus,
    bounded_links,
    bounded_subscriptions,
    decode,
)
from support.waiting import until

LINK = LinkStatus("desk", "0a" * 16, "up", 3, 12, 480, 0.25, {"full": 2}, {"workers": 7})
SUBSCRIPTION = SubscriptionStatus(
    ("md.>", "\udcff"), "workers", "handled", 5, None, 1, HandlerTimes(4, 0.5, 0.25, None)
)


def _snapshot(**changes):
    known = {
        "name": "feed", "id": "0b" * 16, "bus": "lan", "host": "h", "pid": 7, "kind": "node", "time": 1.5,
        "uptime": 2.0, "memory": None, "descriptors": 9, "counters": {"sent": 3}, "dropped": {}, "lost": {"full": 1},
        "unknown_losses": {}, "links": (LINK,), "subscriptions": (SUBSCRIPTION,), "omitted": 0,
    }  # fmt: skip
    return Snapshot(**known | changes)


def _encoded(snapshot):
    changes = Changes(1)
    changes.record(snapshot)
    return changes.encode()


def _unpack(payload):
    return msgpack.unpackb(payload, unicode_errors="surrogateescape", strict_map_key=False)


def _pack(content):
    return msgpack.packb(content, unicode_errors="surrogateescape")


def test_decode_returns_what_was_encoded():
    made = _snapshot()
    assert decode(_encoded(made)).snapshot == made


def test_elements_of_a_later_version_are_ignored():
    version, number, known, time, uptime, parts, has_all, links, omitted = _unpack(_encoded(_snapshot()))
    parts, links = {**parts, 99: "new"}, [[*link, "new"] for link in links]
    later = [version + 1, number, known, time, uptime, parts, has_all, links, omitted, "new"]
    assert decode(_pack(later)).snapshot == _snapshot()


def _links(**pending):
    return tuple(LINK._replace(peer=name, member=name, pending=count) for name, count in pending.items())


STATES = [
    _snapshot(links=_links(a=1, b=0)),
    _snapshot(links=_links(a=1, b=0), time=2.5),
    _snapshot(links=_links(a=1, b=7), counters={"sent": 4}, memory=4096),
    _snapshot(links=_links(a=1, b=7, c=0), subscriptions=()),
    _snapshot(links=_links(b=7, c=0), lost={}),
    _snapshot(links=(), dropped={"full": 9}, name="renamed"),
]


def test_reader_that_knows_any_version_gets_the_newest_snapshot():
    changes, readers = Changes(41), []
    for state in STATES:
        changes.record(state)
        readers.append(decode(changes.encode()))
        for reader in readers:
            found = decode(changes.encode(reader.version), reader).snapshot
            assert found.links == tuple(sorted(state.links, key=lambda link: -link.pending))
            assert replace(found, links=state.links) == state


def test_two_links_of_one_member_arrive_in_every_change():
    changes = Changes(41)
    changes.record(_snapshot())
    reader = decode(changes.encode())
    for number in range(2):
        state = _snapshot(links=(LINK, LINK._replace(pending=number)))
        changes.record(state)
        reader = decode(changes.encode(reader.version), reader)
        assert reader.snapshot == state


def test_payload_of_unchanged_links_is_small():
    links = tuple(LINK._replace(member=str(number)) for number in range(50))
    changes = Changes(41)
    changes.record(_snapshot(links=links))
    reader = decode(changes.encode())
    changes.record(_snapshot(links=links, time=2.5))
    assert len(changes.encode(reader.version)) < 50 < len(changes.encode())


def test_changes_without_the_snapshot_before_them_are_refused():
    changes = Changes(41)
    changes.record(_snapshot())
    reader = decode(changes.encode())
    changes.record(_snapshot(time=2.5))
    payload = changes.encode(reader.version)
    assert decode(payload) is None
    assert decode(payload, reader._replace(version=reader.version - 1)) is None


@pytest.mark.parametrize("known", [0, 41, 43, -1, 1 << 80], ids=str)
def test_unknown_version_gets_the_whole_snapshot(known):
    changes = Changes(41)
    changes.record(_snapshot())
    assert decode(changes.encode(known)).snapshot == _snapshot()


@pytest.mark.parametrize(
    "changes",
    [
        {"counters": {"sent": "3"}},
        {"dropped": {b"full": 1}},
        {"pid": "7"},
        {"pid": True},
        {"links": (LinkStatus("desk", "0a", "up", 3, 12, 480, 0.25, {"full": None}, {}),)},
        {"subscriptions": (SubscriptionStatus((b"md.>",), None, "received", 5, None, 1, None),)},
        {"subscriptions": (SubscriptionStatus(("a",), None, "received", 5, "old", 1, None),)},
        {"omitted": None},
        {"uptime": nan},
        {"links": (LINK._replace(oldest=inf),)},
    ],
    ids=str,
)
def test_element_of_a_wrong_type_is_refused(changes):
    assert decode(_encoded(_snapshot(**changes))) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_decoded(payload):
    assert decode(payload) is None


def test_links_with_the_most_pending_messages_are_kept(monkeypatch):
    monkeypatch.setattr(module, "MAX_LINKS", 2)
    monkeypatch.setattr(module, "MAX_PATTERNS", 3)
    made = [LinkStatus(str(number), "", "up", 0, number, 0, None, {}, {}) for number in range(4)]
    subscribed = [
        SubscriptionStatus(("x" * 300,) * 2, None, "received", number, None, 0, None) for number in range(4)
    ]
    links, subscriptions = bounded_links(made), bounded_subscriptions(subscribed)
    assert [item.pending for item in links] == [item.pending for item in subscriptions] == [3, 2]
    assert [len(item.patterns) for item in subscriptions] == [2, 1]
    assert len(subscriptions[0].patterns[0]) == module.MAX_TEXT


def test_caller_waits_until_the_answer_is_decoded(make, monkeypatch):
    first, _ = make("first"), make("second")
    first.wait_ready("second")
    waiting = []

    def slow_decode(payload, before):
        waiting.extend(bool(question.missing) for question in first._node.sampling._open.values())
        return decode(payload, before)

    monkeypatch.setattr(sampling, "decode", slow_decode)
    assert [snapshot.name for snapshot in first.request_snapshots("second", timeout=30)] == ["second"]
    assert waiting == [True]


def test_answer_with_the_id_of_another_node_is_ignored(make, monkeypatch):
    first, second = make("first"), make("second")
    first.wait_ready("second")
    other, record = first.snapshot().id, Changes.record
    monkeypatch.setattr(Changes, "record", lambda self, snapshot: record(self, replace(snapshot, id=other)))
    assert first.request_snapshots("second", timeout=30) == []
    monkeypatch.undo()
    assert [snapshot.name for snapshot in first.request_snapshots(timeout=30)] == [second.name]


def test_snapshots_that_follow_each_other_show_new_links_and_their_end(make):
    reader, _ = make("reader"), make("feed")
    reader.wait_ready("feed")

    def peers():
        return {link.peer for link in reader.request_snapshots("feed", timeout=30)[0].links}

    until(lambda: peers() == {"reader", "feed"})
    third = make("third")
    reader.wait_ready("third")
    until(lambda: peers() == {"reader", "feed", "third"})
    third.close()
    until(lambda: peers() == {"reader", "feed"})


def test_changed_statistics_arrive_after_idle_samples(make):
    reader, feed, desk = make("reader"), make("feed"), make("desk")
    inbox = desk.subscribe("tick", group="workers", ack="handled")
    reader.wait_ready("feed", "desk")
    feed.wait_ready(subscriber="tick")

    def sample():
        (found,) = reader.request_snapshots("feed", timeout=30)
        groups = next(link.groups for link in found.links if link.peer == "desk")
        return found.counters["published"], groups

    until(lambda: sample() == (0, {"workers": 0}))
    feed.publish("tick", b"1")
    feed.publish("tick", b"2")
    feed.flush()
    until(lambda: sample() == (2, {"workers": 2}))
    assert [inbox.receive(timeout=30).payload for _ in range(2)] == [b"1", b"2"]
    inbox.unsubscribe()
    until(lambda: sample() == (2, {}))
