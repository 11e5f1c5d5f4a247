"""Run many schedules: `python -m links.run [--first N] [--count N] [--processes N]`, in `tests/`."""

import argparse
import resource
import time
from collections import Counter
from multiprocessing import get_context

from links.simulation import run_seed


def attempt(seed):
    """Run one schedule; return the seed, its error or None, and its statistics."""
    try:
        return seed, None, run_seed(seed)
    except Exception as error:
        return seed, f"{type(error).__name__}: {error}", Counter()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    began, failed, total = time.monotonic(), 0, Counter()
    with get_context("fork").Pool(options.processes) as pool:
        seeds = range(options.first, options.first + options.count)
        for seed, error, statistics in pool.imap(attempt, seeds, chunksize=20):
            total += statistics
            if error is not None:
                failed += 1
                if failed <= 20:
                    print(
                        f"seed {seed}: {error[:300]}\n  replay: python -m links.simulation {seed}",
                        flush=True,
                    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{options.count} schedules, {failed} failed, {dict(total)}")
    print(f"{time.monotonic() - began:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of processor time")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
