"""The reason why nothing comes from where a command connects to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Thread, Timer

from oz.transport.demands import KEYLESS, mechanism_at
from oz.transport.endpoints import addresses_of

_ASKED = ("tcp", "ipc")


def trouble_at(endpoint: str, *, has_keys: bool) -> str | None:
    """Return why nobody can be heard at an endpoint, in words; None where somebody may be.

    It takes a second at most, and connects for a moment: ZeroMQ itself says nothing and tries for ever.

    Args:
        endpoint: where a command connects to.
        has_keys: whether it has keys to show.
    """
    if endpoint.partition("://")[0] not in _ASKED:
        return None
    if not addresses_of(endpoint):
        return f"{endpoint}: no such host is known; trying again"
    mechanism = mechanism_at(endpoint)
    if mechanism is None:
        return f"nobody answers at {endpoint} yet; trying again"
    if mechanism != KEYLESS and not has_keys:
        return f"{endpoint} demands keys ({mechanism}) and hears nobody without: give --security FILE"
    return None


@contextmanager
def reporting_trouble(
    endpoints: Iterable[str], seconds: float, say: Callable[[str], object], *, has_keys: bool
) -> Iterator[Callable[[], None]]:
    """Say after so many seconds at which endpoints nobody is; gives what says that somebody was heard.

    Args:
        endpoints: where the command connects to.
        seconds: for which something may take.
        say: is told each in words, by another thread.
        has_keys: whether the command has keys to show.
    """

    def ask(endpoint: str) -> None:
        why = trouble_at(endpoint, has_keys=has_keys)
        if why is not None and not timer.finished.is_set():
            say(why)

    def ask_all() -> None:
        # Each takes its time where nobody says no.
        for one in endpoints:
            Thread(target=ask, args=(one,), daemon=True).start()

    timer = _Asking(seconds, ask_all)
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


class _Asking(Timer):
    """A timer that counts as finished when somebody says so, and not as it goes off."""

    def __init__(self, seconds: float, do: Callable[[], object]) -> None:
        super().__init__(seconds, do)
        self.daemon = True

    def run(self) -> None:
        if not self.finished.wait(self.interval):
            self.function()
