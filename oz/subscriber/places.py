"""Endpoints of a subscriber, each with its connections, its state and its readiness."""

from __future__ import annotations

from typing import NamedTuple

from oz.errors import KEYS_HINT
from oz.subscriber.fallback import LINK, Fallback
from oz.subscriber.link import LIVE, NEW, Link
from oz.subscriber.multicast import MulticastSource
from oz.subscriber.plain import PlainSocket
from oz.wire import links

_ENDINGS: dict[int | None, str] = {
    links.KEY_REFUSED: "it refuses the key of this side; put its certificate into the directory that it trusts",
    links.OTHER_VERSION: "it has another version of the protocol; use one version of oz on both sides",
    links.LIMIT: "it has as many links as it allows, in all or of this key; close other subscribers, or raise "
    "Limits(peers=) there",
    links.OTHER_BUS: "it belongs to another bus; use one name of the bus on both sides, or another endpoint",
    links.OWN_ID: "it is this node itself; remove the endpoint",
}
"""Texts for the reasons of a BYE that the user can remedy. Each text contains the remedy."""


class PublisherInfo(NamedTuple):
    """State of one endpoint.

    Attributes:
        endpoint: endpoint that the subscriber has connected or bound.
        mode: kind of the current connection: "link", "prefix" or "multicast"; "connecting" without a connection.
        origin: id of the publisher's process, 16 bytes; None if it is unknown.
        last_heard: seconds since the last frame arrived; None before the first frame.
        refusal: reason why a subscription was refused last, or None.
    """

    endpoint: str
    mode: str
    origin: bytes | None
    last_heard: float | None
    refusal: str | None


class Place:
    """State of one endpoint of a subscriber.

    Attributes:
        endpoint: endpoint of the publisher, or the endpoint that the subscriber binds.
        link_endpoint: endpoint to which the link connects, or None.
        link: link to the publisher, or None.
        handle: handle of the link's current connection; empty without a connection.
        fallback: with `filtering="auto"`, the choice between link and plain connection; otherwise None.
        plain: plain connection, or None.
        multicast: reader of a multicast endpoint; otherwise None.
        gaps: dict from stream numbers to the number of messages that were lost since the last message. The key None
            counts losses of the whole link.
        refusals: dict from the number of each refused subscription to its refusal.
        raised: numbers of the refused subscriptions for which the program has already received an error.
        refusal: reason of the last refusal, or None.
        begin: after a move from a plain connection to the link, the epoch and position of the first message that the
            link delivers. None without a move.
        key_refusal: text that explains why a key was refused; None if a connection is open. The text continues a
            sentence that begins with the name of the publisher.
        heard_at: time in seconds at which the last frame or message arrived; None before the first one.
        is_given_up: whether the connections have ended because a key was refused. `Keys` may connect again.
        is_connected: whether the link has a connection, with or without WELCOME. Only nodes set this attribute.
        is_bound: whether the subscriber binds the endpoint.
        is_twin: whether another link of the subscriber reaches the same publisher.
        drained: whether the plain or multicast socket was empty at some time since `drain` began.
        reported: state of the link at the last call of `Connections.on_link`.
        reported_epoch: epoch of the link at the last call of `Connections.on_link`.
    """

    __slots__ = (
        "begin",
        "drained",
        "endpoint",
        "fallback",
        "gaps",
        "handle",
        "heard_at",
        "is_bound",
        "is_connected",
        "is_given_up",
        "is_twin",
        "key_refusal",
        "link",
        "link_endpoint",
        "multicast",
        "plain",
        "raised",
        "refusal",
        "refusals",
        "reported",
        "reported_epoch",
    )

    def __init__(self, endpoint: str, link_endpoint: str | None) -> None:
        self.endpoint, self.link_endpoint = endpoint, link_endpoint
        self.link: Link | None = None
        self.handle = b""
        self.fallback: Fallback | None = None
        self.plain: PlainSocket | None = None
        self.multicast: MulticastSource | None = None
        self.gaps: dict[int | None, int] = {}
        self.refusals: dict[int, links.Refusal] = {}
        self.raised: set[int] = set()
        self.refusal: str | None = None
        self.begin: tuple[bytes, int] | None = None
        self.key_refusal: str | None = None
        self.heard_at: float | None = None
        self.reported, self.reported_epoch = NEW, links.UNKNOWN_EPOCH
        self.is_bound = self.is_connected = self.is_given_up = self.is_twin = self.drained = False

    def mode(self) -> str:
        """Return the kind of the current connection; see `PublisherInfo.mode`."""
        if self.multicast is not None:
            return "multicast" if self.multicast.is_heard else "connecting"
        if self.plain is not None:
            return "prefix" if self.plain.is_ready else "connecting"
        if self.link is not None and (self.link.state == LIVE or self.is_twin):
            return "link"
        return "connecting"

    def info(self, now: float) -> PublisherInfo:
        """Return the state as the public `PublisherInfo`.

        Args:
            now: time in seconds.
        """
        origin = None if self.link is None else self.link.origin
        if self.multicast is not None:
            origin = self.multicast.origin
        heard = None if self.heard_at is None else now - self.heard_at
        return PublisherInfo(self.endpoint, self.mode(), origin, heard, self.refusal)

    def missing(self, *, needs_link: bool, may_fall_back: bool, has_keys: bool = False) -> str | None:
        """Return the reason why the endpoint is not ready; None if the endpoint is ready.

        Args:
            needs_link: whether any subscription needs a link.
            may_fall_back: whether a plain connection may serve the subscriptions that need no link.
            has_keys: whether the subscriber has keys.
        """
        if self.is_twin:
            return None
        link, fallback, plain = self.link, self.fallback, self.plain
        if self.multicast is not None:
            return self.multicast.missing()
        if link is not None and link.is_answered:
            if fallback is None or fallback.state == LINK:
                return None
            return f"{self.endpoint} moves to its link"
        if plain is not None and plain.is_ready and not (link is not None and needs_link):
            return None
        if self.key_refusal is not None:
            return f"{self.endpoint} {self.key_refusal}"
        hint = "" if has_keys or self.endpoint.startswith("inproc:") else f"; {KEYS_HINT}"
        if link is None:
            return f"nothing answers at {self.endpoint}: start the publisher, or check host and port{hint}"
        where = f"{self.endpoint} (link endpoint {self.link_endpoint})"
        if link.state == LIVE:
            return f"{where} has not answered the subscriptions yet"
        if link.ending in _ENDINGS:
            return f"{where} has ended the link: {_ENDINGS[link.ending]}"
        if plain is not None and plain.is_ready:
            return (
                f"{where} is a plain publisher or its link port is closed, and group, last_value, overflow "
                'and ack="handled" need a link: use oz.Publisher there, open the link port, or give links='
            )
        return (
            f"nothing answers at {where}: start the publisher, or check host, port and the firewall of both ports"
            + ("" if may_fall_back else '; a plain publisher needs filtering="auto"')
            + hint
        )

    def is_drained(self, revision: int) -> bool:
        """Return whether all messages have arrived that the publisher sent before it applied a declaration.

        Args:
            revision: revision of the declaration that has removed the drained subscriptions.
        """
        link = self.link
        if (self.plain is not None or self.multicast is not None) and not self.drained:
            return False
        if link is None or self.is_twin or link.origin is None:
            return True
        if link.state == LIVE:
            return link.idle >= revision
        # A session with a known epoch may resume. Then more messages may arrive.
        return link.epoch == links.UNKNOWN_EPOCH
