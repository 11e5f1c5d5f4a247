"""Delta debugging: reduce the faults and actors of a failing run."""

from __future__ import annotations


def minimise(faults, fails, max_runs=200):
    """Return a small subset of the faults with which the run still fails.

    Args:
        faults: faults of a failing run.
        fails: returns whether a run with a subset of the faults fails in the same way.
        max_runs: maximum number of runs.
    """
    parts = 2
    runs = 0
    while len(faults) > 1 and runs < max_runs:
        size = max(1, len(faults) // parts)
        for at in range(0, len(faults), size):
            rest = faults[:at] + faults[at + size :]
            runs += 1
            if fails(rest):
                faults, parts = rest, max(2, parts - 1)
                break
            if runs >= max_runs:
                break
        else:
            if size == 1:
                break
            parts = min(len(faults), 2 * parts)
    if len(faults) == 1 and fails([]):
        return []
    return faults
