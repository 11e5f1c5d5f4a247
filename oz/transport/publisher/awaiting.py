"""The wait of a publisher for subscriptions, which says why none can come where a listener demands keys."""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import inf
from typing import TYPE_CHECKING

from oz.errors import Timeout
from oz.numbers import check_wait
from oz.transport.backend import backend_of
from oz.transport.demands import Demands

if TYPE_CHECKING:
    from oz.transport.publisher.engine import PublisherEngine


def until_enough(
    engine: PublisherEngine, wanted: int, subject: str | bytes | None, timeout: float | None
) -> Generator[tuple[Callable[[], bool], float | None], bool | None, None]:
    """Wait until so many subscriptions have arrived.

    Args:
        engine: the publisher's.
        wanted: how many.
        subject: only those that would let it through; None for any.
        timeout: seconds; None waits for ever.

    Yields:
        What has to be so, and the seconds to wait for it; takes whether it is.

    Raises:
        Timeout: there were fewer in that time.
        PermissionDenied: a listener demands keys, and this publisher has none.
        ClosedError: the publisher was closed meanwhile.
    """
    check_wait("timeout", timeout)
    deadline = inf if timeout is None else engine.monotonic() + timeout
    demands = _demands(engine)

    def has_enough() -> bool:
        engine.check_open()
        if engine.enough(wanted, subject):
            return True
        if demands is not None:
            demands.check(engine.monotonic())
        return False

    while True:
        now = engine.monotonic()
        looks_in = None if demands is None else demands.next_look_in(now)
        left = min(deadline - now, inf if looks_in is None else looks_in)
        if (yield has_enough, None if left == inf else max(0.0, left)):
            return
        if engine.monotonic() >= deadline:
            raise Timeout(engine.too_few(wanted, subject, timeout))


def _demands(engine: PublisherEngine) -> Demands | None:
    """Make what finds out whether listeners demand keys, where the publisher has called some and has none."""
    attachments = engine.attachments
    if attachments.credentials is not None or not backend_of(engine.socket).has_handle:
        return None
    called = attachments.endpoints[: attachments.connections]
    # Whoever has asked for something has let it in.
    return Demands(called, engine.monotonic(), is_needed=lambda _: not engine.enough(1, None))
