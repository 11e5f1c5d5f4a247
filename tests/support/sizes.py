"""How much a test does of what is heavy: some of it in the suite, the whole under `tox -e heavy`.

That environment sets `OZ_SOAK`, the seconds that a soak lasts, and runs the tests that are marked `heavy`,
which nothing else runs, and those that are marked `sized`, which the suite runs in a reduced size.
"""

import os

SOAK = float(os.environ.get("OZ_SOAK") or 0)
"""Seconds; 0 in the suite."""


def size(reduced, whole):
    """Give what the suite does, or the whole of it."""
    return whole if SOAK else reduced
