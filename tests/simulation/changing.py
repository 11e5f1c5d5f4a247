"""Other values in modules of oz, as long as a run lasts."""

from __future__ import annotations

from contextlib import contextmanager


@contextmanager
def changed(*changes):
    """Have other values in modules, as long as this lasts: bounds so small that they matter.

    Args:
        changes: modules, names, and their values.
    """
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
