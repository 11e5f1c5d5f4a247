"""Roster of a node: which peers exist, which connection serves a pair of nodes, which peers are up.

Theory of operation
-------------------
A node learns of peers from endpoints of `connect=`, from introductions (the directory of the host, name
servers, other peers) and from connections that peers dial. All of them feed one roster.

A pair of nodes has at most two connections, one in each direction of dialling: `Peer.dialled` and
`Peer.accepted`. The dialling node counts its connections; each CARD has that number, and a listening node
keeps the connection with the highest number. The *chosen* connection is the connection that the smaller id
dialled. If that connection has no CARD, the other connection is chosen. Both nodes decide so without a message.
A node greets (HELLO) on the chosen connection. Once it is LIVE in both directions, a node removes the other one.

A listening ROUTER cannot close a connection, and does not notice a half-open one. Therefore only the dialling
node replaces connections, and time is measured by *answers*: WELCOME and ACK prove both directions, because
each node demands an ACK once a second. A connection without an answer for `SILENT_AFTER` is dialled again.

A lost peer stays in the roster for `FORGET_AFTER` × `lost_after`, and its endpoints are dialled meanwhile. After a
partition, no third node may exist that introduces the two nodes again. A peer that closes, or that is replaced by
a new process, is forgotten at once.

A node introduces a peer that comes up to the other peers, unless another source has named it. Because that source
may have died before, or may not know all peers, each node also introduces all peers to one peer in turn.

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
from math import inf
from typing import NamedTuple

from oz.wire.links import MAX_ENDPOINTS, Card

PING_INTERVAL = 1.0
"""Seconds between two PINGs, each of which demands an ACK."""
SILENT_AFTER = 3.5 * PING_INTERVAL
"""Seconds without an answer after which a peer is silent and its connection is replaced."""
DIAL_AFTER = 2 * PING_INTERVAL
"""Seconds without a CARD after which the node with the larger id dials."""
FORGET_AFTER = 100
"""Multiple of `lost_after` for which a lost peer is dialled, and for which a refused endpoint is not."""

NAME_INTERVAL = 2 * PING_INTERVAL
"""Seconds between two introductions of all peers that are up to one peer, in turn."""

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
    """Effect: disconnect an endpoint, and discard frames of its handle. A session on this route is DOWN.

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
    """Effect: the session for a peer is DOWN until the next HELLO, if the route is that of its last HELLO.

    The dialling node needs it, because a send to a handle without a connection does not fail.

    Attributes:
        node: id of the peer.
        route: handle or routing id of the connection that has ended.
    """

    node: bytes
    route: bytes


class End(NamedTuple):
    """Effect: end the link to a peer and the session for it, if they exist.

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
    """Event: a peer that was up is not there any more. `End` goes before.

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


Effect = Dial | HangUp | SendCard | Greet | Suspend | End | Introduce
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
        is_named: whether another source has named it.
        known_at: time of the last introduction or loss, from which the peer is forgotten.
        turn: counts dials, so that each endpoint is dialled in turn.
    """

    __slots__ = (
        "accepted", "answered_at", "card", "dialled", "endpoints", "greeted", "is_named", "known_at", "node",
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
        self.is_named = False

    @property
    def connections(self) -> list[Connection]:
        """Connections with a CARD."""
        return [one for one in (self.dialled, self.accepted) if one is not None and one.has_card]

    def connection(self, route: bytes) -> Connection | None:
        """Return the connection with a CARD that has a route."""
        return next((one for one in self.connections if one.route == route), None)


class Peers:
    """Roster of a node.

    Each method returns effects and events in order. The engine discards frames of handles that were hung up.

    Attributes:
        card: of this node.
        by_id: peers, by the id of the node.
    """

    def __init__(
        self, card: Card, new_handle: Callable[[], bytes], *, lost_after: float = 5.0, limit: int = 65_536
    ) -> None:
        """Start without peers.

        Args:
            card: of this node.
            new_handle: returns 16 bytes that were never returned before.
            lost_after: seconds without an answer after which a peer is lost; at least `SILENT_AFTER`.
            limit: peers in the roster at most.
        """
        self.card, self._new_handle, self._limit = card, new_handle, limit
        self._lost_after = max(lost_after, SILENT_AFTER)
        self.by_id: dict[bytes, Peer] = {}
        # Own connections by handle, and the peer of each connection that has had a CARD.
        self._own: dict[bytes, Connection] = {}
        self._peer_of: dict[bytes, Peer] = {}
        # Endpoints of `connect=`, with the node that was found there last.
        self._seeds: dict[str, bytes | None] = {}
        self._refused: dict[str, float] = {}
        self._attempt = 0
        self._out: list[Effect | Event] = []
        self._has_ended = False
        self._named_at, self._named = 0.0, b""

    def _take(self, now: float) -> list[Effect | Event]:
        """Return the effects; first dial where connections have ended."""
        if self._has_ended:
            self._has_ended = False
            for peer in self.by_id.values():
                self._dial(peer, now)
            for endpoint in self._seeds:
                self._dial_seed(endpoint, now)
        out, self._out = self._out, []
        return out

    @property
    def is_greeting(self) -> bool:
        """Whether a peer has a CARD and is not up: its subscriptions are not known yet."""
        return any(peer.state == KNOWN and peer.connections for peer in self.by_id.values())

    def peer_at(self, route: bytes) -> Peer | None:
        """Return the peer of a connection that has a CARD; frames of other connections are discarded."""
        peer = self._peer_of.get(route)
        return None if peer is None or peer.connection(route) is None else peer

    # sources

    def connect(self, endpoint: str, now: float) -> list[Effect | Event]:
        """Dial an endpoint at once, and again whenever no peer is connected that was found there."""
        self._seeds.setdefault(endpoint, None)
        self._dial_seed(endpoint, now)
        return self._take(now)

    def disconnect(self, endpoint: str, now: float) -> list[Effect | Event]:
        """Stop to dial an endpoint of `connect`. A peer that was found there stays."""
        self._seeds.pop(endpoint, None)
        for connection in list(self._own.values()):
            if connection.endpoint == endpoint and connection.route not in self._peer_of:
                self._hang_up(connection)
        return self._take(now)

    def introduce(self, node: bytes, endpoints: Iterable[str], now: float) -> list[Effect | Event]:
        """Add a node that the directory of the host or a peer names.

        Args:
            node: id.
            endpoints: where it listens.
            now: in seconds.
        """
        peer = self._find(node, now)
        if peer is not None:
            peer.is_named = True
            if peer.state == KNOWN:
                peer.known_at = now
                if peer.card is None:
                    peer.endpoints = tuple(dict.fromkeys((*peer.endpoints, *endpoints)))[:MAX_ENDPOINTS]
            self._dial(peer, now)
        return self._take(now)

    def _find(self, node: bytes, now: float) -> Peer | None:
        """Return a peer, new if necessary; None for the own id and for a full roster."""
        peer = self.by_id.get(node)
        if peer is None and node != self.card.node and len(self.by_id) < self._limit:
            peer = self.by_id[node] = Peer(node, now)
        return peer

    # frames

    def on_probe(self, handle: bytes, now: float) -> list[Effect | Event]:
        """Record a new connection below a handle."""
        connection = self._own.get(handle)
        if connection is None:
            return []
        self._attempt += 1
        connection.begin(self._attempt, now)
        peer = self._peer_of.get(handle)
        self._out.append(SendCard(handle, self.card._replace(attempt=self._attempt)))
        if peer is not None:
            self._closed(peer, connection, now)
        return self._take(now)

    def on_card(self, route: bytes, card: Card, now: float) -> list[Effect | Event]:
        """Read a CARD: from the listening node the answer, from the dialling node the first frame."""
        connection = self._own.get(route)
        if connection is None:
            self._accept(route, card, now)
        elif card.attempt == connection.attempt and not connection.has_card:
            self._answered_card(connection, card, now)
        return self._take(now)

    def _refusal(self, card: Card) -> str | None:
        if card.node == self.card.node:
            return "the endpoint is one of this node"
        if card.bus != self.card.bus:
            return f"the peer {card.name!r} is on bus {card.bus!r}, this node is on bus {self.card.bus!r}"
        return None

    def _accept(self, route: bytes, card: Card, now: float) -> None:
        # The dialling node hangs up when it reads the answer.
        answer = SendCard(route, self.card._replace(attempt=card.attempt))
        reason = self._refusal(card)
        peer = None if reason is not None else self._find(card.node, now)
        if peer is None:
            self._out += answer, Refused(None, reason or f"the roster has {self._limit} peers")
            return
        old = peer.accepted
        if old is not None and card.attempt <= old.attempt:
            if card.attempt == old.attempt and route == old.route:
                self._out.append(answer)
            return
        self._out.append(answer)
        if old is not None:
            self._remove_accepted(peer)
        elsewhere = self._peer_of.get(route)
        if elsewhere is not None and elsewhere.accepted is not None:
            # A routing id is random, so this is a peer that broke the protocol: the later CARD counts.
            ended = elsewhere.accepted
            self._remove_accepted(elsewhere)
            self._closed(elsewhere, ended, now)
        peer.accepted = Connection(route, None, card.attempt, now)
        self._open(peer, peer.accepted, card, now)

    def _answered_card(self, connection: Connection, card: Card, now: float) -> None:
        endpoint = connection.endpoint or ""
        before = self._peer_of.get(connection.route)
        reason = self._refusal(card)
        peer = None if reason is not None else self._find(card.node, now)
        if before is not None and before is not peer:
            before.dialled = None
            before.endpoints = tuple(one for one in before.endpoints if one != endpoint)
            del self._peer_of[connection.route]
            self._closed(before, connection, now)
        if peer is None:
            self._hang_up(connection)
            self._refused[endpoint] = now + FORGET_AFTER * self._lost_after
            self._out.append(Refused(endpoint, reason or f"the roster has {self._limit} peers"))
            return
        if endpoint in self._seeds:
            self._seeds[endpoint] = peer.node
        old = peer.dialled
        if old is not None and old is not connection:
            if old.has_card and old.attempt > connection.attempt:
                # The listening node has kept the newer connection.
                self._hang_up(connection)
                return
            self._hang_up(old)
        peer.dialled = connection
        self._open(peer, connection, card, now)

    def _open(self, peer: Peer, connection: Connection, card: Card, now: float) -> None:
        """Begin a connection with its CARD."""
        connection.has_card, connection.answered_at = True, now
        self._peer_of[connection.route] = peer
        peer.card = card
        peer.endpoints = card.endpoints or peer.endpoints
        for other in list(self.by_id.values()):
            theirs = other.card
            if other is peer or theirs is None or theirs.host != card.host:
                continue
            if not set(card.endpoints).isdisjoint(theirs.endpoints):
                # An endpoint belongs to one process: the other one has ended.
                self._gone(other, "restarted", now)
        self._settle(peer, now)

    def on_hello(self, route: bytes, now: float) -> list[Effect | Event]:
        """Record the HELLO of a peer."""
        return self._progress(route, now, is_answer=False)

    def on_welcome(self, route: bytes, now: float) -> list[Effect | Event]:
        """Record the WELCOME of a peer, which answers the HELLO of this node on the same connection."""
        return self._progress(route, now, is_welcome=True)

    def on_answer(self, route: bytes, now: float) -> list[Effect | Event]:
        """Record an ACK or another frame that proves both directions of a connection."""
        return self._progress(route, now)

    def _progress(
        self, route: bytes, now: float, *, is_answer: bool = True, is_welcome: bool = False
    ) -> list[Effect | Event]:
        peer = self._peer_of.get(route)
        connection = None if peer is None else peer.connection(route)
        if peer is not None and connection is not None:
            connection.has_welcome |= is_welcome
            if is_answer:
                connection.answered_at = peer.answered_at = now
            else:
                connection.has_hello = True
            self._settle(peer, now)
        return self._take(now)

    def on_bye(self, route: bytes, now: float) -> list[Effect | Event]:
        """Record that a peer closes."""
        peer = self._peer_of.get(route)
        if peer is not None:
            self._gone(peer, "closed", now)
        return self._take(now)

    def on_unreachable(self, route: bytes, now: float) -> list[Effect | Event]:
        """Record EHOSTUNREACH of a routing id: its connection has ended."""
        peer = self._peer_of.get(route)
        if peer is not None and peer.accepted is not None and peer.accepted.route == route:
            connection = peer.accepted
            self._remove_accepted(peer)
            self._closed(peer, connection, now)
        return self._take(now)

    # connections of a pair

    def _chosen(self, peer: Peer) -> Connection | None:
        """Return the connection that the smaller id dialled, if it has a CARD; else the other one."""
        found = peer.connections
        return None if not found else found[0 if self.card.node < peer.node else -1]

    def _settle(self, peer: Peer, now: float) -> None:
        """Greet on the chosen connection; once it is LIVE, remove the other and report the peer."""
        chosen = self._chosen(peer)
        if chosen is None:
            return
        if chosen is not peer.greeted:
            peer.greeted = chosen
            self._out.append(Greet(peer.node, chosen.route))
        if not chosen.is_live:
            return
        if chosen is peer.dialled:
            self._remove_accepted(peer)
        elif peer.dialled is not None:
            self._hang_up(peer.dialled)
        if peer.state != UP and now < peer.answered_at + SILENT_AFTER:
            self._up(peer, now)

    def _closed(self, peer: Peer, connection: Connection, now: float) -> None:
        """Go on without a connection that has ended."""
        if not peer.connections:
            peer.since, self._has_ended = now, True
        if peer.greeted is connection:
            peer.greeted = None
        # A peer that is up resumes its sessions. Another one may never return.
        is_end = peer.state == KNOWN and not peer.connections
        self._out.append(End(peer.node) if is_end else Suspend(peer.node, connection.route))
        self._settle(peer, now)

    def _remove_accepted(self, peer: Peer) -> None:
        if peer.accepted is not None:
            del self._peer_of[peer.accepted.route]
            peer.accepted = None

    def _hang_up(self, connection: Connection) -> None:
        del self._own[connection.route]
        peer = self._peer_of.pop(connection.route, None)
        if peer is not None and peer.dialled is connection:
            peer.dialled = None
        self._has_ended = True
        self._out.append(HangUp(connection.route, connection.endpoint or ""))

    def _call(self, endpoint: str, now: float) -> Connection:
        connection = Connection(self._new_handle(), endpoint, 0, now)
        self._own[connection.route] = connection
        self._out.append(Dial(connection.route, endpoint))
        return connection

    def _dial(self, peer: Peer, now: float) -> None:
        """Dial the next endpoint of a peer that has no connection, when it is the turn of this node."""
        if peer.dialled is not None or peer.connections or now < self._dial_at(peer):
            return
        free = self._free(peer)
        if free:
            peer.turn += 1
            peer.dialled = self._call(free[peer.turn % len(free)], now)
            self._peer_of[peer.dialled.route] = peer

    def _free(self, peer: Peer) -> list[str]:
        return [endpoint for endpoint in peer.endpoints if self._is_free(endpoint)]

    def _is_free(self, endpoint: str) -> bool:
        is_taken = any(one.endpoint == endpoint for one in self._own.values())
        return not is_taken and endpoint not in self._refused

    def _dial_at(self, peer: Peer) -> float:
        return peer.since if self.card.node < peer.node else peer.since + DIAL_AFTER

    def _dial_seed(self, endpoint: str, now: float) -> None:
        peer = self.by_id.get(self._seeds[endpoint] or b"")
        if (peer is None or not peer.connections) and self._is_free(endpoint):
            self._call(endpoint, now)

    # presence

    def _up(self, peer: Peer, now: float) -> None:
        card = peer.card
        assert card is not None
        was_silent = peer.state == SILENT
        peer.state = UP
        self._out.append(PeerUp(card, was_silent))
        if was_silent:
            return
        peer.up_since = now
        others = [one for one in self.by_id.values() if one is not peer and one.state != KNOWN and one.card]
        names = [(one.node, one.card.name) for one in others if one.card]
        for node, name in [(self.card.node, self.card.name), *names]:
            if name == card.name:
                self._out.append(NameConflict(card, node))
        if not peer.is_named:
            self._introduce(peer, others)

    def _introduce(self, peer: Peer, others: list[Peer]) -> None:
        named = [(one.node, one.endpoints) for one in others if one.endpoints]
        if named:
            self._out.append(Introduce(peer.node, named))
        if peer.endpoints:
            self._out += [Introduce(one.node, [(peer.node, peer.endpoints)]) for one in others]

    def _gone(self, peer: Peer, reason: str, now: float) -> None:
        """End the sessions of a peer. A lost peer stays in the roster."""
        if peer.card is not None and (peer.state != KNOWN or peer.connections):
            self._out.append(End(peer.node))
            if peer.state != KNOWN:
                self._out.append(PeerGone(peer.card, reason))
        peer.state, peer.greeted = KNOWN, None
        peer.since = peer.known_at = now
        self._has_ended = True
        self._remove_accepted(peer)
        if peer.dialled is not None:
            self._hang_up(peer.dialled)
        if reason != "lost":
            del self.by_id[peer.node]

    # time

    def tick(self, now: float) -> list[Effect | Event]:
        """Handle deadlines that have passed."""
        for peer in list(self.by_id.values()):
            if peer.state != KNOWN and now >= peer.answered_at + self._lost_after:
                self._gone(peer, "lost", now)
            elif peer.state == UP and now >= peer.answered_at + SILENT_AFTER and peer.card is not None:
                peer.state = SILENT
                self._out.append(PeerSilent(peer.card))
            accepted = peer.accepted
            if accepted is not None and now >= self._accepted_until(peer):
                self._remove_accepted(peer)
                self._closed(peer, accepted, now)
            if peer.state == KNOWN and not peer.connections and now >= self._forget_at(peer):
                self._gone(peer, "forgotten", now)
        if now >= self._name_at():
            self._name_peers(now)
        for connection in list(self._own.values()):
            if now >= connection.answered_at + SILENT_AFTER:
                self._redial(connection, now)
        self._refused = {endpoint: until for endpoint, until in self._refused.items() if now < until}
        self._has_ended = True
        return self._take(now)

    def _name_at(self) -> float:
        """Return when a peer is introduced to all others. A single peer has no others."""
        is_enough = sum(1 for peer in self.by_id.values() if peer.state == UP) > 1
        return self._named_at + NAME_INTERVAL if is_enough else inf

    def _name_peers(self, now: float) -> None:
        """Introduce all peers to the next one, because a source that has named two may have died since."""
        nodes = sorted(node for node, peer in self.by_id.items() if peer.state == UP)
        self._named = next((node for node in nodes if node > self._named), nodes[0])
        self._named_at = now
        others = [self.by_id[node] for node in nodes if node != self._named]
        named = [(one.node, one.endpoints) for one in others if one.endpoints]
        if named:
            self._out.append(Introduce(self._named, named))

    def _redial(self, connection: Connection, now: float) -> None:
        """Replace a connection without an answer by one with another handle."""
        peer, had_card = self._peer_of.get(connection.route), connection.has_card
        self._hang_up(connection)
        if peer is None:
            return  # `tick` dials the endpoint of `connect` again.
        if had_card:
            self._closed(peer, connection, now)
        # The connection was this node's: it does not wait for the peer.
        peer.since = min(peer.since, now - DIAL_AFTER)

    @staticmethod
    def _accepted_until(peer: Peer) -> float:
        """Return when an accepted connection without an answer is removed.

        The only connection of a peer that is up stays until the peer is lost: the process may be suspended.
        """
        is_only = peer.dialled is None or not peer.dialled.has_card
        if peer.accepted is None or (is_only and peer.state != KNOWN):
            return inf
        return peer.accepted.answered_at + SILENT_AFTER

    def _forget_at(self, peer: Peer) -> float:
        return peer.known_at + FORGET_AFTER * self._lost_after

    def next_deadline(self) -> float | None:
        """Return the time at which `tick` has something to do; None without deadlines."""
        first = min(self._deadlines(), default=inf)
        return None if first == inf else first

    def _deadlines(self) -> Iterator[float]:
        yield from self._refused.values()
        yield self._name_at()
        for connection in self._own.values():
            yield connection.answered_at + SILENT_AFTER
        for peer in self.by_id.values():
            if peer.state == UP:
                yield peer.answered_at + SILENT_AFTER
            elif peer.state == SILENT:
                yield peer.answered_at + self._lost_after
            yield self._accepted_until(peer)
            if not peer.connections:
                if peer.state == KNOWN:
                    yield self._forget_at(peer)
                if peer.dialled is None and self._free(peer):
                    yield self._dial_at(peer)
