"""Schedules of the simulation: the suite runs 300, `python -m links.run` 10,000."""

import pytest

from links.removals import REMOVALS, find
from links.simulation import run_seed

SEEDS = range(300)
FOUND_AT = {
    "epoch": 1,
    "attempt": 20,
    "route": 98,
    "ACK on PING": 1_692,
    "withdrawn flag": 9,
    "drop counts of the backlog": 0,
    "direct messages stay": 0,
    "direct messages are refused": 204,
}
"""First seed that fails without a mechanism; `python -m links.removals` finds them."""


@pytest.mark.parametrize("first", range(0, len(SEEDS), 25))
def test_schedules_keep_all_promises(first):
    for seed in SEEDS[first : first + 25]:
        run_seed(seed)


@pytest.mark.parametrize("name", list(FOUND_AT))
def test_simulation_fails_without_a_mechanism(name):
    found = find(name, FOUND_AT[name], 1)
    assert found is not None


def test_each_removal_has_a_seed():
    assert FOUND_AT.keys() == REMOVALS.keys()


def test_a_failure_names_its_replay(monkeypatch):
    monkeypatch.setattr("links.simulation.World.run", lambda world: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        run_seed(17)
    assert "links.simulation 17" in caught.value.__notes__[0]
