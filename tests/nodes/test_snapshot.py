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
    HandlerTimes,
    LinkStatus,
    Snapshot,
    SubscriptionStatus,
    bounded_links,
    bounded_subscriptions,
    decode,
    encode,
)

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


def _unpack(payload):
    return msgpack.unpackb(payload, unicode_errors="surrogateescape", strict_map_key=False)


def _pack(content):
    return msgpack.packb(content, unicode_errors="surrogateescape")


def test_decode_returns_what_was_encoded():
    made = _snapshot()
    assert decode(encode(made)) == made


def test_change_of_a_snapshot_does_not_change_later_snapshots():
    payload = encode(_snapshot())
    link = decode(payload).links[0]
    link.dropped["full"] = 100
    link.groups.clear()
    assert decode(payload) == _snapshot()


def test_elements_of_a_later_version_are_ignored():
    version, *fields, links, subscriptions, omitted = _unpack(encode(_snapshot()))
    links = [_pack([*_unpack(link), "new"]) for link in links]
    later = [version + 1, *fields, links, subscriptions, omitted, "new"]
    assert decode(_pack(later)) == _snapshot()


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
    assert decode(encode(_snapshot(**changes))) is None


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

    def slow_decode(payload):
        waiting.extend(bool(question.missing) for question in first._node.sampling._open.values())
        return decode(payload)

    monkeypatch.setattr(sampling, "decode", slow_decode)
    assert [snapshot.name for snapshot in first.request_snapshots("second", timeout=30)] == ["second"]
    assert waiting == [True]


def test_answer_with_the_id_of_another_node_is_ignored(make, monkeypatch):
    first, second = make("first"), make("second")
    first.wait_ready("second")
    other = first.snapshot().id
    monkeypatch.setattr(sampling, "encode", lambda snapshot: encode(replace(snapshot, id=other)))
    assert first.request_snapshots("second", timeout=30) == []
    monkeypatch.undo()
    assert [snapshot.name for snapshot in first.request_snapshots(timeout=30)] == [second.name]
