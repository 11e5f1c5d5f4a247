"""The command line: `python -m simulation --seeds 10000`."""

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

from simulation.forwarding import ForwarderWorld
from simulation.links import LinkWorld
from simulation.mechanisms import EXPECTED, watched
from simulation.members import MemberWorld
from simulation.minimising import minimise
from simulation.nodes import NodeWorld
from simulation.running import run

PART = 20
NODES_EVERY, MEMBERS_EVERY, FORWARDERS_EVERY = 25, 30, 50
"""Intervals, in seeds, at which these worlds run in addition."""
WORLDS = {
    "links": LinkWorld,
    "nodes": NodeWorld,
    "members": MemberWorld,
    "forwarders": ForwarderWorld,
}
ENOUGH = 1_000
"""Seeds in which every mechanism is to fire."""


def worlds(seed):
    """Return the worlds of a seed: nodes and forwarders only now and then, as they take longer."""
    kinds = [LinkWorld]
    if seed % NODES_EVERY == 0:
        kinds.append(NodeWorld)
    if seed % MEMBERS_EVERY == 4:
        kinds.append(MemberWorld)
    if seed % FORWARDERS_EVERY == FORWARDERS_EVERY // 4:
        kinds.append(ForwarderWorld)
    return kinds


def warm_up():
    """Run a seed of each kind, for what is imported, compiled and remembered then: processes inherit it."""
    for kind in WORLDS.values():
        run(0, kind=kind)
    gc.freeze()


def run_some(seeds, only=None):
    """Run some seeds, of one world or of their own; return what was violated by which, and the counts."""
    counter, failed = Counter(), []
    with watched(counter):
        for seed in seeds:
            for world in worlds(seed) if only is None else [WORLDS[only]]:
                violation = run(seed, mechanisms=counter, kind=world)
                if violation is not None:
                    failed.append((world, seed, violation.kind, str(violation)))
    return failed, counter


def report(world, seed, kind, text):
    """Say what failed, and with which faults alone it still does."""
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
    print(
        f"    again: python -m simulation --world {name} --seed {seed} --faults {places or 'none'}",
        flush=True,
    )


def replay(world, seed, places):
    """Run one seed, with some of its faults or all."""
    faults = None
    if places is not None:
        every = world(seed).faults
        faults = [] if places == "none" else [every[int(one)] for one in places.split(",")]
    violation = run(seed, faults, kind=world)
    print("nothing is violated" if violation is None else violation)
    return int(violation is not None)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many (default: 300)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: 0)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: as processors)"
    )
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument(
        "--world",
        choices=WORLDS,
        help="the one that is run of each seed (default: those that are its own; with --seed: links)",
    )
    parser.add_argument("--faults", help="with --seed: the places of its faults, as 0,3,17, or none")
    parser.add_argument("--most", type=int, default=5, help="failing seeds that are cut down (default: 5)")
    given = parser.parse_args(arguments)
    logging.getLogger("oz").setLevel(logging.CRITICAL)
    if given.seed is not None:
        return replay(WORLDS[given.world or "links"], given.seed, given.faults)
    seeds = range(given.first, given.first + given.seeds)
    began = time.monotonic()
    parts = [seeds[at : at + PART] for at in range(0, len(seeds), PART)]
    counter, failed = Counter(), []
    if len(parts) > given.jobs:
        warm_up()
    # Worlds are full of cycles: a process that ends costs less than to find them.
    with multiprocessing.Pool(given.jobs, gc.disable, maxtasksperchild=1) as pool:
        for some, counts in pool.imap(partial(run_some, only=given.world), parts):
            for one in some:
                print(f"seed {one[1]}: {one[3]}", flush=True)
                failed.append(one)
            counter += counts
    # Not before: processes are forked from this one, and would inherit what a seed changes while it runs.
    for one in failed[: given.most]:
        report(*one)
    for name, count in sorted(counter.items()):
        print(f"{count:9d}  {name}")
    silent = [name for name in EXPECTED if not counter[name]] if given.world is None else []
    for name in silent:
        print(f"        0  {name}")
    print(f"{given.seeds} seeds in {time.monotonic() - began:.1f} s, {len(failed)} failed")
    return int(bool(failed) or (bool(silent) and given.seeds >= ENOUGH))


if __name__ == "__main__":
    sys.exit(main())
