"""How much a registry keeps of nodes, and what it refuses."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.protocol.node import registry as module
from oz.protocol.node.registry import News, Registry
from oz.security.limits import Limits
from oz.wire.discovery import (
    Alive,
    Goodbye,
    Joined,
    pack,
)
from protocol.node.registered import ID, WELCOME, A, B, C, join, tell
from support.announcing import announcement
from support.cases import each

# bounds ----------------------------------------------------------------------------------------------------


def test_what_means_nothing_is_counted_and_not_answered(registry):
    for frame in (b"", b"\xc1", pack(WELCOME), pack(Alive()), b"\0" * 9_000):
        assert registry.receive(b"1", frame, 0.0) == []
    assert registry.stats.malformed == 5
    assert registry.nodes == []


def test_nodes_too_many_are_refused_until_there_is_room():
    registry = Registry(ID, "ns1", limits=Limits(nodes=2))
    join(registry, b"1", A)
    join(registry, b"2", B)
    assert join(registry, b"3", C) == []
    assert registry.stats.refused == 1
    tell(registry, b"1", Goodbye(A.uuid))
    assert join(registry, b"3", C)[-1] == (b"3", Joined(C))


def test_news_are_taken_once_and_kept_within_bounds(registry):
    join(registry, b"1", A)
    changed = replace(A, pid=1)
    join(registry, b"1", changed)
    tell(registry, b"1", Goodbye(A.uuid))
    assert registry.take_news() == [News("joined", A), News("changed", changed), News("left", changed)]
    assert registry.take_news() == []
    for _ in range(module.MAX_NEWS):
        join(registry, b"1", A)
        tell(registry, b"1", Goodbye(A.uuid))
    assert len(registry.take_news()) == module.MAX_NEWS


@each(("name", "beacon", "expiry"), [("n" * 256, 1, 3.5), ("n", 0, 1), ("n", 1, 1), ("n", 1, 4000)])
def test_what_no_node_would_understand_is_refused(name, beacon, expiry):
    with pytest.raises(ValueError, match=r"bytes|seconds|lost"):
        Registry(ID, name, beacon=beacon, expiry=expiry)


def state_of(registry):
    return (registry._nodes, registry._buses, registry._by_peer)


steps = st.one_of(
    st.tuples(st.just("announce"), st.integers(0, 3), st.integers(0, 3), st.booleans(), st.booleans()),
    st.tuples(st.just("goodbye"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("tick"), st.floats(0, 1)),
    st.tuples(st.just("missed"), st.integers(0, 3)),
    st.tuples(st.just("any"), st.integers(0, 3), st.binary(max_size=30)),
)


@given(st.lists(steps, max_size=60))
def test_whatever_happens_its_tables_agree_and_nothing_is_left_in_the_end(taken):
    registry, now = Registry(ID, "ns1"), 0.0
    for what, *rest in taken:
        if what == "announce":
            peer, number, is_other, has_heard = rest
            one = announcement(number, bus="orders" if is_other else "md")
            join(registry, b"%d" % peer, one, now, has_heard=has_heard)
        elif what == "goodbye":
            tell(registry, b"%d" % rest[0], Goodbye(announcement(rest[1]).uuid), now)
        elif what == "tick":
            now += rest[0]
            registry.tick(now)
        elif what == "missed":
            registry.missed(b"%d" % rest[0])
        else:
            registry.receive(b"%d" % rest[0], rest[1], now)
        nodes, buses, by_peer = state_of(registry)
        assert {uuid: node.peer for uuid, node in nodes.items()} == {u: p for p, u in by_peer.items()}
        assert {uuid: node for bus in buses.values() for uuid, node in bus.items()} == nodes
        assert all(node.announcement.bus == name for name, bus in buses.items() for node in bus.values())
        assert all(buses.values())
        heard = [node.heard_at for node in nodes.values()]
        assert heard == sorted(heard)
    stats = registry.stats
    assert stats.joined == stats.left + stats.lost + len(registry.nodes)
    for _ in range(5):
        now += 0.9
        registry.tick(now)
    assert not any(state_of(registry))


def test_nothing_is_due_while_nobody_is_there_and_half_a_beacon_later_otherwise():
    registry = Registry(ID, "ns", beacon=1.0, expiry=4.0)
    assert registry.next_deadline() is None
    registry.tick(9.0)
    join(registry, b"peer", A, 10.0)
    assert registry.next_deadline() == 9.5
    now = 10.0
    while (due := registry.next_deadline()) is not None:
        now = max(now, due)
        registry.tick(now)
    assert registry.stats.lost == 1
    assert now == 14.0
