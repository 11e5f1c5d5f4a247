"""Base class of objects that `oz.Poller` waits for, although they have no socket of their own."""

from __future__ import annotations

from typing import Protocol


class PollTurn(Protocol):
    """Work of one object during one call of `oz.Poller.poll`."""

    def has_message(self) -> bool:
        """Read the sockets, run handlers, and return whether a receive would return at once."""

    def begin_wait(self) -> tuple[int | None, float | None]:
        """Return the descriptor to wait for and the longest wait in seconds. None means no descriptor, or no limit."""

    def end_wait(self) -> None:
        """End the wait of `begin_wait`."""

    def close(self) -> None:
        """End the turn."""


class Pollable:
    """Base of objects that `oz.Poller` waits for."""

    def _begin_turn(self) -> PollTurn:
        """Start the work of this object in one call of `poll`."""
        raise NotImplementedError
