"""Forwarders agree on a tree: between any two buses there is one way, whatever is joined and dies."""

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.errors import ProtocolError
from oz.protocol.bridge.spanning_tree import MAX_PATH, Offer, from_text, newest, settle, to_text
from support.cases import each


def rank(number):
    return number.to_bytes(16, "big")


class Forwarder:
    def __init__(self, number, buses):
        self.rank, self.buses = rank(number), buses
        self.settled = settle(self.rank, [[] for _ in buses])

    def look(self, others):
        heard = [
            [
                Offer(one.settled.path, leg, 0)
                for one in others
                for leg, other_bus in enumerate(one.buses)
                if other_bus == bus and (one is not self or leg != own_side)
            ]
            for own_side, bus in enumerate(self.buses)
        ]
        before, self.settled = self.settled, settle(self.rank, heard)
        return before != self.settled


def come_to_rest(forwarders, seed=0):
    """Have them look in any order until nothing changes any more."""
    order = random.Random(seed)
    for _ in range(100):
        order.shuffle(forwarders)
        if not sum(one.look(forwarders) for one in forwarders):
            return
    raise AssertionError("they never come to rest")


def joined(edges):
    """Put together what edges connect; tell whether there was a cycle."""
    parts, has_cycle = {}, False

    def part(node):
        while parts.setdefault(node, node) != node:
            node = parts[node]
        return node

    for one, other in edges:
        one, other = part(one), part(other)
        has_cycle |= one == other
        parts[one] = other
    return {node: part(node) for node in list(parts)}, has_cycle


def edges_of(forwarders, *, only_open):
    return [
        (bus, (one.rank, None))
        for one in forwarders
        for bus, is_open in zip(one.buses, one.settled.is_open, strict=True)
        if is_open or not only_open
    ]


def check_tree(forwarders):
    """What is open has no cycle, and connects every two buses that can be connected at all."""
    all_parts, _ = joined(edges_of(forwarders, only_open=False))
    open_parts, has_cycle = joined(edges_of(forwarders, only_open=True))
    assert not has_cycle
    buses = [bus for one in forwarders for bus in one.buses]
    for one in buses:
        for other in buses:
            assert (all_parts[one] == all_parts[other]) == (open_parts[one] == open_parts[other])


topologies = st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=4), min_size=1, max_size=9)


@given(topologies, st.integers(0, 2**32))
def test_any_topology_becomes_a_tree_also_after_deaths(topology, seed):
    chance = random.Random(seed)
    numbers = chance.sample(range(1000), len(topology))
    forwarders = [Forwarder(number, buses) for number, buses in zip(numbers, topology, strict=True)]
    while forwarders:
        come_to_rest(forwarders, seed=chance.random())
        check_tree(forwarders)
        # Any may die, the root above all.
        forwarders.remove(
            min(forwarders, key=lambda one: one.rank) if chance.random() < 0.5 else forwarders[0]
        )


def test_of_two_between_the_same_buses_the_senior_one_passes_messages():
    senior, junior = Forwarder(1, "ab"), Forwarder(2, "ab")
    come_to_rest([junior, senior])
    assert senior.settled.is_open == (True, True)
    assert sum(junior.settled.is_open) == 1


def test_a_lone_forwarder_is_open():
    assert settle(rank(7), [[], []]) == ((rank(7),), (True, True))


def test_of_two_legs_on_one_bus_one_is_open():
    lone = Forwarder(1, "aa")
    come_to_rest([lone])
    assert lone.settled.is_open == (True, False)


def test_a_path_that_leads_back_here_leads_nowhere():
    stale = Offer((rank(1), rank(5), rank(9)), 0, 0)
    assert settle(rank(5), [[stale], []]).path == (rank(5),)


def test_only_the_newest_offer_of_a_legs_counts():
    old, new = Offer((rank(1),), 0, 3), Offer((rank(0), rank(1)), 0, 4)
    other = Offer((rank(1),), 1, 1)
    assert set(newest([old, new, other])) == {new, other}
    assert set(newest([new, old, other])) == {new, other}
    # It has taken another rank since, and told that under the same name.
    later = Offer((rank(1 + 2**64),), 0, 5)
    assert set(newest([later, new, old, other])) == {later, other}


offers = st.builds(
    Offer,
    st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=MAX_PATH, unique=True).map(tuple),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
)


@given(offers)
def test_an_offer_is_read_as_it_was_written(offer):
    token = to_text(offer)
    assert from_text(token) == offer
    assert "." not in token


@given(
    st.one_of(st.text(), st.binary().map(lambda raw: raw.hex()), offers.map(lambda one: to_text(one)[:-3]))
)
def test_anything_else_is_malformed(token):
    with suppress(ProtocolError):
        from_text(token)


@each("token", ["", "é", "kwEAAA", "gA", "wQ", "lAEAAMQBYQ"])
def test_what_is_no_offer_is_refused(token):
    with pytest.raises(ProtocolError):
        from_text(token)
