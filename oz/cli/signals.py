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
