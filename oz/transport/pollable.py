"""Objects without a socket of their own that `oz.Poller` waits for."""

from __future__ import annotations

from typing import Protocol


class PollTurn(Protocol):
    """Part of one object in one call of `oz.Poller.poll`."""

    def has_message(self) -> bool:
        """Read, run handlers, and return whether a receive would return at once."""

    def begin_wait(self) -> tuple[int | None, float | None]:
        """Return a descriptor to wait for, or None, and the maximum seconds to wait. None seconds wait for ever."""

    def end_wait(self) -> None:
        """End the wait of `begin_wait`."""

    def close(self) -> None:
        """End the turn."""


class Pollable:
    """Base of objects that `oz.Poller` waits for."""

    def _begin_turn(self) -> PollTurn:
        """Return the part of the object in one call of `poll`."""
        raise NotImplementedError
