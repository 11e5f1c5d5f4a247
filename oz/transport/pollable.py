"""Interface of objects that are no sockets, but for which `oz.Poller` can wait, such as `oz.Subscriber`."""

from __future__ import annotations

from typing import Protocol


class PollTurn(Protocol):
    """Work of one object during one call of `oz.Poller.poll`."""

    def has_message(self) -> bool:
        """Read the sockets, run handlers, and return whether a receive would return a message at once."""

    def begin_wait(self) -> tuple[int | None, float | None]:
        """Return the descriptor to wait for, or None without a descriptor; and the longest wait in seconds, or None."""

    def end_wait(self) -> None:
        """End the wait that `begin_wait` has begun."""

    def close(self) -> None:
        """End the work for this call of `poll`."""


class Pollable:
    """Base of objects that `oz.Poller` waits for."""

    def _begin_turn(self) -> PollTurn:
        """Start the work of this object in one call of `poll`."""
        raise NotImplementedError
