"""Faults of the system while writing, set apart from mistakes of the caller."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors that making room mends."""


class SystemFault(Exception):
    """The system failed to write, as opposed to whatever the records were taken from.

    Attributes:
        error: what it said.
        is_full: whether making room mends it.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error
        self.is_full = error.errno in FULL


@contextmanager
def system() -> Iterator[None]:
    """Run something whose OSErrors come from the system, and raise them as `SystemFault`."""
    try:
        yield
    except OSError as error:
        raise SystemFault(error) from error
