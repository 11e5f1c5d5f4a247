"""Conditions of `wait_ready`, and the reasons that appear in the text of a `Timeout`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from oz.errors import KEYS_HINT, Timeout
from oz.node import roster
from oz.node.reach import is_local
from oz.publisher.session import Session
from oz.subscriber.link import Link
from oz.subscriber.queue import Inbox
from oz.transport.steps import Steps
from oz.transport.waiting import notify_all
from oz.wire import links

if TYPE_CHECKING:
    from oz.node.engine import Engine

PROBE = "_OZ.PROBE"
"""Subject of an empty direct message to a peer. The peer sends its earlier subscriptions before the acknowledgement."""
CHECK_INTERVAL = 0.1
"""Maximum seconds between two checks of the conditions. For example, an endpoint that never answers causes no event."""
_BOTH_WAYS = (
    "nodes connect in both directions: give the node that cannot be reached bind= with a port, and "
    "NodeOptions(advertise=) with an address, at which its peers reach it"
)
_NAMED = 3  # Maximum number of endpoints or peers that a text names.


class Readiness:
    """Checks of the conditions of `wait_ready` for one node."""

    def __init__(self, node: Engine) -> None:
        self._node = node

    def ready(
        self, names: Sequence[str], count: int | None, subject: Any, timeout: float | None
    ) -> Steps[None]:
        """Wait for peers and subscriptions; see `oz.Node.wait_ready`.

        Raises:
            Timeout: a condition is not met; the text names the condition.
            PermissionDenied: a peer denies a subscription or a message of this node.
            ProtocolError: a peer refuses a subscription for another reason.
            ClosedError, OwnershipError: the same reasons as in `check_usable`.
        """
        end = None if timeout is None else self._node.clock() + timeout
        probes: dict[bytes, tuple[Session, int]] = {}
        has_waited = False
        # Wake this call after events of the publisher too, because it receives acknowledgements and subscriptions.
        self._node.waiters[news := partial(notify_all, self._node.news)] = None
        try:
            while True:
                self._node.check_usable()
                self._raise_denials()
                missing = self._missing(names, count, subject, probes)
                if not missing:
                    return
                now = self._node.clock()
                if has_waited and end is not None and now >= end:
                    why = "; ".join(dict.fromkeys(missing + self._refusals()))
                    raise Timeout(f"not ready within {timeout:g} s: {why}")
                yield now + CHECK_INTERVAL if end is None else min(end, now + CHECK_INTERVAL)
                has_waited = True
        finally:
            self._node.waiters.pop(news, None)

    def _raise_denials(self) -> None:
        """Raise an error if a peer denies a subscription or a publication. For a publication, raise it only once."""
        with self._node.subscriber.lock:
            self._node.subscriber.raise_refusals()
        with self._node.lock:
            if self._node.denied:
                raise self._node.denied.pop(next(iter(self._node.denied)))

    def _missing(
        self, names: Sequence[str], count: int | None, subject: Any, probes: dict[bytes, tuple[Session, int]]
    ) -> list[str]:
        missing = []
        refusing = self._refusing()
        with self._node.lock:
            up, silent = self._node.cards(roster.UP), {card.name for card in self._node.cards(roster.SILENT)}
            missing += self._missing_seeds(refusing)
            is_greeting = self._node.roster.is_greeting(self._node.clock())
            unreached, undialled = self._one_way_peers(self._node.clock())
        absent = [name for name in names if all(name != card.name for card in up)]
        missing += [f"peer {name!r} does not answer" for name in absent if name in silent]
        absent = [name for name in absent if name not in silent]
        if absent:
            missing.append(
                f"no peer is named {', '.join(map(repr, absent))}; peers that are up: "
                f"{_listed(card.name for card in up)}{self._hint()}"
            )
        if count is not None and len(up) < count:
            missing.append(
                f"{len(up)} of {count} peers are up: {_listed(card.name for card in up)}{self._hint()}"
            )
        for card in up:
            why = self._unready(card.node, probes)
            if why is not None:
                missing.append(f"peer {card.name!r} {why}")
        # A silent peer does not count, because a request to it may reach its timeout before the peer answers.
        present = {self._node.id, *(card.node for card in up)}
        if subject is not None and present.isdisjoint(self._node.publisher.nodes_that_receive(subject)):
            missing.append(
                f"no node subscribes to {subject!r}; {self._node.publisher.describe_missing(subject)}"
            )
        if is_greeting:
            missing.append("endpoints that were just found have not answered yet")
        # Report connections in one direction only with another missing condition. Exception: no peer is up, and peers
        # cannot dial this node.
        one_way = [*unreached, *undialled][:_NAMED]
        if one_way and (missing or (undialled and not up)):
            missing += [*one_way, _BOTH_WAYS]
        return missing

    def _one_way_peers(self, now: float) -> tuple[list[str], list[str]]:
        """Return sentences about peers that this node cannot dial, and about peers that cannot dial this node.

        A pair of nodes needs a connection in each direction. The caller has the lock.
        """
        unreached, undialled = [], []
        own = (
            ", ".join(
                [endpoint for endpoint in self._node.endpoints if not is_local(endpoint)]
                or self._node.endpoints
            )
            or "any endpoint"
        )
        for peer in self._node.roster.by_id.values():
            if peer.card is None or peer.state != roster.KNOWN or now < peer.greeting_until:
                continue
            name, where = peer.card.name, ", ".join(peer.endpoints) or "any endpoint"
            if peer.sessions and not peer.is_linked:
                unreached.append(
                    f"peer {name!r} has connected to this node, which cannot connect to it at {where}"
                )
            elif peer.is_linked and not peer.sessions:
                undialled.append(
                    f"this node has connected to peer {name!r}, which cannot connect to it at {own}"
                )
        return unreached, undialled

    def describe_peers(self, has_cause: bool) -> str:
        """Return a text that names the peers that are up, and what to check if a peer is missing.

        Args:
            has_cause: whether the caller names a cause itself. Then the text names only the peers.
        """
        with self._node.lock:
            hint = "" if has_cause else self._hint()
            return f"peers that are up: {_listed(card.name for card in self._node.cards(roster.UP))}{hint}"

    def describe_silence(self, inbox: Inbox | None) -> str:
        """Return why a subscription may receive nothing. The text continues a sentence such as "no message in 1 s"."""
        found = []
        with self._node.subscriber.lock:
            for place in self._node.subscriber.places.values():
                refused = [entry for entry in inbox.entries if entry.sid in place.refusals] if inbox else []
                found += [
                    self._node.subscriber.refusal_text(place, entry.pattern.text, place.refusals[entry.sid])
                    for entry in refused
                ]
        with self._node.lock:
            up = self._node.cards(roster.UP)
            found += self._missing_seeds(self._refusing())
        found += self._refusals()
        if not up:
            found.append(f"no peer is up{self._hint()}")
        elif not found:
            names = _listed(card.name for card in up)
            found.append(f"the peers that are up have published nothing that matches: {names}")
        return f"; {'; '.join(dict.fromkeys(found))}"

    def _missing_seeds(self, refusing: Mapping[str, str]) -> list[str]:
        """Return texts about silent endpoints of `connect=`, and about name servers that have not introduced nodes.

        The caller has the lock.

        Args:
            refusing: dict from an endpoint that a key makes unusable to the reason.
        """
        seeds = sorted(self._node.roster.silent_seeds)
        missing = self._refusals() if not refusing.keys().isdisjoint(seeds) else []
        silent = ", ".join(seed for seed in seeds if seed not in refusing)
        if silent:
            missing.append(
                f"nothing answers at {silent}: start a node or a name server of bus {self._node.bus!r} there, or "
                "correct connect="
            )
        for peer in self._node.roster.by_id.values():
            card = peer.card
            is_up = card is not None and card.kind == links.NAMESERVER and peer.state == roster.UP
            if card is not None and is_up and peer.node not in self._node.introduced:
                missing.append(f"the name server {card.name!r} has not introduced the other nodes yet")
        return missing

    def _refusals(self) -> list[str]:
        """Return texts about connections that failed because of a key. Without keys, the text is only a hint."""
        if self._node.subscriber.keys is None:
            is_silent = self._node.configuration.connect and self._node.roster.silent_seeds
            return [KEYS_HINT] if is_silent else []
        by_reason: dict[str, list[str]] = {}
        for endpoint, reason in self._refusing().items():
            by_reason.setdefault(reason, []).append(self._node.subscriber.name_of(endpoint))
        found = []
        for reason, (name, *others) in by_reason.items():
            # One node may have several endpoints.
            also = f" (also {', '.join(others[:_NAMED])})" if others else ""
            found.append(f"{name}{also} {reason}")
        more = [f"{len(found) - _NAMED} more connections were refused"] if len(found) > _NAMED else []
        return found[:_NAMED] + more

    def _refusing(self) -> dict[str, str]:
        with self._node.subscriber.lock:
            return {
                place.endpoint: place.key_refusal
                for place in self._node.subscriber.places.values()
                if place.key_refusal
            }

    def _hint(self) -> str:
        if self._refusing():
            # The text already contains the result of `_refusals`.
            return ""
        separation = self._separation()
        return (
            f". Check that the missing peer runs, has bus={self._node.bus!r} and can be reached: this node uses "
            f"{self.describe_sources()}{separation and f'; {separation}'}"
        )

    def describe_sources(self) -> str:
        """Return a text that names the endpoints of `connect=`, or the directory in which this node finds peers."""
        seeds = self._node.configuration.connect
        return (
            f"connect={', '.join(seeds)}" if seeds else f"the directory {self._node.configuration.directory}"
        )

    def key_hints(self) -> list[str]:
        """Return hints about nodes that may be missing because only one side has keys. Refused keys are in the log."""
        with self._node.lock:
            hints = [self._separation()]
            if self._node.subscriber.keys is None:
                hints += self._refusals()
        return [hint for hint in hints if hint]

    def _separation(self) -> str:
        """Return a text if this host has nodes of this bus that do not find this node because of keys; else ""."""
        directory = self._node.directory
        count = 0 if directory is None else directory.count_separate()
        if not count:
            return ""
        has_keys = self._node.subscriber.keys is not None
        sockets = "a socket of a node" if count == 1 else f"sockets of {count} nodes"
        theirs, own = ("without keys", "keys") if has_keys else ("with keys", "no keys")
        which = "the other side" if has_keys else "this node"
        return (
            f"the directory has {sockets} {theirs} on this bus, and this node has {own}, so that they do not find "
            f"each other: give {which} security= (nodes and commands also read OZ_SECURITY)"
        )

    def _unready(self, node: bytes, probes: dict[bytes, tuple[Session, int]]) -> str | None:
        """Return why this node and a peer may not know each other's subscriptions yet; None if they do."""
        with self._node.subscriber.lock:
            if not any(link.is_answered for link in self._links_to(node)):
                return "has not answered the subscriptions of this node"
        with self._node.publisher.lock:
            session = self._node.publisher.session_of(node)
            if session is None:
                return "has no session here yet"
            probe = probes.get(node)
            if probe is None or probe[0] is not session:
                if not self._node.publisher.direct(node, PROBE, b""):
                    return "is too slow"
                self._node.publisher.flush()
                probe = probes[node] = session, session.following
            if session.acked < probe[1] or session.declarations or session.work:
                return "has not sent its subscriptions yet"
        return None

    def _links_to(self, node: bytes) -> list[Link]:
        found = [place.link for place in self._node.subscriber.places.values()]
        return [link for link in found if link is not None and link.origin == node]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
