"""Sizes of long tests: reduced in the suite, whole under `tox -e heavy`.

`tox -e heavy` sets `OZ_SOAK`, the seconds of a soak. It runs tests with the marker `heavy`, which the suite
does not run, and tests with the marker `sized`, which the suite runs in a reduced size.
"""

import os
from itertools import product

import pytest

SOAK = float(os.environ.get("OZ_SOAK") or 0)
"""Seconds; 0 in the suite."""


def size(reduced, whole):
    """Return the size of the suite, or the whole size."""
    return whole if SOAK else reduced


def one_of_each(longest, *others):
    """Return all combinations: the suite runs each value of each axis at least once, the heavy run all of them.

    Args:
        longest: the axis with the most values.
        others: other axes, whose values are combined with it in turn.
    """
    found = []
    for numbers in product(*(range(len(item)) for item in (longest, *others))):
        is_in_suite = all(at == numbers[0] % len(item) for at, item in zip(numbers[1:], others, strict=True))
        values = [item[at] for at, item in zip(numbers, (longest, *others), strict=True)]
        found.append(pytest.param(*values, marks=() if is_in_suite else pytest.mark.heavy))
    return found


def in_suite(values, others):
    """Return values for the suite, followed by values for the heavy run only."""
    others = (other if isinstance(other, tuple) else (other,) for other in others)
    return [*values, *(pytest.param(*other, marks=pytest.mark.heavy) for other in others)]
