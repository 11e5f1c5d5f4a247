"""Roster of a node: known nodes, dialled endpoints, and the state of peers.

Theory of operation
-------------------
Each node dials each of its peers. Therefore a pair of nodes has two links. In this module, *link* means the link that
this node dials. *Session* means the session of the peer at this node, which belongs to the link that the peer dials. A
peer is up while its link and its session exist.

Endpoints come from four sources: `connect=` (*seeds*), the directory of the host, introductions from peers, and cards
in HELLO and WELCOME. A *card* (`oz.wire.links.Card`) has the id, the name and the endpoints of a node. An endpoint from
`connect=` or the directory belongs to an unknown node, and each of these endpoints is dialled separately. Introductions
and cards name a node with all its endpoints. These endpoints are dialled one after another, each for `DIAL_TURN`;
sockets of the same host come first. This node never has two links to one endpoint.

While an endpoint is dialled, its link reconnects and resumes without loss. Therefore this node keeps the link to a
silent peer. Only when the peer is lost does this node dial the other endpoints of the peer. A peer has at most one
link: if a second endpoint leads to the same peer, this node ends the second link (*hangs up*).

A lost peer remains in the roster for `FORGET_AFTER` × `lost_after`, and this node continues to dial the endpoints of
the peer. Otherwise two nodes might stay separate after a network partition, if no third node introduces them. A peer
that closes, or that is replaced by a new process, is removed at once. Seeds always stay in the roster.

When a new node sends its first HELLO, this node introduces its peers to the new node. The new node dials these peers.
Each peer dials the new node when the HELLO of the new node arrives. Two peers in the directory of this node are not
introduced to each other, because both read the directory. An introduction may be incomplete or stale. Therefore, once
every `NAME_INTERVAL`, this node picks a different peer, and introduces all other peers to it. So two halves of a bus
join when any two nodes from different halves have contact.

A peer whose process was killed is lost at once. There are three signs: the connection of the link has ended, its
endpoint refuses a new connection, and a PING shows that the session has no connection. While the session has a
connection, the process is alive.

Introductions and cards are untrusted input. `oz.node.reach` decides which endpoints may be dialled. This node dials
local endpoints only of peers on the same host, and introduces them only to peers on the same host.

Events of endpoints. "Refused" means: hung up, and not dialled for `FORGET_AFTER` × `lost_after`.

======================================= =====================================================================
event                                   result
======================================= =====================================================================
seed; socket in the directory           dialled
WELCOME with the card of a peer         the peer is linked; its other endpoints are hung up
as before, if the peer has a link       hung up
WELCOME with the card of another node   the previous peer at this endpoint is restarted, or loses the endpoint
WELCOME without card, with the id of    refused
this node, or from another bus; BYE
for one of the last two reasons
BYE (closed)                            the peer is closed. A seed stays dialled
any other BYE                           the link is down, and reconnects
no process listens at a socket of the   hung up
directory
======================================= =====================================================================

Events of peers, and their effect in each state. "–" means no effect.

============================ ============================ ======================== ==========================
event                        KNOWN                        UP                       SILENT
============================ ============================ ======================== ==========================
first session                dial, introduce the peers    –                        –
link and session             UP                           –                        UP, resumed
link or session down         –                            SILENT after 1 s         –
link or session down for     –                            –                        KNOWN, lost, end session
`lost_after`
link or session down, and    –                            forgotten, restarted     same
another peer has one of its
endpoints
link refused, session up     –                            PING                     same
link refused, session down   –                            KNOWN, lost, end session same
BYE (closed)                 forgotten                    forgotten, closed        same
another node at its endpoint loses the endpoint           forgotten, restarted     same
2 s without link             dial the next endpoint       –                        –
100 × `lost_after` (10 × if  forgotten                    –                        –
it never was up)
============================ ============================ ======================== ==========================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import Any, NamedTuple

from oz.node.reach import is_local, may_dial
from oz.wire import links
from oz.wire.links import MAX_ENDPOINTS, Card

DIAL_TURN = 2.0
"""Seconds for which one endpoint of a peer is dialled. Then the next endpoint of the peer is dialled."""
GREETING_TIME = 2.0
"""Seconds for which a new endpoint or peer counts as *greeting*. Until then, its subscriptions may still arrive."""
SILENT_AFTER = 1.0
"""Seconds without link or session after which a peer counts as silent. A quicker reconnect is not reported."""
NAME_INTERVAL = 2.0
"""Seconds between two introductions of all peers to one peer."""
FORGET_AFTER = 100
"""Multiple of `lost_after`. For this time, this node dials a lost peer, and does not dial a refused endpoint."""
GIVE_UP_AFTER = 10
"""Multiple of `lost_after`. For this time, this node dials a peer that was never up."""
MAX_INTRODUCED = 1_000
"""Maximum number of peers in one introduction, and maximum number of peers without a card in the roster."""

KNOWN, UP, SILENT = "known", "up", "silent"

_REASONS = {
    links.KEY_REFUSED: "the node refuses the key",
    links.OTHER_VERSION: "the node has another version of the protocol: install the same release of oz",
    links.LIMIT: "the node has too many sessions",
    links.MALFORMED: "the node refuses the frames of this node",
    links.OTHER_BUS: "the node is on another bus",
    links.OWN_ID: "the endpoint is one of this node",
}


class Dial(NamedTuple):
    """Effect: open a link to an endpoint.

    Attributes:
        endpoint: endpoint to which this node has no link.
    """

    endpoint: str


class HangUp(NamedTuple):
    """Effect: end the link to an endpoint. The engine then reports no further event of this link.

    Attributes:
        endpoint: endpoint of an earlier `Dial`.
    """

    endpoint: str


class EndSession(NamedTuple):
    """Effect: end all sessions of a node.

    Attributes:
        node: id of the peer.
    """

    node: bytes


class Ping(NamedTuple):
    """Effect: send a PING to a node. The PING detects whether the connection of the session has ended.

    Attributes:
        node: id of the peer.
    """

    node: bytes


class Introduce(NamedTuple):
    """Effect: send ids and endpoints of peers to a peer.

    Attributes:
        node: id of the recipient.
        peers: id and endpoints of each introduced peer, for at most `MAX_INTRODUCED` peers.
    """

    node: bytes
    peers: list[tuple[bytes, tuple[str, ...]]]


class PeerUp(NamedTuple):
    """Event: link and session of a peer exist. The next event of this kind for the same node follows a `PeerGone`.

    Attributes:
        card: card of the peer.
    """

    card: Card


class PeerSilent(NamedTuple):
    """Event: a peer that is up has no link or no session.

    Attributes:
        card: card of the peer.
    """

    card: Card


class PeerResumed(NamedTuple):
    """Event: a silent peer has link and session again.

    Attributes:
        card: card of the peer.
    """

    card: Card


class PeerGone(NamedTuple):
    """Event: a peer that was up is lost, has closed or was restarted. The effect `EndSession` precedes this event.

    Attributes:
        card: card of the peer.
        reason: "lost", "closed" or "restarted".
    """

    card: Card
    reason: str


class ForwarderGone(NamedTuple):
    """Event: a forwarder that had a link, but was never up, has closed. It may have sent messages over the link.

    Attributes:
        card: card of the forwarder.
    """

    card: Card


class NameConflict(NamedTuple):
    """Event: a peer came up, and another peer or this node has the same name.

    Attributes:
        card: card of the peer that came up.
        other: id of the other node with this name.
    """

    card: Card
    other: bytes


class Refused(NamedTuple):
    """Event: the process at an endpoint, or the sender of a HELLO, cannot be a peer.

    Attributes:
        endpoint: endpoint that was dialled; None for the sender of a HELLO.
        reason: sentence that explains the event.
    """

    endpoint: str | None
    reason: str


Effect = Dial | HangUp | EndSession | Ping | Introduce
Event = PeerUp | PeerSilent | PeerResumed | PeerGone | ForwarderGone | NameConflict | Refused


class Endpoint:
    """Endpoint that is dialled, that is refused, or that `connect=` or the directory names.

    Attributes:
        text: text of the endpoint.
        until: time until which this node dials a socket of the directory; infinity for a seed, minus infinity for an
            endpoint that neither `connect=` nor the directory names.
        owner: peer for which the endpoint is dialled; None for a seed or a socket of the directory.
        node: id of the last node that answered at the endpoint.
        is_dialled: whether this node has a link to the endpoint.
        is_reported: whether the refusal in a BYE from the endpoint was reported. A further BYE is not reported.
        refused_until: time until which the endpoint is not dialled.
        greeting_until: time until which the endpoint counts as greeting; see `GREETING_TIME`.
    """

    __slots__ = (
        "greeting_until", "is_dialled", "is_reported", "node", "owner", "refused_until", "text", "until"
    )  # fmt: skip

    def __init__(self, text: str) -> None:
        self.text = text
        self.until = self.refused_until = self.greeting_until = -inf
        self.owner: Peer | None = None
        self.node: bytes | None = None
        self.is_dialled = self.is_reported = False

    @property
    def is_source(self) -> bool:
        """Whether `connect=` or the directory names the endpoint."""
        return self.until > -inf


class Peer:
    """Another node.

    Attributes:
        node: id of the node.
        state: KNOWN, UP or SILENT.
        card: last card; None for a peer that is known only from introductions.
        endpoints: endpoints that this node may dial, in the order in which it dials them.
        link: endpoint of the last link; None before the first link.
        is_linked: whether the link is LIVE.
        is_refused: whether the connection of the link has ended and the endpoint of the link refuses a new connection.
        sessions: ids of the peer's sessions that are UP.
        dialled: endpoint that is dialled for the peer, or over which the peer is linked; None for a seed or a socket of
            the directory.
        dial_at: time at which the next endpoint is dialled, if there is no link.
        turn: index of the endpoint that is dialled next.
        was_up: whether the peer has ever been up.
        down_since: time since which a peer that is UP or SILENT has no link or no session; None if the peer has both.
        known_at: for a KNOWN peer, time of its last introduction or contact. The time until it is forgotten begins
            then.
        greeting_until: time until which the peer counts as greeting; see `GREETING_TIME`.
    """

    __slots__ = (
        "card", "dial_at", "dialled", "down_since", "endpoints", "greeting_until", "is_linked", "is_refused",
        "known_at", "link", "node", "sessions", "state", "turn", "was_up",
    )  # fmt: skip

    def __init__(self, node: bytes, now: float) -> None:
        self.node, self.state = node, KNOWN
        self.card: Card | None = None
        self.endpoints: tuple[str, ...] = ()
        self.link: str | None = None
        self.is_linked = self.is_refused = self.was_up = False
        self.sessions: set[bytes] = set()
        self.dialled: Endpoint | None = None
        self.dial_at = self.known_at = now
        self.turn = 0
        self.down_since: float | None = None
        self.greeting_until = now + GREETING_TIME


class Roster:
    """Roster of a node.

    Methods that handle an event return effects and events in order. The engine executes the effects before the next
    call. After a `HangUp`, the engine reports no event of this link.

    Attributes:
        card: card of this node.
        by_id: dict from the id of a peer to the peer.
        silent_seeds: endpoints of `connect=` while none of them has answered; empty after the first answer.
    """

    def __init__(
        self, card: Card, *, lost_after: float = 5.0, limit: int = 65_536, local_prefix: str | None = None
    ) -> None:
        """Start without peers.

        Args:
            card: card of this node.
            lost_after: seconds without link or session after which a peer is lost.
            limit: maximum number of peers in the roster, and maximum number of endpoints.
            local_prefix: common start of the `ipc://` endpoints in the directory of this node; None without a
                directory.
        """
        self.card, self._limit, self._local_prefix = card, limit, local_prefix
        self._lost_after = lost_after
        self._forget_after = FORGET_AFTER * lost_after
        self.by_id: dict[bytes, Peer] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._greeting_until = -inf
        self._named_at, self._named = 0.0, b""
        self.silent_seeds: set[str] = set()
        self._deadline: float | None = None
        self._out: list[Effect | Event] = []

    def move(self, card: Card, local_prefix: str) -> None:
        """Replace the card of this node after the node has bound a new socket in the directory."""
        self.card, self._local_prefix = card, local_prefix

    def _take(self) -> list[Effect | Event]:
        self._deadline = None
        out, self._out = self._out, []
        return out

    def is_greeting(self, now: float) -> bool:
        """Return whether any endpoint or peer counts as greeting; see `GREETING_TIME`."""
        if now >= self._greeting_until:
            return False
        return any(peer.state == KNOWN and now < peer.greeting_until for peer in self.by_id.values()) or any(
            endpoint.node is None and now < endpoint.greeting_until for endpoint in self._endpoints.values()
        )

    @property
    def has_peers(self) -> bool:
        """Whether a peer is up or silent."""
        # A loop is faster than a generator, and the thread of the node runs this twice in each turn.
        for peer in self.by_id.values():  # noqa: SIM110
            if peer.state != KNOWN:
                return True
        return False

    def is_linked(self, endpoint: str) -> bool:
        """Return whether this node has a LIVE link to a peer at an endpoint."""
        return self._linked_at(endpoint) is not None

    def _greet(self, target: Endpoint | Peer, now: float) -> None:
        self._greeting_until = target.greeting_until = now + GREETING_TIME

    # Sources of endpoints.

    def seed(self, endpoint: str, now: float) -> list[Effect | Event]:
        """Dial an endpoint of `connect=`. It stays dialled unless the node at this endpoint has another link."""
        if endpoint not in self.card.endpoints:
            self.silent_seeds.add(endpoint)
        return self._add_source(endpoint, inf, now)

    def found(self, endpoint: str, now: float) -> list[Effect | Event]:
        """Dial a socket of the directory. The engine calls this method for each socket when it reads the directory."""
        return self._add_source(endpoint, now + self._forget_after, now)

    def _add_source(self, text: str, until: float, now: float) -> list[Effect | Event]:
        endpoint = self._endpoint(text)
        if endpoint is not None:
            if not endpoint.is_source:
                self._greet(endpoint, now)
            endpoint.until = max(endpoint.until, until)
            if endpoint.owner is not None:
                # The endpoint was dialled for a peer. Now it stays dialled without the peer.
                endpoint.owner.dialled = None
                endpoint.owner = None
            self._dial_source(endpoint, now)
        return self._take()

    def gone(self, endpoint: str, now: float) -> list[Effect | Event]:
        """Stop dialling a socket of the directory, because the process of this socket has ended."""
        source = self._endpoints.get(endpoint)
        if source is not None and -inf < source.until < inf and not self.is_linked(endpoint):
            self._drop_source(source, now)
        return self._take()

    def introduced(self, peers: Iterable[tuple[bytes, Sequence[Any]]], now: float) -> list[Effect | Event]:
        """Add the nodes of an introduction.

        Args:
            peers: id and endpoints of each node. Only the first `MAX_INTRODUCED` nodes are added. Endpoints that are
                not text are ignored.
            now: time in seconds.
        """
        space = MAX_INTRODUCED - sum(1 for peer in self.by_id.values() if peer.card is None)
        for node, endpoints in islice(peers, MAX_INTRODUCED):
            peer = self.by_id.get(node)
            if peer is not None and peer.state != KNOWN:
                continue
            if peer is None or peer.card is None:
                usable = self._usable((*(() if peer is None else peer.endpoints), *endpoints))
                if peer is None and usable and space > 0:
                    peer = self._find(node, now)
                    space -= 1
                if peer is not None:
                    self._set_endpoints(peer, usable, now)
            if peer is not None:
                peer.known_at = now
                self._dial(peer, now)
        return self._take()

    def _endpoint(self, text: str) -> Endpoint | None:
        """Return an endpoint, and create it if necessary. Return None for an endpoint of this node, or at the limit."""
        endpoint = self._endpoints.get(text)
        if endpoint is None and text not in self.card.endpoints and len(self._endpoints) < self._limit:
            endpoint = self._endpoints[text] = Endpoint(text)
        return endpoint

    def _find(self, node: bytes, now: float) -> Peer | None:
        """Return a peer, and create it if necessary. Return None for the id of this node, or if the roster is full."""
        peer = self.by_id.get(node)
        if peer is None and node != self.card.node and len(self.by_id) < self._limit:
            peer = self.by_id[node] = Peer(node, now)
            self._greet(peer, now)
        return peer

    def _usable(self, endpoints: Iterable[Any], *, is_same_host: bool = True) -> tuple[str, ...]:
        """Return the endpoints that this node may dial, sockets of the directory first."""
        texts = islice(endpoints, 2 * MAX_ENDPOINTS)
        found = [
            endpoint
            for endpoint in dict.fromkeys(endpoint for endpoint in texts if type(endpoint) is str)
            if endpoint not in self.card.endpoints
            and may_dial(endpoint, self._local_prefix)
            and (is_same_host or not is_local(endpoint))
        ]
        found.sort(key=lambda item: (item.startswith("tcp://"), not is_local(item)))
        return tuple(found[:MAX_ENDPOINTS])

    def _set_endpoints(self, peer: Peer, endpoints: tuple[str, ...], now: float) -> None:
        if endpoints != peer.endpoints:
            peer.endpoints, peer.turn = endpoints, 0
            # One of the endpoints may be dialled already and may lead to the peer. Wait for its answer.
            is_dialled = any(endpoint in self._endpoints for endpoint in endpoints)
            peer.dial_at = now + DIAL_TURN if is_dialled else now

    # Sessions of peers at this node.

    def on_hello(self, card: Card, now: float, session: bytes = b"") -> list[Effect | Event]:
        """Record that a session of a peer is up, and dial the peer. A session of this node itself has no effect.

        Args:
            card: card in the HELLO.
            now: time in seconds.
            session: id of the session. A peer has two sessions while it dials two endpoints of this node.
        """
        if card.node == self.card.node:
            return []
        reason = self._refusal(card)
        peer = None if reason is not None else self._find(card.node, now)
        if peer is None:
            self._out.append(Refused(None, reason or self._is_full()))
        else:
            is_new = not peer.sessions and peer.state == KNOWN
            peer.sessions.add(session)
            peer.is_refused = False
            self._contact(peer, card, now)
            if is_new:
                # Do not wait for the link, because several endpoints may be dialled before the link exists.
                self._introduce(peer)
                if not peer.endpoints and not peer.is_linked:
                    self._out.append(Refused(None, f"{card.name!r} has no endpoint that this node may dial"))
            self._dial(peer, now)
            self._settle(peer, now)
        return self._take()

    def on_session(self, node: bytes, what: str, now: float, session: bytes = b"") -> list[Effect | Event]:
        """Record that a session of a peer is down or has ended.

        Args:
            node: id of the peer.
            what: "down" or "ended".
            now: time in seconds.
            session: id of the session.
        """
        peer = self.by_id.get(node)
        if peer is not None:
            peer.sessions.discard(session)
            if not peer.sessions:
                self._down(peer, now)
                self._end_refused(peer, now)
        return self._take()

    # Links of this node.

    def on_live(self, endpoint: str, card: Card | None, now: float) -> list[Effect | Event]:
        """Record that a link has received a WELCOME.

        Args:
            endpoint: endpoint that the link dials.
            card: card in the WELCOME; None if it has none.
            now: time in seconds.
        """
        target = self._endpoints.get(endpoint)
        if endpoint in self.silent_seeds:
            self.silent_seeds.clear()
        if target is not None and target.is_dialled:
            reason = "a publisher listens there, and no node" if card is None else self._refusal(card)
            peer = self._find(card.node, now) if card is not None and reason is None else None
            before = target.owner or self.by_id.get(target.node or b"")
            if before is not None and before is not peer:
                self._leave(before, target, now)
            if card is None or peer is None:
                self._refuse(target, reason or self._is_full(), now)
            else:
                self._link(peer, target, card, now)
        return self._take()

    def on_silent(self, endpoint: str, now: float) -> list[Effect | Event]:
        """Record that a link is no longer LIVE. libzmq reconnects the link."""
        peer = self._linked_at(endpoint)
        if peer is not None:
            self._unlink(peer, now)
        return self._take()

    def on_refused(self, endpoint: str, now: float) -> list[Effect | Event]:
        """Record that the connection of a link has ended and no process listens at the endpoint of the link.

        If the peer's connection to this node has ended too, the process of the peer has ended, and the peer is lost.
        """
        target = self._endpoints.get(endpoint)
        peer = None if target is None else self.by_id.get(target.node or b"")
        if peer is not None and peer.link == endpoint and peer.state != KNOWN:
            if peer.is_linked:
                self._unlink(peer, now)
            peer.is_refused = True
            self._end_refused(peer, now)
        return self._take()

    def _end_refused(self, peer: Peer, now: float) -> None:
        if peer.is_refused and not peer.sessions:
            self._gone(peer, "lost", now)
        elif peer.is_refused:
            self._out.append(Ping(peer.node))

    def on_end(self, endpoint: str, reason: int | None, now: float) -> list[Effect | Event]:
        """Record that a link has received a BYE.

        Args:
            endpoint: endpoint that the link dials.
            reason: reason in the BYE.
            now: time in seconds.
        """
        target = self._endpoints.get(endpoint)
        if reason == links.OWN_ID:
            self.silent_seeds.clear()
        if target is not None and target.is_dialled:
            peer = self.by_id.get(target.node or b"")
            if reason == links.CLOSED:
                if peer is not None:
                    self._gone(peer, "closed", now)
                return self._take()
            if self._linked_at(endpoint) is not None and peer is not None:
                self._unlink(peer, now)
            if reason in (links.OTHER_BUS, links.OWN_ID):
                self._refuse(target, _REASONS[reason], now)
            elif reason in _REASONS and not target.is_reported:
                target.is_reported = True
                self._out.append(Refused(endpoint, _REASONS[reason]))
        return self._take()

    def _linked_at(self, endpoint: str) -> Peer | None:
        target = self._endpoints.get(endpoint)
        peer = None if target is None else self.by_id.get(target.node or b"")
        return peer if peer is not None and peer.is_linked and peer.link == endpoint else None

    def _refusal(self, card: Card) -> str | None:
        if card.node == self.card.node:
            return _REASONS[links.OWN_ID]
        if not card.shares_bus(self.card):
            return f"the peer {card.name!r} is on bus {card.bus!r}, this node is on bus {self.card.bus!r}"
        return None

    def _is_full(self) -> str:
        return f"the roster has {self._limit} peers"

    def _leave(self, peer: Peer, endpoint: Endpoint, now: float) -> None:
        """Remove from a peer an endpoint at which another node answers."""
        endpoint.node = None
        if endpoint.owner is peer:
            endpoint.owner = peer.dialled = None
        if peer.link == endpoint.text:
            peer.link, peer.is_linked = None, False
            if peer.state != KNOWN:
                self._gone(peer, "restarted", now)
                return
        peer.endpoints = tuple(item for item in peer.endpoints if item != endpoint.text)
        peer.dial_at = now
        self._dial(peer, now)

    def _refuse(self, endpoint: Endpoint, reason: str, now: float) -> None:
        owner = endpoint.owner
        endpoint.refused_until, endpoint.greeting_until = now + self._forget_after, now
        if endpoint.is_dialled:
            self._hang_up(endpoint)
        self._out.append(Refused(endpoint.text, reason))
        if owner is not None:
            owner.dial_at = now
            self._dial(owner, now)

    def _link(self, peer: Peer, endpoint: Endpoint, card: Card, now: float) -> None:
        """Record the link of a peer, and hang up its other endpoints. If the peer has a link, hang up the new link."""
        endpoint.node, endpoint.is_reported = peer.node, False
        if peer.is_linked and peer.link != endpoint.text:
            self._hang_up(endpoint)
            return
        peer.link, peer.is_linked, peer.is_refused = endpoint.text, True, False
        for other in list(self._endpoints.values()):
            if (
                other.is_dialled
                and other is not endpoint
                and (other.owner is peer or other.node == peer.node)
            ):
                self._hang_up(other)
        if not endpoint.is_source:
            endpoint.owner, peer.dialled = peer, endpoint
        self._contact(peer, card, now)
        self._settle(peer, now)

    def _unlink(self, peer: Peer, now: float) -> None:
        peer.is_linked, peer.dial_at = False, now + DIAL_TURN
        self._down(peer, now)

    def _contact(self, peer: Peer, card: Card, now: float) -> None:
        """Store the card and the endpoints of a peer. A peer that the process has replaced counts as restarted."""
        if card != peer.card:
            if peer.card is None:
                self._greet(peer, now)
            peer.card = card
            for other in list(self.by_id.values()):
                if other.down_since is not None and _share(other, peer):
                    self._gone(other, "restarted", now)
            # An endpoint of a replaced process can be dialled at once, because its link was hung up above.
            usable = self._usable(card.endpoints, is_same_host=card.host == self.card.host)
            self._set_endpoints(peer, usable, now)

    # Dialling.

    def _call(self, endpoint: Endpoint, owner: Peer | None) -> None:
        endpoint.is_dialled, endpoint.is_reported, endpoint.owner = True, False, owner
        if owner is not None:
            owner.dialled = endpoint
        self._out.append(Dial(endpoint.text))

    def _hang_up(self, endpoint: Endpoint) -> None:
        endpoint.is_dialled = False
        if endpoint.owner is not None:
            endpoint.owner.dialled = None
            endpoint.owner = None
        self._out.append(HangUp(endpoint.text))
        self._drop_unused(endpoint)

    def _drop_unused(self, endpoint: Endpoint) -> None:
        if not endpoint.is_dialled and not endpoint.is_source and endpoint.refused_until == -inf:
            del self._endpoints[endpoint.text]

    def _is_served(self, peer: Peer) -> bool:
        """Return whether a peer has a LIVE link, or a link that may resume."""
        endpoint = self._endpoints.get(peer.link or "")
        return peer.is_linked or (peer.state != KNOWN and endpoint is not None and endpoint.is_dialled)

    def _dial(self, peer: Peer, now: float) -> None:
        """Dial the next endpoint of a peer, if the peer needs a link and its `dial_at` has passed."""
        if now < peer.dial_at or self._is_served(peer):
            return
        endpoint = self._next_endpoint(peer)
        if endpoint is not None:
            if peer.dialled is not None:
                self._hang_up(peer.dialled)
            self._call(endpoint, peer)
        # If there is no other endpoint, the current endpoint stays dialled.
        is_last = endpoint is None and (peer.dialled is not None or not peer.endpoints)
        peer.dial_at = inf if is_last else now + DIAL_TURN

    def _next_endpoint(self, peer: Peer) -> Endpoint | None:
        for step in range(len(peer.endpoints)):
            index = (peer.turn + step) % len(peer.endpoints)
            if peer.endpoints[index] not in self._endpoints:
                peer.turn = index + 1
                return self._endpoint(peer.endpoints[index])
        return None

    def _dial_source(self, endpoint: Endpoint, now: float) -> None:
        peer = self.by_id.get(endpoint.node or b"")
        if not endpoint.is_dialled and now >= endpoint.refused_until and not (peer and self._is_served(peer)):
            self._call(endpoint, None)

    # Presence of peers.

    def _settle(self, peer: Peer, now: float) -> None:
        """Report that a peer is up or has resumed, if it has both link and session."""
        card = peer.card
        if not peer.is_linked or not peer.sessions or card is None:
            return
        peer.down_since = None
        if peer.state == KNOWN:
            peer.state, peer.was_up = UP, True
            self._out.append(PeerUp(card))
            up = [item.card for item in self.by_id.values() if item.state == UP and item.down_since is None]
            for other in (self.card, *up):
                is_named = other is not None and other is not card and other.name == card.name
                if other is not None and is_named and other.shares_bus(card):
                    self._out.append(NameConflict(card, other.node))
        elif peer.state == SILENT:
            peer.state = UP
            self._out.append(PeerResumed(card))

    def _present(self) -> list[Peer]:
        """Return the peers that have sent a HELLO and are not silent. Only these peers are introduced."""
        return [peer for peer in self.by_id.values() if peer.sessions and peer.down_since is None]

    def _introduce(self, peer: Peer) -> None:
        """Introduce all other present peers to a peer, except peers that it cannot reach or that it finds itself."""
        named = []
        known = peer.card
        reads_directory = known is not None and self._reads_directory(known)
        for item in self._present():
            card = item.card
            if item is peer or card is None or known is None or not card.shares_bus(known):
                continue
            endpoints = card.endpoints
            if card.host != known.host:
                endpoints = tuple(text for text in endpoints if not is_local(text))
            elif reads_directory and self._reads_directory(card):
                continue
            if endpoints:
                named.append((item.node, endpoints))
        # A name server sends even an empty introduction, because `wait_ready` of the peer waits for an introduction.
        for first in range(0, len(named) or int(self.card.kind == links.NAMESERVER), MAX_INTRODUCED):
            self._out.append(Introduce(peer.node, named[first : first + MAX_INTRODUCED]))

    def _reads_directory(self, card: Card) -> bool:
        """Return whether a node has a socket in the directory of this node. Such a node finds its peers itself."""
        # Without this check, a bus of 200 nodes on one host sends 8,000,000 useless introductions.
        prefix = self._local_prefix
        return (
            prefix is not None
            and card.host == self.card.host
            and any(endpoint.startswith(prefix) for endpoint in card.endpoints)
        )

    def _down(self, peer: Peer, now: float) -> None:
        if peer.state == KNOWN:
            peer.known_at = now
        elif peer.down_since is None:
            peer.down_since = now
            if any((item.is_linked or item.sessions) and _share(item, peer) for item in self.by_id.values()):
                self._gone(peer, "restarted", now)

    def _gone(self, peer: Peer, reason: str, now: float) -> None:
        """End the sessions of a peer, and remove it from the roster. A lost peer stays in the roster."""
        if peer.state != KNOWN or peer.sessions:
            self._out.append(EndSession(peer.node))
        if peer.state != KNOWN and peer.card is not None:
            self._out.append(PeerGone(peer.card, reason))
        elif peer.is_linked and peer.card is not None and peer.card.kind == links.FORWARDER:
            self._out.append(ForwarderGone(peer.card))
        peer.state, peer.down_since, peer.greeting_until, peer.is_refused = KNOWN, None, now, False
        peer.sessions.clear()
        if reason == "lost":
            peer.known_at = peer.dial_at = now
            self._dial(peer, now)
            return
        del self.by_id[peer.node]
        if peer.dialled is not None:
            self._hang_up(peer.dialled)
        for endpoint in list(self._endpoints.values()):
            if endpoint.node == peer.node:
                if endpoint.until == inf:
                    self._dial_source(endpoint, now)
                else:
                    self._drop_source(endpoint, now)

    def _drop_source(self, endpoint: Endpoint, now: float) -> None:
        endpoint.until = -inf
        if endpoint.is_dialled and endpoint.owner is None:
            self._hang_up(endpoint)
        else:
            self._drop_unused(endpoint)

    # Deadlines.

    def tick(self, now: float) -> list[Effect | Event]:
        """Handle deadlines that have passed."""
        for peer in list(self.by_id.values()):
            if peer.down_since is not None and peer.card is not None:
                if now >= peer.down_since + self._lost_after:
                    self._gone(peer, "lost", now)
                elif peer.state == UP and now >= peer.down_since + SILENT_AFTER:
                    peer.state = SILENT
                    self._out.append(PeerSilent(peer.card))
            elif now >= self._forget_at(peer):
                self._gone(peer, "forgotten", now)
        for endpoint in list(self._endpoints.values()):
            if -inf < endpoint.refused_until <= now:
                endpoint.refused_until = -inf
                self._drop_unused(endpoint)
            if -inf < endpoint.until <= now:
                if self.is_linked(endpoint.text):
                    endpoint.until = now + self._forget_after
                else:
                    self._drop_source(endpoint, now)
        if now >= self._name_at():
            self._name_peers(now)
        for peer in self.by_id.values():
            self._dial(peer, now)
        for endpoint in self._endpoints.values():
            if endpoint.is_source:
                self._dial_source(endpoint, now)
        return self._take()

    def _name_at(self) -> float:
        """Return the time at which all peers are introduced to one peer; infinity with fewer than two peers."""
        return self._named_at + NAME_INTERVAL if len(self._present()) > 1 else inf

    def _name_peers(self, now: float) -> None:
        nodes = [peer.node for peer in self._present()]
        self._named = min((node for node in nodes if node > self._named), default=min(nodes))
        self._named_at = now
        self._introduce(self.by_id[self._named])

    def _forget_at(self, peer: Peer) -> float:
        if peer.state != KNOWN or peer.is_linked or peer.sessions:
            return inf
        return peer.known_at + (FORGET_AFTER if peer.was_up else GIVE_UP_AFTER) * self._lost_after

    def next_deadline(self) -> float | None:
        """Return the time at which `tick` must run next; None without deadlines."""
        if self._deadline is None:
            self._deadline = min(self._deadlines(), default=inf)
        return None if self._deadline == inf else self._deadline

    def _deadlines(self) -> Iterator[float]:
        yield self._name_at()
        for endpoint in self._endpoints.values():
            if endpoint.until > -inf:
                yield endpoint.until
            if endpoint.refused_until > -inf:
                yield endpoint.refused_until
        for peer in self.by_id.values():
            if peer.state == UP and peer.down_since is None:
                # Skip the usual case early, because this method runs 40,000 times while the nodes of a bus of 200 join.
                continue
            if peer.down_since is not None:
                until_silent = SILENT_AFTER if peer.state == UP else inf
                yield peer.down_since + min(until_silent, self._lost_after)
            if not self._is_served(peer):
                yield peer.dial_at
            yield self._forget_at(peer)


def _share(peer: Peer, other: Peer) -> bool:
    """Return whether two peers have a common endpoint on one host. Then the process of one has replaced the other."""
    if peer is other or peer.card is None or other.card is None or peer.card.host != other.card.host:
        return False
    return not set(peer.card.endpoints).isdisjoint(other.card.endpoints)
