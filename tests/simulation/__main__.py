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

from simulation.links import KINDS as LINK_KINDS
from simulation.links import LinkWorld
from simulation.mechanisms import EXPECTED, counting
from simulation.minimising import minimise
from simulation.nodes import KINDS as NODE_KINDS
from simulation.nodes import NodeWorld
from simulation.running import run

WORLDS = {"links": LinkWorld, "nodes": NodeWorld}
FAULTS = [f"fault of links: {one}" for one in LINK_KINDS] + [f"fault of nodes: {one}" for one in NODE_KINDS]
PART = 20
ENOUGH = 300
"""Seeds in which each mechanism and each fault must fire."""


def world_of(seed):
    """Return the world of a seed: links and nodes in turn."""
    return list(WORLDS.values())[seed % len(WORLDS)]


def run_some(seeds, only=None):
    """Run seeds; return the failures and the counts.

    Args:
        seeds: to run.
        only: name of the world; None for the world of each seed.
    """
    counter, failed = Counter(), []
    with counting(counter):
        for seed in seeds:
            world = world_of(seed) if only is None else WORLDS[only]
            violation = run(seed, mechanisms=counter, kind=world)
            if violation is not None:
                failed.append((world, seed, violation.kind, str(violation)))
    return failed, counter


def missing(counter):
    """Return the mechanisms and faults that did not fire."""
    return [name for name in (*EXPECTED, *FAULTS) if not counter[name]]


def report(world, seed, kind, text):
    """Print a failure, and the faults that it needs."""
    faults = world(seed).faults

    def fails(some):
        violation = run(seed, some, kind=world)
        return violation is not None and violation.kind == kind

    left = minimise(faults, fails)
    places = ",".join(str(faults.index(one)) for one in left)
    print(f"seed {seed}: {text}")
    for one in left:
        print(f"    {one.at:7.3f} s  {one.kind} {' '.join(one.who)} for {one.lasts:g} s")
    name = next(one for one, kind in WORLDS.items() if kind is world)
    print(f"    python -m simulation --world {name} --seed {seed} --faults {places or 'none'}", flush=True)


def replay(world, seed, places):
    """Run one seed with all its faults, or with some; return the exit code."""
    faults = None
    if places is not None:
        every = world(seed).faults
        faults = [] if places == "none" else [every[int(one)] for one in places.split(",")]
    violation = run(seed, faults, kind=world)
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
        "--world", choices=WORLDS, help="world of each seed (default: links and nodes in turn)"
    )
    parser.add_argument("--faults", help="with --seed: indices of the faults, as 0,3,17, or none")
    parser.add_argument("--most", type=int, default=5, help="failing seeds that are cut down (default: 5)")
    given = parser.parse_args(arguments)
    logging.getLogger("oz").setLevel(logging.CRITICAL)
    if given.seed is not None:
        world = WORLDS[given.world] if given.world else world_of(given.seed)
        return replay(world, given.seed, given.faults)
    seeds = range(given.first, given.first + given.seeds)
    began = time.monotonic()
    parts = [seeds[at : at + PART] for at in range(0, len(seeds), PART)]
    counter, failed = Counter(), []
    # Processes inherit what a first run of each world imports and compiles.
    for world in WORLDS.values():
        run(0, kind=world)
    gc.freeze()
    # Worlds are full of cycles: a process that ends costs less than to find them.
    with multiprocessing.Pool(given.jobs, gc.disable, maxtasksperchild=1) as pool:
        for some, counts in pool.imap(partial(run_some, only=given.world), parts):
            for one in some:
                print(f"seed {one[1]}: {one[3]}", flush=True)
                failed.append(one)
            counter += counts
    # After all runs, because processes are forked from this one.
    for one in failed[: given.most]:
        report(*one)
    for name, count in sorted(counter.items()):
        print(f"{count:9d}  {name}")
    silent = missing(counter) if given.world is None and given.seeds >= ENOUGH else []
    for name in silent:
        print(f"        0  {name}")
    print(f"{given.seeds} seeds in {time.monotonic() - began:.1f} s, {len(failed)} failed")
    return int(bool(failed or silent))


if __name__ == "__main__":
    sys.exit(main())
