"""How a signal ends a command that runs until then."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at the first SIGINT or SIGTERM; the second does what it otherwise does."""

    def end(_number: int, _frame: object) -> None:
        stop()
        for number, action in before.items():
            signal.signal(number, action)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM raise `SystemExit`, so that what is open is closed; a second one ends it at once."""

    def end(number: int, _frame: object) -> None:
        signal.signal(number, before)
        # What a shell says of a program that a signal ended.
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
