"""The steps that connections ask a node to take, and the ports by which they ask it."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Dial(NamedTuple):
    """Connect to an endpoint.

    Attributes:
        endpoint: where to.
        name: whose it is, for a log.
        is_for_ever: whether it is tried again also when nobody listens there.
        key: the public key of whoever listens there, as announced; None where nobody told.
    """

    endpoint: str
    name: str
    is_for_ever: bool = False
    key: str | None = None


class HangUp(NamedTuple):
    """Disconnect from an endpoint. What had come may be lost, or be read beside what comes anew."""

    endpoint: str


class LoseTrack(NamedTuple):
    """Report that messages of a publisher may be missing; see `Losses.lose_track`."""

    origin: bytes
    is_in_place: bool


class Forget(NamedTuple):
    """Forget a publisher that is gone for good."""

    origin: bytes


class Unreachable(NamedTuple):
    """Report that a peer was never heard at the endpoint that it announces, though it was dialled twice."""

    endpoint: str
    name: str


ConnectionStep = Dial | HangUp | LoseTrack | Forget | Unreachable


class Hearing(Protocol):
    """The node's subscriber, as far as it knows whom it hears; it answers at once."""

    def heard_at(self, origin: bytes) -> int:
        """Return the time when a publisher was heard last, in nanoseconds; 0 if it is not known."""

    def last_heard(self) -> dict[bytes, int]:
        """Return the same of all publishers that are known."""

    def has_answer(self, origin: bytes) -> bool:
        """Tell whether a publisher has answered everything that is asked for."""


class Directory(Protocol):
    """The sockets by which nodes of one host find each other."""

    def others(self) -> set[str]:
        """Return the endpoints of the others, dead ones perhaps among them."""

    def clear(self, endpoint: str) -> bool:
        """Remove a socket that nobody listens on any more; tell whether it was one."""


class Way(NamedTuple):
    """One publisher of a peer: where it is connected to, and by which name it is heard."""

    endpoint: str
    origin: bytes
