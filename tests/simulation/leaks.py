"""What is left in memory once everybody has gone: as little as there was before anybody came."""

from __future__ import annotations

import gc
from collections import deque
from types import BuiltinFunctionType, FunctionType, ModuleType

_PASSED_OVER = (type, ModuleType, FunctionType, BuiltinFunctionType, str, bytes, int, float, tuple)
"""Of these nothing is counted, and none but a tuple leads to anything that is made in a run."""


def count_reached(*roots, beside=()):
    """Count what the dictionaries, sets and lists hold that some objects lead to.

    Args:
        roots: the objects.
        beside: what is not looked into, such as what belongs to the run.
    """
    known, todo, count = {id(one) for one in beside}, list(roots), 0
    while todo:
        one = todo.pop()
        if id(one) in known or (isinstance(one, _PASSED_OVER) and type(one) is not tuple):
            continue
        known.add(id(one))
        if isinstance(one, dict | set | list | deque):
            count += len(one)
        todo += gc.get_referents(one)
    return count
