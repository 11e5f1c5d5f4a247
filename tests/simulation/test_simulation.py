"""A few seeds of the simulation; `tox -e simulate` runs many."""

from collections import Counter

import pytest

from simulation.mechanisms import watched
from simulation.minimising import minimise
from simulation.nodes import NodeWorld
from simulation.world import World, run

SEEDS = 40


@pytest.mark.parametrize("first", range(0, SEEDS, 4))
def test_all_that_must_be_so_is_so_whatever_goes_wrong(first):
    with watched(Counter()):
        assert [violation for seed in range(first, first + 4) if (violation := run(seed))] == []


@pytest.mark.parametrize("seed", range(4))
def test_nodes_answer_find_each_other_and_hear_all_whatever_goes_wrong(seed):
    assert run(seed, kind=NodeWorld) is None


def test_seed_replays_exactly():
    one, other = World(7).run(), World(7).run()
    assert one.mechanisms == other.mechanisms
    assert [ledger.by_origin for ledger in one.oracle.ledgers] == [
        ledger.by_origin for ledger in other.oracle.ledgers
    ]


def test_failing_schedule_is_cut_down_to_the_faults_that_it_needs():
    assert minimise(list(range(20)), lambda some: {3, 17} <= set(some)) == [3, 17]
    assert minimise(list(range(20)), lambda some: True) == []
