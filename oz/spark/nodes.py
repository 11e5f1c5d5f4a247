"""Which nodes of the engine's parse tree are known, and with which attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from oz.subjects.prefix import core

_T = TypeVar("_T")


def known_nodes(known: Iterable[tuple[str, str, _T]]) -> dict[Any, tuple[frozenset[str], _T]]:
    """Look the classes up by their names, as far as this version of the engine has them.

    Args:
        known: names of classes, names of all their attributes, and what belongs to them.
    """
    return {
        getattr(core, name): (frozenset(attributes.split()) | {"_key"}, value)
        for names, attributes, value in known
        for name in names.split()
        if hasattr(core, name)
    }
