"""How much a test does of what is heavy: some of it in the suite, the whole under `tox -e heavy`.

That environment sets `OZ_SOAK`, the seconds that a soak lasts, and runs the tests that are marked `heavy`,
which nothing else runs, and those that are marked `sized`, which the suite runs in a reduced size.
"""

import os
from itertools import product

import pytest

SOAK = float(os.environ.get("OZ_SOAK") or 0)
"""Seconds; 0 in the suite."""


def size(reduced, whole):
    """Give what the suite does, or the whole of it."""
    return whole if SOAK else reduced


def one_of_each(longest, *others):
    """Give all combinations: the suite has each value of each once or more, the heavy run the rest as well.

    Args:
        longest: as many values as any of the others has, or more.
        others: which go with those in turn.
    """
    found = []
    for numbers in product(*(range(len(one)) for one in (longest, *others))):
        is_in_suite = all(at == numbers[0] % len(one) for at, one in zip(numbers[1:], others, strict=True))
        values = [one[at] for at, one in zip(numbers, (longest, *others), strict=True)]
        found.append(pytest.param(*values, marks=() if is_in_suite else pytest.mark.heavy))
    return found


def in_suite(values, others):
    """Give values that the suite has, and others that the heavy run has as well."""
    others = (one if isinstance(one, tuple) else (one,) for one in others)
    return [*values, *(pytest.param(*one, marks=pytest.mark.heavy) for one in others)]


def first_in_suite(*axes):
    """Return all combinations: the suite has the first one, the heavy run has all."""
    return [
        pytest.param(*values, marks=pytest.mark.heavy if at else ())
        for at, values in enumerate(product(*axes))
    ]
