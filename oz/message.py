"""What a subscriber is given."""

from __future__ import annotations

from typing import Any, Protocol


class Delivery(Protocol):
    """Whom a message is for; a subscriber's route is one."""

    subscriptions: tuple[Any, ...]
    is_listed: bool
    is_only_listed: bool


class Message:
    """One message as it was delivered.

    Attributes:
        subject: text; `bytes` when the subject is not UTF-8.
        payload: the frame behind the subject, or the value that the codec made of it. A message that
            was sent with no payload at all has `b""`.
        frames: every ZeroMQ frame as it came, the subject's first.
        route: whom it is for, as the subscriber worked it out.
        time_ns: when it was taken from the socket, in nanoseconds since 1970 (`time.time_ns`).
    """

    __slots__ = ("frames", "payload", "route", "subject", "time_ns")

    def __init__(
        self, subject: str | bytes, payload: Any, frames: list[bytes], route: Delivery, time_ns: int
    ) -> None:
        """Put a message together; subscribers do."""
        self.subject = subject
        self.payload = payload
        self.frames = frames
        self.route = route
        self.time_ns = time_ns

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what came, not whom it was for: subscriptions belong to a socket."""
        return Message, (self.subject, self.payload, self.frames, DELIVERED, self.time_ns)

    @property
    def subscriptions(self) -> tuple[Any, ...]:
        """The subscriptions that the message was delivered for."""
        return self.route.subscriptions

    def __repr__(self) -> str:
        """Show subject and payload, a long payload cut."""
        shown = repr(self.payload)
        if len(shown) > 80:
            shown = f"{shown[:70]}… "
        return f"<oz.Message {self.subject!r} {shown}>"


class _Delivered:
    """Stands for the route of a message that was copied out of its process."""

    subscriptions: tuple[Any, ...] = ()
    is_listed = True
    is_only_listed = True

    def __reduce__(self) -> str:
        return "DELIVERED"


DELIVERED: Delivery = _Delivered()
