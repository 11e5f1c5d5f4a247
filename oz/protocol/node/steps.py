"""The steps that links and connections ask a node to take, and the ports by which connections ask it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from oz.protocol.node.membership import Act
from oz.protocol.node.subscription import Refusable
from oz.wire.discovery import Announcement


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


class Introduce(NamedTuple):
    """Tell a peer that has just come up, or whose link stands again, of all others."""

    peer: Announcement
    text: str


class PeerChanged(NamedTuple):
    """Report that a peer is up, has left or is lost."""

    act: Act
    peer: Announcement


class Refused(NamedTuple):
    """Report that something of others was not believed.

    Attributes:
        what: of which kind it is.
        text: which, and why, in words.
    """

    what: Refusable
    text: str


class ServerChanged(NamedTuple):
    """Report that a name server answers, or does not any more."""

    endpoint: str
    is_there: bool


LinkStep = ConnectionStep | Introduce | PeerChanged | Refused | ServerChanged


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
