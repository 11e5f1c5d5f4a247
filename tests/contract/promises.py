"""Markers of the contract tests, and the variants in which a test runs.

`@promise("sentence")` marks the test of a promise. `docs/concepts.md` has a summary of all sentences.
`not_for={"inproc": "reason"}` names variants for which the promise is not made. A key is a value of an
axis, or several values joined by "+": `"node+asyncio"`.

`@cases(names, values)` parametrizes a test that has variants. The small form runs each case in one variant
and each variant with one case. `pytest.mark.parametrize` would run each case in each variant.

Axes: `carrier`, `shell`, `transport`, `filtering`. A test runs for the axes whose fixtures it uses,
directly or through another fixture such as `pair`. The small form runs `SMALL` variants of each
test, or the number in `small=` where a variant costs a program or a wait. The first has the values of
`FIRST`. The next variants cover the other values; a hash of the test's name decides ties. With `OZ_SOAK`
set, all variants and all cases run.
"""

import zlib
from itertools import product

import pytest

from support.sizes import size

AXES = {
    "carrier": ("sockets", "node"),
    "shell": ("sync", "asyncio"),
    "transport": ("tcp", "ipc", "inproc", "tcp6"),
    "filtering": ("publisher", "prefix"),
}

FIRST = ("sockets", "sync", "tcp", "publisher")
"""Values that the first variant has where the promise is made for them."""

SMALL = 2
"""Variants of a test in the small form; one more if the test runs over nodes too."""

NEVER = {
    "node+inproc": "Nodes are peers of separate processes, so they have no inproc endpoints.",
    "node+prefix": "A node always filters at the publisher.",
}
"""Variants that no promise is made for, with the reasons."""


def promise(sentence, *, not_for=None, small=None):
    """Return the marker of the test of a promise.

    Args:
        sentence: the promise, for users.
        not_for: reasons by keys of variants for which the promise is not made.
        small: number of variants that the small form runs, if it is not `SMALL`.
    """
    return pytest.mark.promise(sentence, not_for=not_for or {}, small=small)


def cases(names, values, *, ids=None):
    """Return the marker of the cases of a test with variants.

    Args:
        names: names of the arguments, separated by commas.
        values: a value for each case, or a tuple of values if there are several names.
        ids: text of each case in the name of its test; by default its values.
    """
    names = [name.strip() for name in names.split(",")]
    values = [tuple(value) if len(names) > 1 else (value,) for value in values]
    ids = ids or ["-".join(map(str, value)) for value in values]
    return pytest.mark.cases(names, list(zip(values, ids, strict=True)))


def has_values(variant, key):
    """Return whether a variant has all values of a key such as "node+asyncio"."""
    return set(key.split("+")) <= set(variant)


def variants(name, axes, not_for, small=None):
    """Return the variants of a test, as tuples in the order of the axes.

    Args:
        name: name of the test; it decides which variants the small form runs.
        axes: names of the axes.
        not_for: keys of variants for which the promise is not made.
        small: number of variants in the small form.
    """
    known = {value for values in AXES.values() for value in values}
    assert not (unknown := {value for key in not_for for value in key.split("+")} - known), unknown
    excluded = [*NEVER, *not_for]
    made = [
        item
        for item in product(*(AXES[axis] for axis in axes))
        if not any(has_values(item, key) for key in excluded)
    ]
    assert made, f"{name} has no variants"
    small = small or SMALL + ("carrier" in axes)
    return made if size(False, True) else _small(name, made, small)


def combined(variants, cases):
    """Return pairs of a variant and a case: all of them, or each variant and each case at least once."""
    turns = size(min(len(variants), len(cases)), 1)
    return [
        (variant, case)
        for at, variant in enumerate(variants)
        for number, case in enumerate(cases)
        if at % turns == number % turns
    ]


def _small(name, made, small):
    first = max(made, key=lambda item: len(set(item) & set(FIRST)))
    chosen, covered = [first], set(first)
    # zlib.crc32 is the same in every process; hash() is not.
    others = sorted(set(made) - {first}, key=lambda item: zlib.crc32(f"{name} {item}".encode()))
    while others and len(chosen) < small:
        best = max(others, key=lambda item: len(set(item) - covered))
        others.remove(best)
        chosen.append(best)
        covered |= set(best)
    return chosen
