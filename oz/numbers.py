"""Checks of durations and sizes: what is no number is refused by the name of its argument.

Whatever else would be done with it fails later, and says only what an operator could not do.
"""

from __future__ import annotations

from numbers import Real
from typing import Any


def check_count(name: str, value: Any, least: int, most: int) -> None:
    """Refuse what is no whole number within bounds.

    Raises:
        TypeError: it is not an int.
        ValueError: it is out of bounds.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is an int, not {type(value).__name__}: {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} is from {least:,} to {most:,}, not {value:,}")


def check_seconds(name: str, value: Any, most: float, least: float = 0) -> None:
    """Refuse what is no duration within bounds.

    Raises:
        TypeError: it is no number.
        ValueError: it is out of bounds.
    """
    check_number(name, value)
    if not least <= value <= most:
        raise ValueError(f"{name} is from {least:g} to {most:,g} seconds, not {value!r}")


def check_wait(name: str, value: Any) -> None:
    """Check a time to wait: a number of seconds, 0 or more, or None for ever.

    Raises:
        TypeError: it is neither a number nor None.
        ValueError: it is negative, or nan.
    """
    # The first condition only is checked for each message of a loop of `receive`.
    if value is not None and (type(value) is not float or not value >= 0):
        check_number(name, value, "a number of seconds, or None for ever")
        if value < 0:
            raise ValueError(f"{name} is 0 or more seconds, or None for ever, not {value!r}")


def check_number(name: str, value: Any, what: str = "a number of seconds") -> None:
    """Refuse what is no number; `what` says what it is.

    Raises:
        TypeError: it is none.
        ValueError: it is nan.
    """
    if not isinstance(value, (int, float, Real)) or isinstance(value, bool):
        raise TypeError(f"{name} is {what}, not {type(value).__name__}: {value!r}")
    if value != value:
        raise ValueError(f"{name} is {what}, not {value!r}")
