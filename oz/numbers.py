"""Checks of durations and sizes in arguments. Their errors contain the name of the argument."""

from __future__ import annotations

from numbers import Real
from typing import Any


def check_count(name: str, value: Any, minimum: int, maximum: int) -> None:
    """Check a whole number.

    Raises:
        TypeError: the value is not an int.
        ValueError: the value is out of bounds.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is an int, not {type(value).__name__}: {value!r}")
    if not minimum <= value <= maximum:
        raise ValueError(f"{name} is from {minimum:,} to {maximum:,}, not {value:,}")


def check_wait(name: str, value: Any) -> None:
    """Check a timeout. It is a number of seconds, or None to wait for ever.

    Raises:
        TypeError: the value is neither a number nor None.
        ValueError: the value is negative or nan.
    """
    # A float is checked first, because it is the usual value, and `receive` calls this function for each message.
    if value is not None and (type(value) is not float or not value >= 0):
        check_number(name, value, "a number of seconds, or None for ever")
        if value < 0:
            raise ValueError(f"{name} is 0 or more seconds, or None for ever, not {value!r}")


def check_number(name: str, value: Any, what: str = "a number of seconds") -> None:
    """Check a number. Errors describe the number by `what`.

    Raises:
        TypeError: the value is not a number.
        ValueError: the value is nan.
    """
    if not isinstance(value, (int, float, Real)) or isinstance(value, bool):
        raise TypeError(f"{name} is {what}, not {type(value).__name__}: {value!r}")
    if value != value:
        raise ValueError(f"{name} is {what}, not {value!r}")
