"""The opening of a node: its sockets, its announcement, and the peers it looks for first."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import zmq

from oz.configuration import Configuration, private_directory, resolve
from oz.errors import ConfigurationError
from oz.message import Gap, Message
from oz.protocol.node import reserved_subjects
from oz.protocol.node.advisories import Advisory, Throttle
from oz.protocol.node.connections import Connections
from oz.protocol.node.links import Links
from oz.protocol.node.membership import Membership
from oz.protocol.node.presence import local_origin, network_origin, presence_pattern
from oz.protocol.node.requests import Requests
from oz.protocol.node.subscription import NodeStats, NodeSubscription
from oz.subjects.pattern import compile
from oz.transport import descriptors
from oz.transport.endpoints import needs_ipv6
from oz.transport.node.dialler import BusListener, Dialler
from oz.transport.node.inquiring import Inquiries, interest_subject
from oz.transport.node.local_directory import LocalDirectory, host_id
from oz.transport.node.sockets import (
    FOR_EVER,
    NodePublisher,
    NodeSubscriber,
    keep_alive,
    make_uuid,
)
from oz.transport.publisher.engine import PublisherEngine
from oz.transport.publisher.options import OnFull, PublisherOptions, Role
from oz.transport.socket import HIGH_WATER_MARK
from oz.version import VERSION
from oz.wire.codec import find_codec
from oz.wire.discovery import Announcement
from oz.wire.node_codec import NodeCodec

_log = logging.getLogger("oz.node")

OnPeer = Callable[[Announcement, str], Any]


class NodeOpening:
    """The part of a node that runs once."""

    _engine_class: Callable[[PublisherOptions, Role], PublisherEngine]
    _context_class: type[zmq.Context[Any]] = zmq.Context

    def __init__(
        self,
        name: str | None = None,
        *,
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
        error_replies: bool = True,
        on_peer: OnPeer | None = None,
    ) -> None:
        """Join a bus; on asyncio that is done by `start`, or on entering `async with`.

        What is None is taken from `OZ_*` environment variables, a TOML file, or a default:
        docs/configuration.md.

        Args:
            name: what it is called; default the program's name and its process id.
            bus: the bus; nodes of others never hear of it.
            nameserver: the endpoint of a name server, or of several. One that answers is enough.
            bind: where nodes of other hosts connect to it; default a free port at the address of this host
                that name servers and peers see, or none without either.
            peers: endpoints of nodes to connect to, in place of a name server; one is enough to find all.
                With neither, the nodes of this host find each other in a directory.
            advertise: the address of this host that others are told, if it is not the one that it sees.
            dialect: that of patterns and subjects.
            codec: `"msgpack"`, `"json"`, or an object with `encode` and `decode`.
            echo: whether its own subscriptions get what it publishes itself.
            directory: where nodes of one host find each other; only its owner may enter it.
            join_timeout: seconds to wait for a name server; 0 does not wait, and goes on trying.
            lost_after: seconds without a link after which a peer counts as lost.
            threads: the most handlers that run at once.
            on_full: what to do when a peer has no room: see `oz.Publisher`.
            full_timeout: seconds that `"block"` waits at most.
            high_water_mark: messages, or batches of them, that may wait for each peer; 0 is no limit. Default
                100,000.
            last_value: keep the newest message of each subject that it publishes, up to 65,536 of them, for
                subscriptions that ask for it; not requests, nor what begins with `_`.
            error_replies: whether those who ask are told when a handler of this node raises, with the name of
                the exception's class and its text, which may hold what a stranger is not to know.
            on_peer: called with a peer and `"up"`, `"left"` or `"lost"`, one after the other, on the pool.

        Raises:
            NameserverUnavailable: no name server has answered in that time.
            ConfigurationError: a setting makes no sense; says where it came from.
            ValueError, TransportUnavailable, zmq.ZMQError: an endpoint cannot be bound.
            zmq.ZMQError: file descriptors are used up.
        """
        if on_peer is not None and not callable(on_peer):
            raise TypeError(
                f"on_peer is called with a peer and what became of it; {on_peer!r} cannot be called"
            )
        descriptors.need(descriptors.NODE, "a node")
        self.configuration = resolve(
            name=name, bus=bus, nameserver=nameserver, bind=bind, peers=peers, dialect=dialect, codec=codec,
            directory=directory, join_timeout=join_timeout, lost_after=lost_after, threads=threads,
        )  # fmt: skip
        self._options = PublisherOptions(
            on_full=on_full,
            full_timeout=full_timeout,
            # The context is the node's own, as it is a socket's that makes one.
            high_water_mark=HIGH_WATER_MARK if high_water_mark is None else high_water_mark,
            last_value=last_value,
        )
        self._tells_peer = on_peer
        self._error_replies = error_replies
        self._configure(self.configuration, echo=echo, advertise=advertise)
        self._launch()

    def _configure(self, configuration: Configuration, *, echo: bool, advertise: str | None) -> None:
        """Record the configuration of the node; nothing is opened yet."""
        self.bus = configuration.bus
        self.name = configuration.name or f"{_program()}-{os.getpid()}"
        self.uuid = make_uuid()
        self._echo = echo
        self._advertise = advertise
        self._closed = False
        self._endpoint: str | None = None
        self._stats = NodeStats()
        self._requests = Requests(self.uuid)
        self._membership: Membership
        self._advised = reserved_subjects.ReservedIndex()
        self._subscriptions: dict[NodeSubscription, None] = {}
        self._ended: dict[NodeSubscription, None] = {}
        self._notices: deque[Advisory] = deque()
        self._throttle = Throttle()
        self._parked: deque[tuple[float, str, Any, Any]] = deque()
        self._untold: dict[bytes, str] = {}
        self._said = 0
        self._is_unheard = self._is_due = self._has_links = False
        self._tick_at = 0.0
        self._look_at = inf
        self._notified_at = 0.0
        self._number_of_news = self._number_of_waits = 0
        self._counted = (0, 0, 0)

    # opening ---------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Make the sockets.

        Raises:
            ConfigurationError: the directory where nodes of this host meet cannot be used.
            ValueError, TransportUnavailable, zmq.ZMQError: an endpoint cannot be bound.
        """
        config = self.configuration
        found = find_codec(config.codec)
        assert found is not None
        codec = NodeCodec(found)
        descriptors.need(descriptors.NODE, "a node")
        self._context = self._context_class()
        local_directory = None
        try:
            options = replace(self._options, context=self._context, dialect=config.dialect, codec=codec)
            local_directory = self._meeting_place()
            self._local = self._make_publisher(local_origin(self.uuid), options)
            self._local.engine.bind(f"inproc://{self.uuid.hex()}.local")
            if local_directory is not None:
                self._local.engine.bind(local_directory.endpoint)
            self._network = self._make_network_publisher(options)
            self._main = self._network or self._local
            self._sub = NodeSubscriber(self._context, codec, self._on_gap)
            self._introduce_self(local_directory)
            self._servers = {one: self._dial_server(one) for one in config.nameserver}
        except BaseException:
            self._context.destroy(0)
            if local_directory is not None:
                local_directory.remove()
            raise

    def _make_publisher(self, origin: bytes, options: PublisherOptions) -> NodePublisher:
        return NodePublisher(
            type(self)._engine_class, options, origin=origin, bus=self.bus, on_interest=self._on_interest
        )

    def _meeting_place(self) -> LocalDirectory | None:
        """Make the place where nodes of this host meet; one that does not need it goes without."""
        config = self.configuration
        self._host = self._host_id(None)
        try:
            directory = private_directory(config.directory)
            host = self._host_id(directory)
            local_directory = LocalDirectory(directory, self.bus, self.uuid, host)
        except (ConfigurationError, ValueError):
            if not (config.nameserver or config.peers or config.bind):
                raise
            _log.warning("this node reaches processes of its host over TCP only", exc_info=True)
            return None
        self._host = host
        return local_directory

    def _make_network_publisher(self, options: PublisherOptions) -> NodePublisher | None:
        config = self.configuration
        others = [*config.nameserver, *config.peers]
        is_local = all(one.startswith(("ipc://", "inproc://")) for one in others)
        bound_elsewhere = [one for one in config.bind if one.startswith("tcp://")]
        for endpoint in config.bind:
            if endpoint not in bound_elsewhere:
                # Nobody but processes of this host can come there.
                self._local.engine.bind(endpoint)
                self._endpoint = self._endpoint or self._local.engine.attachments.endpoints[-1]
        if not bound_elsewhere and is_local:
            return None
        network = self._make_publisher(network_origin(self.uuid), options)
        for endpoint in bound_elsewhere or (f"tcp://{address_towards(others)}:*",):
            network.engine.bind(endpoint)
        self._bound = tuple(network.engine.attachments.endpoints)
        network.engine.bind(f"inproc://{self.uuid.hex()}.network")
        return network

    def _introduce_self(self, local_directory: LocalDirectory | None) -> None:
        """Say who this is, to everybody it will connect to."""
        config = self.configuration
        others = [*config.nameserver, *config.peers]
        bound = self._bound if self._network is not None else ()
        self.announcement = Announcement(
            uuid=self.uuid,
            name=self.name,
            bus=self.bus,
            host=socket.gethostname()[:200],
            host_id=self._host,
            pid=os.getpid(),
            endpoints=advertised(bound, self._advertise or address_towards(others)),
            local_endpoint=local_directory.endpoint if local_directory is not None else None,
            version=VERSION,
            started_ns=time.time_ns(),
        )
        if self.announcement.endpoints:
            self._endpoint = self.announcement.endpoints[0]
        self._local_directory = local_directory
        self._sub.introduce(compile(f"_OZ.NAMING.{self.uuid.hex()}", "nats"), self._hear_of)
        # Before the presence announcement: who has that has this too, unless it is a node of an older oz.
        self._sub.introduce(compile(interest_subject(self.uuid), "nats"), self._hear_about_interest)
        self._sub.introduce(presence_pattern(self.announcement), _ignore)
        self._sub.subscribe(compile(self._requests.pattern, "nats"), handler=self._requests.take)
        self._inquiries = Inquiries(self._sub, self._tell_bus)
        self._membership = Membership(self.announcement, config.lost_after)
        looks_around = local_directory if not (config.nameserver or config.peers) else None
        self._links = Links(
            self._membership,
            Connections(self.announcement, self._sub, looks_around, config.peers),
            self._local,
            self._network,
            servers=config.nameserver,
            echo=self._echo,
        )
        sockets = (self._sub, self._local, self._network)
        self._dialler = Dialler(self._links, sockets, self._bus_listener())
        self._has_links = True
        if self._echo:
            for publisher in filter(None, (self._local, self._network)):
                one = next(
                    one for one in publisher.engine.attachments.endpoints if one.startswith("inproc://")
                )
                self._sub.dial(one, stop=FOR_EVER)
        self._dialler.start(time.monotonic())

    def _host_id(self, directory: Path | None) -> bytes:
        return host_id(directory)

    def _dial_server(self, endpoint: str) -> Any:
        dealer = self._context.socket(zmq.DEALER)
        keep_alive(dealer)
        dealer.set(zmq.LINGER, 500)
        dealer.set(zmq.SNDHWM, 100)
        # What finds no name server is not kept: it is said again.
        dealer.set(zmq.IMMEDIATE, 1)
        dealer.set(zmq.IPV6, needs_ipv6(endpoint))
        dealer.connect(endpoint)
        return dealer

    # what the rest of a node does ------------------------------------------------------------------------

    def _launch(self) -> None:
        """Do what is left to do when a node is made."""
        raise NotImplementedError

    def _bus_listener(self) -> BusListener:
        raise NotImplementedError

    def _on_interest(self) -> None:
        raise NotImplementedError

    def _on_gap(self, gap: Gap) -> None:
        raise NotImplementedError

    def _hear_of(self, message: Message) -> None:
        raise NotImplementedError

    def _hear_about_interest(self, message: Message) -> None:
        raise NotImplementedError

    def _tell_bus(self, subject: str, value: Any) -> bool:
        """Publish what nodes say to each other; tell whether there was room for it."""
        raise NotImplementedError


def _ignore(_: Message) -> None:
    """Take a message that nobody sends."""


def _program() -> str:
    return Path(sys.argv[0] or "python").stem[:100] or "python"


_SOMEWHERE = (("192.0.2.1", 9), ("2001:db8::1", 9))
"""Addresses that are nobody's (RFC 5737 and 3849): the way there is the way out of this host."""

_TCP = re.compile(r"tcp://(?P<host>.+):(?P<port>[0-9]+|\*)")
_ANY = ("*", "0.0.0.0", "[::]", "::")


def address_towards(endpoints: Iterable[str]) -> str:
    """Return the address of this host that the peers at some endpoints see it come from.

    Args:
        endpoints: `tcp://host:port` each; the first that can be resolved counts. Nothing is sent there.
    """
    for endpoint in endpoints:
        found = _TCP.fullmatch(endpoint)
        if found is None or not found["port"].isdecimal():
            continue
        address = _way_to((found["host"].strip("[]"), int(found["port"])))
        if address is not None:
            return address
    return next((way for way in map(_way_to, _SOMEWHERE) if way is not None), "127.0.0.1")


def _way_to(peer: tuple[str, int]) -> str | None:
    # As ZeroMQ does, which takes an IPv6 address only where one is written.
    wanted = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    try:
        found = socket.getaddrinfo(*peer, family=wanted, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            own: str = probe.getsockname()[0]
    except OSError:
        return None
    return f"[{own}]" if ":" in own else own


def advertised(bound: Iterable[str], address: str) -> tuple[str, ...]:
    """Return the endpoints to announce: those bound to, with an address in place of all of them."""
    announced = []
    for endpoint in bound:
        found = _TCP.fullmatch(endpoint)
        if found is not None:
            host = address if found["host"] in _ANY else found["host"]
            announced.append(f"tcp://{host}:{found['port']}")
    return tuple(announced)
