"""The opening of a node: its settings, its sockets, and what it says of itself."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import zmq

from oz.configuration import Configuration, resolve
from oz.errors import ConfigurationError
from oz.logs import peer_logger
from oz.options import Limits
from oz.protocol.messages import Gap
from oz.protocol.node.presence import local_origin, network_origin
from oz.security.identity import make_uuid_of
from oz.security.limits import node_limits
from oz.transport import descriptors
from oz.transport.attachments import Attachments, is_inside
from oz.transport.backend import PYZMQ, Backend
from oz.transport.credentials import Credentials
from oz.transport.endpoints import address_towards, advertised, needs_ipv6, warn_of_strangers
from oz.transport.guard import StrictGuard
from oz.transport.node.keys import NodeKeys
from oz.transport.node.local_directory import MeetingPlace, host_id, meet_in_directory
from oz.transport.node.publisher import NodePublisher, make_uuid
from oz.transport.node.subscriber import NodeSubscriber
from oz.transport.publisher.engine import PublisherEngine
from oz.transport.publisher.options import OnFull, PublisherOptions, Role
from oz.transport.security import Security, credentials_of
from oz.transport.socket import HIGH_WATER_MARK, end_context, keep_link_alive, limit_peers
from oz.version import VERSION
from oz.wire.codec import NodeCodec, find_codec
from oz.wire.discovery import MAX_REPLY, Announcement

_log = peer_logger("oz.node")

OnPeer = Callable[[Announcement, str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The settings of one node.

    Attributes:
        configuration: what comes from arguments, the environment and files.
        publishing: the options of its publishers, but for what is found out on opening.
        name: what it is called.
        uuid: what it is known by.
        echo: whether its own subscriptions get what it publishes.
        advertise: the address of this host that others are told.
        error_replies: whether those who ask are told that a handler raised.
        on_peer: called with a peer and what became of it.
        security: its key, and those that it trusts; None where nobody has to prove anything.
    """

    configuration: Configuration
    publishing: PublisherOptions
    name: str
    uuid: bytes
    echo: bool
    advertise: str | None
    error_replies: bool
    on_peer: OnPeer | None
    security: Security | None = None

    @property
    def credentials(self) -> Credentials | None:
        """The credentials of its sockets; None without keys."""
        return credentials_of(self.security)


def node_settings(
    *,
    name: str | None = None,
    bus: str | None = None,
    nameserver: str | bytes | Sequence[str | bytes] | None = None,
    bind: str | bytes | Sequence[str | bytes] | None = None,
    peers: str | bytes | Sequence[str | bytes] | None = None,
    advertise: str | None = None,
    dialect: str | None = None,
    codec: Any = None,
    echo: bool = True,
    directory: str | os.PathLike[str] | None = None,
    join_timeout: float | None = None,
    lost_after: float | None = None,
    threads: int | None = None,
    on_full: OnFull = "drop",
    full_timeout: float | None = None,
    high_water_mark: int | None = None,
    last_value: bool = False,
    limits: Limits | None = None,
    error_replies: bool = True,
    on_peer: OnPeer | None = None,
    security: Security | None = None,
) -> NodeSettings:
    """Check the arguments of `oz.Node`, and fill in what they leave out.

    Raises:
        ConfigurationError: a setting makes no sense; says where it came from.
        ValueError: `on_full`, `full_timeout` or `high_water_mark` is out of bounds.
        TypeError: one of these is no number, or `on_peer` cannot be called.
        zmq.ZMQError: file descriptors are used up.
    """
    given_limits = None if limits is None else node_limits(limits)
    if on_peer is not None and not callable(on_peer):
        raise TypeError(f"on_peer is called with a peer and what became of it; {on_peer!r} cannot be called")
    descriptors.need_for_node()
    configuration = resolve(
        name=name, bus=bus, nameserver=nameserver, bind=bind, peers=peers, dialect=dialect, codec=codec,
        directory=directory, join_timeout=join_timeout, lost_after=lost_after, threads=threads,
    )  # fmt: skip
    publishing = PublisherOptions(
        on_full=on_full,
        full_timeout=full_timeout,
        high_water_mark=HIGH_WATER_MARK if high_water_mark is None else high_water_mark,
        last_value=last_value,
        limits=node_limits(configuration.limits) if given_limits is None else given_limits,
        security=security,
    )
    publishing.check()
    credentials = credentials_of(security)
    return NodeSettings(
        configuration=configuration,
        publishing=publishing,
        name=configuration.name or f"{_program()}-{os.getpid()}",
        uuid=make_uuid() if credentials is None else make_uuid_of(credentials.public_key, os.urandom),
        echo=echo,
        advertise=advertise,
        error_replies=error_replies,
        on_peer=on_peer,
        security=security,
    )


@dataclass(frozen=True, slots=True)
class SocketKinds:
    """The kinds of a node's sockets, which differ between threads, asyncio and a model of ZeroMQ.

    Attributes:
        context: makes the context of a node.
        publisher: makes the engine of a publisher.
        backend: what its sockets are called by.
        meet: makes the place where nodes of one host find each other, from a directory and the node's bus,
            uuid and public key; gives too what this host is known by.
    """

    context: Callable[[], zmq.Context[Any]]
    publisher: Callable[[PublisherOptions, Role], PublisherEngine]
    backend: Backend = PYZMQ
    meet: Callable[[Path, str, bytes, str | None], tuple[MeetingPlace, bytes]] = meet_in_directory


class NodeSockets:
    """The sockets of one node; connected to nobody yet.

    Attributes:
        context: theirs.
        local: publishes to nodes of this host.
        network: publishes to those of other hosts; None where nobody comes from there.
        main: that of the two which everything goes out by but what stays on this host.
        sub: subscribes to the publishers of others, and to its own.
        servers: a socket for each name server, by endpoint.
        local_directory: where nodes of this host meet; None for one that reaches them over TCP only.
        endpoint: where others can connect to, or None.
        announcement: what the node says of itself.
    """

    def __init__(
        self,
        settings: NodeSettings,
        kinds: SocketKinds,
        on_interest: Callable[[], None],
        on_gap: Callable[[Gap], None],
        keys: NodeKeys | None = None,
    ) -> None:
        """Make them.

        Args:
            settings: of the node.
            kinds: their classes.
            on_interest: called when peers ask for something else.
            on_gap: called when messages were lost on their way here.
            keys: of the node, and of its peers; None where nobody has to prove anything.

        Raises:
            ConfigurationError: the directory where nodes of this host meet cannot be used.
            ValueError, TransportUnavailable, zmq.ZMQError: an endpoint cannot be bound.
        """
        self._settings = settings
        self._kinds = kinds
        self._keys = keys
        self._on_interest = on_interest
        config = settings.configuration
        found = find_codec(config.codec)
        assert found is not None
        codec = NodeCodec(found)
        descriptors.need_for_node()
        self.context = kinds.context()
        self.local_directory: MeetingPlace | None = None
        self.endpoint: str | None = None
        try:
            options = replace(settings.publishing, context=self.context, dialect=config.dialect, codec=codec)
            host = self._meet()
            self.local = self._make_publisher(local_origin(settings.uuid), options)
            self.local.engine.bind(f"inproc://{settings.uuid.hex()}.local")
            if self.local_directory is not None:
                self.local.engine.bind(self.local_directory.endpoint)
            bound: tuple[str, ...] = ()
            self.network = self._make_network_publisher(options)
            if self.network is not None:
                bound = tuple(self.network.engine.attachments.endpoints)
                self.network.engine.bind(f"inproc://{settings.uuid.hex()}.network")
            self.main = self.network or self.local
            self.sub = NodeSubscriber(self.context, codec, on_gap, settings.publishing.limits, keys)
            self.announcement = self._announcement(host, bound)
            if self.announcement.endpoints:
                self.endpoint = self.announcement.endpoints[0]
            self.servers = {one: self._dial_server(one) for one in config.nameserver}
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Close all at once: the node cannot be opened."""
        self.context.destroy(0)
        self.leave_directory()

    def leave_directory(self) -> None:
        """Be found by no other node of this host any more."""
        if self.local_directory is not None:
            self.local_directory.remove()

    @property
    def publishers(self) -> list[NodePublisher]:
        """Its publishers."""
        return [one for one in (self.network, self.local) if one is not None]

    @property
    def echoes(self) -> list[str]:
        """The endpoints at which a node hears itself."""
        return [
            next(one for one in publisher.engine.attachments.endpoints if one.startswith("inproc://"))
            for publisher in (self.local, self.network)
            if publisher is not None
        ]

    def say(self, endpoint: str, frame: bytes) -> None:
        """Send a frame to a name server, if there is room.

        Raises:
            zmq.ZMQError: the socket is closed.
        """
        with suppress(zmq.Again):
            self._kinds.backend.send(self.servers[endpoint], frame, zmq.NOBLOCK)

    def end_context(self, timeout: float, closed_at: float) -> None:
        """End the context, when all sockets are closed; see `oz.transport.socket.end_context`."""
        self.leave_directory()
        end_context(self.context, timeout, closed_at)

    def _make_publisher(self, origin: bytes, options: PublisherOptions) -> NodePublisher:
        bus = self._settings.configuration.bus
        reserved = None if self._keys is None else self._keys.ownership
        return NodePublisher(
            self._kinds.publisher,
            options,
            origin=origin,
            bus=bus,
            on_interest=self._on_interest,
            reserved=reserved,
        )

    def _meet(self) -> bytes:
        """Make the place where nodes of this host meet, if it can be; give what this host is known by."""
        config = self._settings.configuration
        try:
            meet = self._kinds.meet
            self.local_directory, host = meet(config.directory, config.bus, self._settings.uuid, self._key)
        except (ConfigurationError, ValueError):
            if not (config.nameserver or config.peers or config.bind):
                raise
            _log.warning("this node reaches processes of its host over TCP only", exc_info=True)
            return host_id(None)
        return host

    def _make_network_publisher(self, options: PublisherOptions) -> NodePublisher | None:
        config = self._settings.configuration
        others = [*config.nameserver, *config.peers]
        is_local = all(one.startswith(("ipc://", "inproc://")) for one in others)
        bound_elsewhere = [one for one in config.bind if one.startswith("tcp://")]
        for endpoint in config.bind:
            if endpoint not in bound_elsewhere:
                # Nobody but processes of this host can come there.
                self.local.engine.bind(endpoint)
                self.endpoint = self.endpoint or self.local.engine.attachments.endpoints[-1]
        if not bound_elsewhere and is_local:
            return None
        network = self._make_publisher(network_origin(self._settings.uuid), options)
        for endpoint in bound_elsewhere or (f"tcp://{address_towards(others)}:*",):
            network.engine.bind(endpoint)
        if self._keys is None:
            warn_of_strangers(network.engine.attachments.endpoints)
        return network

    def _announcement(self, host: bytes, bound: tuple[str, ...]) -> Announcement:
        config = self._settings.configuration
        others = [*config.nameserver, *config.peers]
        return Announcement(
            uuid=self._settings.uuid,
            name=self._settings.name,
            bus=config.bus,
            host=socket.gethostname()[:200],
            host_id=host,
            pid=os.getpid(),
            endpoints=advertised(
                bound,
                self._settings.advertise or address_towards(others),
                is_advertised=bool(self._settings.advertise),
            ),
            local_endpoint=self.local_directory.endpoint if self.local_directory is not None else None,
            version=VERSION,
            started_ns=self._kinds.backend.time_ns(),
            key=self._key,
        )

    @property
    def _key(self) -> str | None:
        return None if self._keys is None else self._keys.credentials.public_key

    def _dial_server(self, endpoint: str) -> zmq.Socket[bytes]:
        dealer: zmq.Socket[bytes] = self.context.socket(zmq.DEALER)
        keep_link_alive(dealer)
        limit_peers(dealer, self._settings.publishing.limits, most=MAX_REPLY)
        dealer.set(zmq.LINGER, 500)
        dealer.set(zmq.SNDHWM, 100)
        # More waits at the name server, which says everything anew to whom it could not tell all.
        dealer.set(zmq.RCVHWM, 256)
        # What finds no name server is not kept: it is said again.
        dealer.set(zmq.IMMEDIATE, 1)
        dealer.set(zmq.IPV6, needs_ipv6(endpoint))
        if self._keys is None or is_inside(endpoint):
            Attachments(StrictGuard()).connect(dealer, endpoint)
        return dealer

    def close_servers(self) -> None:
        """Close the sockets of name servers; what was said last still goes out."""
        for dealer in self.servers.values():
            dealer.close()

    def call_server(self, endpoint: str, key: str) -> None:
        """Connect to a name server, anew if it was called before, by the key that it has."""
        assert self._keys is not None
        dealer = self.servers[endpoint]
        with suppress(zmq.ZMQError):
            dealer.disconnect(endpoint)
        self._keys.credentials.prepare(dealer, key)
        dealer.connect(endpoint)


def _program() -> str:
    return Path(sys.argv[0] or "python").stem[:100] or "python"
