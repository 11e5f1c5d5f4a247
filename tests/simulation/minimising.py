"""Cutting the faults and actors of a failing run down to those that it needs: delta debugging."""

from __future__ import annotations


def minimise(faults, fails, max_runs=200):
    """Return few of the faults with which it still fails.

    Args:
        faults: those of a run that fails.
        fails: tells whether a run with some of them fails in the same way.
        max_runs: runs at most.
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
