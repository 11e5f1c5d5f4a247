"""The keys at the other ends of a node with keys: whose is called where, and what comes of it.

All of it is for the I/O side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import zmq

from oz.protocol.node.links import Links
from oz.transport.attachments import is_inside
from oz.transport.backend import backend_of
from oz.transport.endpoints import check
from oz.transport.handshakes import Outcome
from oz.transport.key_search import Found, KeySearch
from oz.transport.node.connector import FOR_EVER
from oz.transport.node.keys import NodeKeys
from oz.transport.node.local_directory import MeetingPlace, TrustedDirectory
from oz.transport.node.notices import Notices
from oz.transport.node.opening import NodeSockets
from oz.transport.node.subscriptions import NodeSubscriptions
from oz.transport.probing import Probed

_LOOK_EVERY = 0.25
"""Seconds between two looks at what has become of the calls."""

_FAILURES = 2
"""Handshakes that fail one after another before it is told: one may fail as its listener ends."""

_MOST_FAILED = 1_024
"""Endpoints that are remembered at which handshakes fail; then all are forgotten, and told of again."""


class KeyedCalls:
    """Connects one node to listeners whose keys it has found out, and notes who refuses it.

    Attributes:
        refusals: why there is no connection to what the user has named, in words, by endpoint.
        absent: of that, where nobody is.
    """

    __slots__ = (
        "_admitted",
        "_ended",
        "_failures",
        "_is_registered",
        "_keys",
        "_look_at",
        "_named",
        "_reported",
        "_search",
        "_served",
        "_silent",
        "_sockets",
        "_tell",
        "_unknown",
        "absent",
        "refusals",
    )  # fmt: skip

    def __init__(
        self,
        keys: NodeKeys,
        sockets: NodeSockets,
        is_registered: Callable[[str], bool],
        admitted: Callable[[str], object],
        ended: Callable[[str], object],
        tell: Callable[[str, str], object],
        wake: Callable[[], object],
    ) -> None:
        """Begin without any.

        Args:
            keys: of the node.
            sockets: of the node.
            is_registered: tells whether the name server at an endpoint has the node.
            admitted: is told where a peer has proved its key, and trusts this one.
            ended: is told where a connection has ended.
            tell: is told of what is refused: in words, and where.
            wake: has the I/O side call `look` soon; called by any thread.
        """
        self._keys = keys
        self._sockets = sockets
        self._is_registered = is_registered
        self._admitted, self._ended = admitted, ended
        self._tell = tell
        self._search = KeySearch(keys.credentials, wake)
        self._named: set[str] = set()
        self._unknown: set[str] = set()
        self._served: dict[str, int] = {}
        self._silent: set[str] = set()
        self._failures: dict[str, int] = {}
        self._reported: set[str] = set()
        self._look_at = 0.0
        self.refusals: dict[str, str] = {}
        self.absent: set[str] = set()

    def begin(self) -> None:
        """Find the keys of the name servers.

        Raises:
            EndpointError, TransportUnavailable: one cannot be connected to at all.
        """
        for endpoint in self._sockets.servers:
            if not is_inside(endpoint):
                check(endpoint, own_context=True)
                self._search.begin(endpoint, zmq.DEALER)

    def call(self, endpoint: str) -> None:
        """Connect to a peer that the user has named, as soon as it is known whose key it has.

        Raises:
            EndpointError, TransportUnavailable: it cannot be connected to at all.
        """
        check(endpoint, own_context=True)
        if backend_of(self._sockets.sub.socket).prove is not None:
            # Whose key is there shows by each connection.
            self._dial(endpoint, "")
            return
        self._named.add(endpoint)
        self._unknown.add(endpoint)
        self._search.begin(endpoint, zmq.SUB)

    @property
    def unsure(self) -> Collection[str]:
        """Those that the user has named and that are not called yet, as it is not known by which key."""
        return self._unknown

    def unknown(self) -> list[str]:
        """Say of which peers that the user has named it is not known yet whether they come."""
        return [
            f"{one} accepts connections and says nothing"
            if one in self._silent
            else f"whether anybody with a trusted key is at {one} is not known yet"
            for one in self._unknown
        ]

    def next_deadline(self) -> float:
        """Return when to call `look` at the latest, in monotonic seconds."""
        at = self._search.next_deadline()
        return self._look_at if at is None else min(at, self._look_at)

    def look(self, now: float) -> None:
        """See what has become of the calls, and make those whose time it is."""
        self._look_at = now + _LOOK_EVERY
        for outcome, endpoint, key in self._sockets.sub.connector.handshakes():
            self._take(outcome, endpoint, key, now)
        for endpoint in self._sockets.servers:
            if self._is_registered(endpoint):
                self._succeed(endpoint)
                self._served.pop(endpoint, None)
            elif not is_inside(endpoint) and not self._search.is_searching(endpoint):
                self._search.again(endpoint, now)
        for found in self._search.take(now):
            self._go_on(found, now)

    def _take(self, outcome: Outcome, endpoint: str, key: str, now: float) -> None:
        """Take in what has become of the call of a peer; others dial one again that was announced."""
        if outcome is Outcome.ADMITTED:
            self._succeed(endpoint)
            self._admitted(endpoint)
            return
        if outcome is Outcome.ENDED:
            self._ended(endpoint)
            return
        if len(self._failures) >= _MOST_FAILED:
            self._failures.clear()
            self._reported.clear()
        count = self._failures[endpoint] = self._failures.get(endpoint, 0) + 1
        if outcome is Outcome.REFUSED:
            why = self._keys.credentials.refused_by(endpoint, key)
        elif outcome.is_final or count >= _FAILURES:
            own = self._keys.credentials.public_key
            why = f"nobody at {endpoint} has the key {key}; this side has {own}"
        else:
            return
        self._fail(endpoint, why)
        if endpoint in self._named:
            self._sockets.sub.connector.hang_up(endpoint)
            self._search.again(endpoint, now)

    def _go_on(self, found: Found, now: float) -> None:
        """Connect to what the user has named, or look again later."""
        endpoint, key = found.endpoint, found.key
        self._silent.discard(endpoint)
        if found.outcome is Probed.SILENT:
            self._silent.add(endpoint)
        elif found.outcome is not Probed.ADMITTED:
            self._unknown.discard(endpoint)
        (self.absent.add if found.outcome is Probed.ABSENT else self.absent.discard)(endpoint)
        why = self._keys.credentials.why_not(found.outcome, endpoint, key)
        # Whoever has much to do may say something later.
        if why is not None and found.outcome is not Probed.SILENT:
            self._served.pop(endpoint, None)
            self._fail(endpoint, why)
        elif found.outcome is Probed.ADMITTED and key is not None:
            self.refusals.pop(endpoint, None)
            if endpoint in self._named and self._dial(endpoint, key):
                return
            # libzmq connects again by itself, unless its key was refused once.
            if endpoint in self._sockets.servers:
                times = self._served[endpoint] = self._served.get(endpoint, 0) + 1
                if times % 2:
                    self._sockets.call_server(endpoint, key)
        self._search.again(endpoint, now)

    def _dial(self, endpoint: str, key: str) -> bool:
        """Connect to a peer that the user has named; tell whether that could be begun."""
        try:
            self._sockets.sub.connector.dial(endpoint, stop=FOR_EVER, key=key)
        except (zmq.ZMQError, OSError) as error:
            self._fail(endpoint, f"cannot connect to {endpoint}: {error}")
            return False
        return True

    def _succeed(self, endpoint: str) -> None:
        self._search.settle(endpoint)
        self._unknown.discard(endpoint)
        self._failures.pop(endpoint, None)
        self._reported.discard(endpoint)
        self.refusals.pop(endpoint, None)

    def _fail(self, endpoint: str, why: str) -> None:
        if endpoint in self._named or endpoint in self._sockets.servers:
            self.refusals[endpoint] = why
        if endpoint not in self._reported:
            self._reported.add(endpoint)
            self._tell(why, endpoint)


class KeyChecks:
    """The checks of keys by one node; a node without keys checks none.

    Attributes:
        calls: the calls of listeners whose keys are found out; None for a node without keys.
    """

    def __init__(
        self,
        keys: NodeKeys | None,
        notices: Notices,
        note_due: Callable[[], None],
        is_open: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        """Begin with nothing found out.

        Args:
            keys: of the node.
            notices: is told of what is refused.
            note_due: has the I/O side call `look` soon; called by any thread.
            is_open: tells whether the node is on its bus.
            monotonic: the clock.
        """
        self._keys, self._notices = keys, notices
        self._note_due, self._is_open, self._monotonic = note_due, is_open, monotonic
        self.calls: KeyedCalls | None = None
        self._refused_count = 0
        if keys is not None:
            keys.credentials.tell(self._note_refused)

    def begin(self, sockets: NodeSockets, links: Links, subscriptions: NodeSubscriptions) -> None:
        """Begin the search for the keys of name servers, where the node has keys.

        Args:
            sockets: of the node.
            links: of the node.
            subscriptions: receive the denials of peers.
        """
        self._sockets, self._deny = sockets, subscriptions.deny
        discovery_clients = links.discovery_clients
        if self._keys is not None:
            self.calls = KeyedCalls(
                self._keys,
                sockets,
                lambda endpoint: discovery_clients[endpoint].is_registered(self._monotonic()),
                lambda endpoint: links.connections.note_admitted(endpoint, self._monotonic()),
                links.connections.note_ended,
                self._tell,
                self._note_due,
            )
            sockets.sub.tell_denials(self._note_due)
            self.calls.begin()

    def known_in(self, place: MeetingPlace) -> TrustedDirectory | None:
        """Return those in a directory whose keys the node trusts; None where it has no keys."""
        if self._keys is None:
            return None
        report = partial(self._notices.denied, about="directory")
        return TrustedDirectory(place, lambda: self.trusted, report)

    @property
    def trusted(self) -> Collection[str]:
        """The keys that the node trusts."""
        return () if self._keys is None else self._keys.credentials.trusted

    @property
    def refusals(self) -> Mapping[str, str]:
        """The reasons, in words and by endpoint, for which what the user has named is not connected."""
        return {} if self.calls is None else self.calls.refusals

    def is_absent(self, endpoint: str) -> bool:
        """Tell whether nobody was at an endpoint that the user has named."""
        return self.calls is not None and endpoint in self.calls.absent

    def next_deadline(self) -> float | None:
        """Return when to call `look` at the latest, in monotonic seconds; None for never."""
        return None if self.calls is None else self.calls.next_deadline()

    def look(self, now: float) -> None:
        """See what has become of the calls, and tell of what is refused."""
        if self.calls is not None:
            self.calls.look(now)
            self._tell_refused()

    def _tell(self, text: str, where: str) -> None:
        self._notices.denied(text, about=where)

    def _note_refused(self) -> None:
        """Record that a connection was refused for its key; any thread may say so."""
        if self._is_open():
            self._refused_count += 1
            self._note_due()

    def _tell_refused(self) -> None:
        """Tell of connections that were refused, and of what peers deny."""
        assert self._keys is not None
        count, self._refused_count = self._refused_count, 0
        if count:
            text = f"a connection is refused, {self._keys.credentials.last_refused}"
            self._notices.denied(text, about="connections", is_logged=True)
        if self._sockets.sub.has_denials:
            for subscription, denial in self._sockets.sub.take_denials():
                self._deny(subscription, denial)
