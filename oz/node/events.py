"""Peers and events, as a node reports them to the program."""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVENTS = 10_000
"""Maximum number of events that wait for `on_event`. A further event replaces the oldest event."""
PEER_UP, PEER_SILENT, PEER_LEFT, PEER_LOST = "peer_up", "peer_silent", "peer_left", "peer_lost"
NAME_CONFLICT, SLOW_HANDLER, DENIED, LOSS = "name_conflict", "slow_handler", "denied", "loss"


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer that is up.

    Attributes:
        name: name of the peer. Two peers may have the same name.
        id: id of the peer, 32 hexadecimal digits. A peer that restarts has another id.
        host: name of the peer's host.
        pid: process id of the peer.
        endpoints: endpoints at which other nodes connect to the peer.
        up_since: time since which the peer is up, in seconds since 1970.
    """

    name: str
    id: str
    host: str
    pid: int
    endpoints: tuple[str, ...]
    up_since: float


@dataclass(frozen=True, slots=True)
class Event:
    """Event that a node passes to `on_event`.

    Attributes:
        kind: kind of the event, from the table below.
        about: name of the peer, endpoint or subject that the event concerns.
        text: sentence that describes the event.
        peer: peer that the event concerns; None for an event about an endpoint or a subject.
        count: number of lost messages, for the kind "loss"; None if the number is unknown.

    ================= =======================================================================================
    kind              meaning
    ================= =======================================================================================
    peer_up           a peer is up, or a silent peer answers again
    peer_silent       a peer has not answered for 4.5 seconds, or its connection ended a second ago
    peer_left         a peer has closed, or was restarted
    peer_lost         a peer was silent for `lost_after` seconds, or its process has ended without `close`
    name_conflict     two nodes have the same name
    slow_handler      messages wait for a handler
    denied            permissions deny a subscription or a publication; or the process at an endpoint cannot be a
                      peer: it is on another bus, is a plain publisher, or a key was refused
    loss              messages did not arrive
    ================= =======================================================================================
    """

    kind: str
    about: str
    text: str
    peer: Peer | None = None
    count: int | None = None
