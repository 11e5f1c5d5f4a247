"""The dispatch of a publisher: `Batches` sends its messages to the streams of subscribers."""

from __future__ import annotations

from typing import Any, Protocol

from oz.protocol.publisher.interest import Recipients
from oz.protocol.publisher.stream import OutStream


class Dispatch(Protocol):
    """Sends messages, and holds those for which there is no room.

    Attributes:
        full: streams for which something waits until there is room, and since when, in monotonic seconds.
        is_blocked: one of them holds up the publisher.
        size: bytes of the largest batch of the last flush.
        position: that of the message which is sent next, whoever gets it.
    """

    full: dict[OutStream, float]
    is_blocked: bool
    size: int
    position: int

    def send(self, accumulated: list[Any], first: int, *, is_rich: bool) -> None:
        """Send what was accumulated: recipients, subject and payload in turn; see `batching.STEP`.

        `first` is the position of the first message; `position` has gone on behind the last.
        """

    def send_alone(self, recipients: Recipients, subject: bytes, payload: Any) -> None:
        """Send one message, the short way."""

    def send_large(self, accumulated: list[Any]) -> None:
        """Send one message whose payload is large."""

    def retry(self) -> None:
        """Send what waits for room, as far as there is some."""

    def skip(self, count: int | None, recipients: Recipients | None = None) -> None:
        """Count messages that were lost before they came here.

        Args:
            count: how many; None when nobody knows.
            recipients: those that they were for; None where that is not known, and may be everybody.
        """

    def lose_count(self) -> None:
        """Show as a gap what was being sent when that was cut short."""

    def make_lossy(self) -> None:
        """Let ZeroMQ drop what has no room, before a plain message."""
