"""The entries that an index keeps where a pattern ends, in as little memory as they take.

Most patterns have one value, and often that is the pattern itself. So an entry is a pattern, or a pattern and
its value; a leaf is the only entry, or a dict where there are several.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from oz.subjects.pattern import Pattern

Entry = Pattern | tuple[Pattern, Hashable]
Leaf = Entry | dict[Entry, Any]
"""The only entry, or the values by their entries."""


def entry_of(pattern: Pattern, value: Hashable) -> Entry:
    """Make the entry of a pattern and its value; None stands for the pattern itself."""
    return pattern if value is None else (pattern, value)


def value_of(entry: Entry) -> Any:
    """Return the value of an entry."""
    return entry[1] if type(entry) is tuple else entry


def put(container: dict[Any, Any], key: Any, entry: Entry) -> bool:
    """Add an entry to the leaf under a key; tell whether it is new."""
    leaf: Leaf | None = container.get(key)
    if leaf is None:
        container[key] = entry
        return True
    if type(leaf) is dict:
        if entry in leaf:
            return False
        leaf[entry] = value_of(entry)
        return True
    if leaf == entry:
        return False
    assert not isinstance(leaf, dict)
    container[key] = {leaf: value_of(leaf), entry: value_of(entry)}
    return True


def holds(leaf: Leaf | None, entry: Entry) -> bool:
    """Tell whether an entry is in a leaf."""
    return entry in leaf if type(leaf) is dict else leaf == entry


def take(container: dict[Any, Any], key: Any, entry: Entry) -> bool:
    """Take an entry out of the leaf under a key, and an empty leaf out of its dict; tell if it was there."""
    leaf: Leaf | None = container.get(key)
    if leaf is None or not holds(leaf, entry):
        return False
    if type(leaf) is dict and len(leaf) > 1:
        del leaf[entry]
        if len(leaf) == 1:
            container[key] = next(iter(leaf))
    else:
        del container[key]
    return True


def values_of(leaves: Iterable[Leaf]) -> tuple[Any, ...]:
    """Return the values of all entries in some leaves."""
    values: list[Any] = []
    for leaf in leaves:
        kind = type(leaf)
        if kind is dict:
            values.extend(leaf.values())  # type: ignore[union-attr]
        else:
            values.append(leaf[1] if kind is tuple else leaf)  # type: ignore[index]
    return tuple(values)
