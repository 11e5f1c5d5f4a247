"""The sink that a publisher sends into: the one thing that it asks and is answered at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from oz.protocol.publisher.backlog import Backlog

Clock = Callable[[], float]
"""Gives monotonic seconds."""


class Sink(Protocol):
    """Takes frames for all who listen on the key that they begin with: a ZeroMQ socket, or a simulation."""

    def try_send(self, frames: tuple[bytes, ...], backlog: Backlog | None = None) -> bool:
        """Send the frames of one message to all who listen; tell whether there was room, or send nothing.

        Args:
            frames: the frames.
            backlog: of the one connection that listens; None where there may be several.
        """

    def try_send_one(self, frame: bytes) -> bool:
        """Send one small frame, the short way: where a refusal is to be followed by `try_send`."""

    def send_past_the_full(self, frames: tuple[bytes, ...]) -> None:
        """Send to those who have room only; who has none is left out until it can be written again."""

    def look(self) -> None:
        """Take notice of the room that has come: who was left out is back then."""

    def make_lossless(self) -> None:
        """From now on refuse what has no room, instead of dropping it."""

    def make_lossy(self) -> None:
        """From now on drop what has no room, where that is the publisher's way: for plain subscribers."""
