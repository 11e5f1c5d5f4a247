"""Roster of a node: which peers exist, which connection serves a pair of nodes, which peers are up.

Theory of operation
-------------------
A node learns of peers from endpoints of `connect=`, from introductions (the directory of the host, name
servers, other peers) and from connections that peers dial. All of them feed one roster.

A pair of nodes has at most two connections, one in each direction of dialling: `Peer.dialled` and
`Peer.accepted`. The dialling node counts its connections; each CARD has that number, and a listening node
keeps the connection with the highest number. The *chosen* connection is the one that the smaller id dialled, if
it has a CARD, else the other. Both nodes decide so without a message. A node greets (HELLO) on the chosen
connection. Once the chosen connection is LIVE in both directions, a node removes the other one.

A listening ROUTER cannot close a connection, and does not notice a half-open one. Therefore only the dialling
node replaces connections, and time is measured by *answers*: WELCOME and ACK prove both directions, because
each node demands an ACK once a second. A connection without an answer for `SILENT_AFTER` is dialled again.

A lost peer stays in the roster for `FORGET_AFTER` × `lost_after`, and its endpoints are dialled meanwhile, because
two nodes may have been apart without any third party that introduces them again. A peer that closes, or that is
replaced by a new process, is forgotten at once.

Connections. "own" is a connection that this node has dialled.

=================== ============================= =============================== =======================
event               DIALLING (own, no CARD)       OPEN (CARD, not both HELLO and  LIVE
                                                  WELCOME)
=================== ============================= =============================== =======================
probe (own)         send CARD                     send CARD; DIALLING             same
CARD, same attempt  OPEN                          –                               –
CARD, own id        hang up                       –                               –
CARD, other bus     hang up                       –                               –
HELLO and WELCOME   –                             LIVE                            –
3.5 s, no answer    dial the next endpoint        own: dial again                 same
no connection       –                             accepted: remove                same
BYE                 –                             the peer has closed             same
=================== ============================= =============================== =======================

Peers:

=================== ================== =============================== ================================
event               KNOWN              UP                              SILENT
=================== ================== =============================== ================================
no CARD             dial; the larger   same                            same
                    id after 2 s
connection LIVE     UP                 –                               –
answer              –                  –                               UP
3.5 s, no answer    –                  SILENT                          –
`lost_after`        –                  –                               KNOWN, lost
BYE, new process    forgotten          forgotten, lost                 same
100 × `lost_after`  forgotten          –                               –
=================== ================== =============================== ================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from oz.wire.links import Card

PING_INTERVAL = 1.0
"""Seconds between two PINGs, each of which demands an ACK."""
SILENT_AFTER = 3.5 * PING_INTERVAL
"""Seconds without an answer after which a peer is silent and its connection is replaced."""
DIAL_AFTER = 2 * PING_INTERVAL
"""Seconds without a CARD after which the node with the larger id dials."""
FORGET_AFTER = 100
"""Multiple of `lost_after` for which a lost peer is dialled, and for which a refused endpoint is not."""

KNOWN, UP, SILENT = "known", "up", "silent"


class Dial(NamedTuple):
    """Effect: connect to an endpoint with a new handle.

    Attributes:
        handle: CONNECT_ROUTING_ID, never used before.
        endpoint: to connect to.
    """

    handle: bytes
    endpoint: str


class HangUp(NamedTuple):
    """Effect: disconnect an endpoint, and discard frames of its handle.

    Attributes:
        handle: of the connection.
        endpoint: to disconnect.
    """

    handle: bytes
    endpoint: str


class SendCard(NamedTuple):
    """Effect: send a CARD.

    Attributes:
        route: handle or routing id.
        card: to send.
    """

    route: bytes
    card: Card


class Greet(NamedTuple):
    """Effect: the link to a peer says HELLO on a connection.

    Attributes:
        node: id of the peer.
        route: handle or routing id of the connection.
    """

    node: bytes
    route: bytes


class Suspend(NamedTuple):
    """Effect: the session for a peer is DOWN until the next HELLO of the peer.

    Attributes:
        node: id of the peer.
    """

    node: bytes


class Introduce(NamedTuple):
    """Effect: send ids and endpoints of peers to a peer.

    Attributes:
        node: id of the recipient.
        peers: id and endpoints of each introduced peer.
    """

    node: bytes
    peers: list[tuple[bytes, tuple[str, ...]]]


class PeerUp(NamedTuple):
    """Event: both directions are LIVE, for the first time or again.

    Attributes:
        card: of the peer.
        was_silent: whether the sessions continue after a silence.
    """

    card: Card
    was_silent: bool


class PeerSilent(NamedTuple):
    """Event: a peer that is up did not answer for `SILENT_AFTER`.

    Attributes:
        card: of the peer.
    """

    card: Card


class PeerGone(NamedTuple):
    """Event: a peer has no sessions any more. The engine ends the link and the session for it.

    Attributes:
        card: of the peer.
        reason: "lost", "closed" or "restarted".
    """

    card: Card
    reason: str


class NameConflict(NamedTuple):
    """Event: a peer came up with the name of another peer, or of this node.

    Attributes:
        card: of the peer.
        other: id of the node with the same name.
    """

    card: Card
    other: bytes


class Refused(NamedTuple):
    """Event: an endpoint leads to no peer.

    Attributes:
        endpoint: that was dialled; None if the peer has dialled.
        reason: in words.
    """

    endpoint: str | None
    reason: str


Effect = Dial | HangUp | SendCard | Greet | Suspend | Introduce
Event = PeerUp | PeerSilent | PeerGone | NameConflict | Refused


class Connection:
    """Connection of a pair.

    Attributes:
        route: handle of a dialled connection, routing id of an accepted one.
        endpoint: that was dialled; None for an accepted connection.
        attempt: number in the CARDs of the connection.
        has_card: whether the peer has sent a CARD.
        answered_at: time of the last answer; at first, the time of dialling or of the CARD.
        has_hello: whether the peer has said HELLO.
        has_welcome: whether the peer has answered HELLO.
    """

    __slots__ = ("answered_at", "attempt", "endpoint", "has_card", "has_hello", "has_welcome", "route")

    def __init__(self, route: bytes, endpoint: str | None, attempt: int, now: float) -> None:
        self.route, self.endpoint = route, endpoint
        self.begin(attempt, now)

    def begin(self, attempt: int, now: float) -> None:
        """Begin again: libzmq has replaced the connection below the route."""
        self.attempt, self.answered_at = attempt, now
        self.has_card = self.has_hello = self.has_welcome = False

    @property
    def is_live(self) -> bool:
        """Whether both directions are LIVE."""
        return self.has_card and self.has_hello and self.has_welcome


class Peer:
    """Another node.

    Attributes:
        node: id.
        state: KNOWN, UP or SILENT.
        card: last CARD; None before the first.
        endpoints: where the peer listens.
        dialled: connection that this node has dialled.
        accepted: connection that the peer has dialled.
        greeted: connection of the last HELLO; None if a HELLO is due.
        answered_at: time of the last answer.
        since: time since which the peer has no CARD, or is KNOWN.
        up_since: time at which the peer came up.
        is_introduced: whether another source has named the peer since it was last up.
    """

    __slots__ = (
        "accepted", "answered_at", "card", "dialled", "endpoints", "greeted", "is_introduced", "known_at", "node",
        "since", "state", "turn", "up_since",
    )  # fmt: skip

    def __init__(self, node: bytes, now: float) -> None:
        self.node, self.state = node, KNOWN
        self.card: Card | None = None
        self.endpoints: tuple[str, ...] = ()
        self.dialled: Connection | None = None
        self.accepted: Connection | None = None
        self.greeted: Connection | None = None
        self.answered_at = self.since = self.known_at = self.up_since = now
        self.turn = 0
        self.is_introduced = False

    @property
    def connections(self) -> list[Connection]:
        """Connections with a CARD."""
        return [one for one in (self.dialled, self.accepted) if one is not None and one.has_card]
