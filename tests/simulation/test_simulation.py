"""Some seeds of the simulation. `python -m simulation --seeds 10000` runs many."""

import gc
import logging

import pytest

from simulation.__main__ import run_some
from simulation.buses import BridgeWorld, BusWorld, TwinWorld
from simulation.links import LinkWorld
from simulation.running import run
from support.sizes import size

SEEDS, PART = size(200, 1_000), 4

REGRESSIONS = {
    "the connections of a subscriber had one routing id": (
        TwinWorld,
        2,
        (),
        "slow desk lab bridge-1 bridge-2",
    ),
    "a restarted name server lost its introduction": (BusWorld, 356, None, None),
    "a forwarder lost the messages of a member that ended": (BusWorld, 868, (2,), "slow desk bridge-2"),
    "a forwarder passed a message on that went to another member": (BusWorld, 1126, None, None),
    "a forwarder gave messages back to the bus from which they came": (BusWorld, 868, None, None),
    "a request crossed by a forwarder that was up in one direction": (
        BridgeWorld,
        2143,
        (0, 2, 3),
        "slow desk lab bridge-1 bridge-2",
    ),
    "a forwarder did not report a loss that concerned several queues": (BusWorld, 126, None, None),
}
"""World, seed, places of the faults and processes of runs that failed. None stands for all."""


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Disable logging, and garbage collection, which would take a quarter of the time."""
    caplog.set_level(logging.CRITICAL, "oz")
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.mark.sized
@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_promises_hold_in_spite_of_faults(first):
    failed, _ = run_some(range(first, first + PART))
    assert [f"{world.__name__} of seed {seed}: {text}" for world, seed, _, text in failed] == []


@pytest.mark.parametrize("name", REGRESSIONS)
def test_mended_defect_does_not_return(name):
    world, seed, places, actors = REGRESSIONS[name]
    faults = None if places is None else [world(seed).faults[place] for place in places]
    assert run(seed, world, None, faults, None if actors is None else actors.split()) is None


@pytest.mark.parametrize("kind", [LinkWorld, BusWorld])
def test_seed_replays_exactly(kind):
    one, other = kind(7).run(), kind(7).run()
    assert one.mechanisms == other.mechanisms
    assert [(life.name, life.heard, life.gaps) for life in one.lives] == [
        (life.name, life.heard, life.gaps) for life in other.lives
    ]
