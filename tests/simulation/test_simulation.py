"""A few seeds of the simulation; `tox -e simulate` runs many."""

import gc
import logging

import pytest

from simulation.__main__ import run_some
from simulation.forwarding import ForwarderWorld
from simulation.links import LinkWorld
from simulation.minimising import minimise
from support.sizes import size

SEEDS, PART = size(12, 300), 4
"""`tox -e pure` goes on where these end, and runs the rest of 300."""


@pytest.fixture(autouse=True)
def nothing_costs_what_nobody_looks_at(caplog):
    """Worlds are full of cycles, which take a quarter of them to find, and warn of much that nobody reads."""
    caplog.set_level(logging.CRITICAL, "oz")
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.sized
@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_all_that_must_be_so_is_so_whatever_goes_wrong(first):
    failed, _ = run_some(range(first, first + PART))
    assert [f"{world.__name__} of seed {seed}: {text}" for world, seed, _, text in failed] == []


def test_seed_of_forwarders_replays_exactly():
    one, other = ForwarderWorld(7).run(), ForwarderWorld(7).run()
    assert [account.heard for account in one.heard.accounts] == [
        account.heard for account in other.heard.accounts
    ]
    assert one.mechanisms == other.mechanisms


def test_seed_replays_exactly():
    one, other = LinkWorld(7).run(), LinkWorld(7).run()
    assert one.mechanisms == other.mechanisms
    assert [(life.name, life.heard, life.gaps) for life in one.lives] == [
        (life.name, life.heard, life.gaps) for life in other.lives
    ]


def test_failing_schedule_is_cut_down_to_the_faults_that_it_needs():
    assert minimise(list(range(20)), lambda some: {3, 17} <= set(some)) == [3, 17]
    assert minimise(list(range(20)), lambda some: True) == []
