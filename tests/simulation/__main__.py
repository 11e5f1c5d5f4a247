"""Command line of the simulation: `python -m simulation --seeds 10000`."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from functools import partial

from simulation.buses import BridgeWorld, BusWorld, TwinWorld
from simulation.links import LinkWorld, OneWayWorld
from simulation.mechanisms import EXPECTED, counting
from simulation.minimising import minimise
from simulation.running import run

WORLDS = {
    "links": LinkWorld,
    "one-way": OneWayWorld,
    "buses": BusWorld,
    "twins": TwinWorld,
    "bridges": BridgeWorld,
}
FAULTS = [f"{world.TITLE}: {kind}" for world in (OneWayWorld, BusWorld) for kind, _ in world.KINDS]
PART = 20
ENOUGH = 300
"""Seeds in which each mechanism and each fault must fire."""


def world_of(seed):
    """Return the world of a seed. Three of five seeds are worlds of links, which run faster."""
    worlds = {1: BusWorld, 3: TwinWorld, 5: OneWayWorld, 6: BridgeWorld, 8: BusWorld}
    return worlds.get(seed % 10, LinkWorld)


def run_some(seeds, only=None):
    """Run seeds; return the failures and the counts.

    Args:
        seeds: numbers.
        only: name of the world, or None for the world of each seed.
    """
    counter, failed = Counter(), []
    with counting(counter):
        for seed in seeds:
            world = world_of(seed) if only is None else WORLDS[only]
            violation = run(seed, world, counter)
            if violation is not None:
                failed.append((world, seed, violation.kind, str(violation)))
    return failed, counter


def missing(counter):
    """Return the mechanisms and faults that did not fire."""
    return [name for name in (*EXPECTED, *FAULTS) if not counter[name]]


def cut_down(world, seed, kind):
    """Return a small set of faults and actors with which a seed still fails in the same way.

    Args:
        world: of the seed.
        seed: that fails.
        kind: of the violation.
    """

    def fails(faults, actors):
        violation = run(seed, world, None, faults, actors)
        return violation is not None and violation.kind == kind

    whole = world(seed)
    actors = list(whole.actors)
    faults = minimise(whole.faults, lambda some: fails(some, actors))
    actors = minimise(actors, lambda some: fails(faults, some))
    return minimise(faults, lambda some: fails(some, actors)), actors


def report(world, seed, kind, text):
    """Print a failure with the faults and actors that cause it."""
    every = world(seed).faults
    faults, actors = cut_down(world, seed, kind)
    places = ",".join(str(every.index(item)) for item in faults)
    print(f"seed {seed}: {text}")
    print(f"    with {', '.join(actors)}")
    for item in faults:
        print(f"    {item.at:7.3f} s  {item.kind} {' '.join(item.who)} for {item.lasts:g} s")
    name = next(one for one, kind in WORLDS.items() if kind is world)
    options = f"--faults {places or 'none'} --actors {','.join(actors)}"
    print(f"    python -m simulation --world {name} --seed {seed} {options}", flush=True)


def replay(world, seed, places, actors):
    """Run one seed with all its faults and actors, or with some; return the exit code."""
    faults = None
    if places is not None:
        every = world(seed).faults
        faults = [] if places == "none" else [every[int(item)] for item in places.split(",")]
    violation = run(seed, world, None, faults, None if actors is None else actors.split(","))
    print("nothing is violated" if violation is None else violation)
    return int(violation is not None)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="number of seeds (default: 300)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default: 0)")
    jobs = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=jobs, help="processes (default: number of processors)")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument(
        "--world", choices=WORLDS, help="world of each seed (default: three of five are links)"
    )
    parser.add_argument("--faults", help="with --seed: indices of the faults, as 0,3,17, or none")
    parser.add_argument("--actors", help="with --seed: names of the processes")
    parser.add_argument("--most", type=int, default=5, help="failing seeds that are cut down (default: 5)")
    given = parser.parse_args(arguments)
    logging.getLogger("oz").setLevel(logging.CRITICAL)
    if given.seed is not None:
        world = WORLDS[given.world] if given.world else world_of(given.seed)
        return replay(world, given.seed, given.faults, given.actors)
    seeds = range(given.first, given.first + given.seeds)
    began = time.monotonic()
    parts = [seeds[at : at + PART] for at in range(0, len(seeds), PART)]
    counter, failed = Counter(), []
    # Processes inherit what a first run of each world imports and compiles.
    for world in WORLDS.values():
        run(0, world)
    gc.freeze()
    # Worlds are full of reference cycles. A process that ends frees them in less time than garbage collection.
    with multiprocessing.Pool(given.jobs, gc.disable, maxtasksperchild=1) as pool:
        for some, counts in pool.imap(partial(run_some, only=given.world), parts):
            for item in some:
                print(f"seed {item[1]}: {item[3]}", flush=True)
                failed.append(item)
            counter += counts
    # After all runs, because processes are forked from this one.
    for item in failed[: given.most]:
        report(*item)
    for name, count in sorted(counter.items()):
        print(f"{count:9d}  {name}")
    silent = missing(counter) if given.world is None and given.seeds >= ENOUGH else []
    for name in silent:
        print(f"        0  {name}")
    print(f"{given.seeds} seeds in {time.monotonic() - began:.1f} s, {len(failed)} failed")
    return int(bool(failed or silent))


if __name__ == "__main__":
    sys.exit(main())
