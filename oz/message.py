"""What a subscriber is given."""

from __future__ import annotations

from typing import Any


class Message:
    """One message as it was delivered.

    Attributes:
        subject: text; `bytes` when the subject is not UTF-8.
        payload: the frame behind the subject, or the value that the codec made of it. A message that
            was sent with no payload at all has `b""`.
        frames: every ZeroMQ frame as it came, the subject's first.
        subscriptions: those that the message was delivered for.
        time_ns: when it was taken from the socket, in nanoseconds since 1970 (`time.time_ns`).
    """

    __slots__ = ("frames", "payload", "subject", "subscriptions", "time_ns")

    def __init__(
        self,
        subject: str | bytes,
        payload: Any,
        frames: list[bytes],
        subscriptions: tuple[Any, ...] = (),
        time_ns: int = 0,
    ) -> None:
        """Put a message together; subscribers do."""
        self.subject = subject
        self.payload = payload
        self.frames = frames
        self.subscriptions = subscriptions
        self.time_ns = time_ns

    def __repr__(self) -> str:
        """Show subject and payload, a long payload cut."""
        shown = repr(self.payload)
        if len(shown) > 80:
            shown = f"{shown[:70]}… "
        return f"<oz.Message {self.subject!r} {shown}>"
