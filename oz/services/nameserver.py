"""The name server: tells the nodes of a bus of each other, and `ask`, which asks one who is there."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from typing import Any, Self

import zmq

from oz.errors import NameserverUnavailable, ProtocolError
from oz.logs import peer_logger
from oz.numbers import check_number
from oz.options import Limits
from oz.protocol.node.discovery_client import BEACON, EXPIRY
from oz.protocol.node.registry import News, Registry, RegistryStats, Sends
from oz.security.limits import node_limits
from oz.services.waiting import Bell, look_again, wait
from oz.transport import descriptors, endpoints
from oz.transport.arrivals import Arrivals
from oz.transport.attachments import BIND_HINT, is_inside
from oz.transport.handshakes import Handshakes
from oz.transport.ipc_paths import SocketFiles
from oz.transport.peer_keys import key_of_client
from oz.transport.security import Security, credentials_of
from oz.transport.socket import LINK_KEEPALIVE, keep_tcp_alive, limit_peers
from oz.wire.announcement import Announcement
from oz.wire.discovery import MAX_REPLY, MAX_REQUEST, Ask, Roster, pack, unpack_reply

_log = peer_logger("oz.nameserver")

_FRAME = 4_096
"""Bytes that a frame counts for in what may wait for one node."""

_MOST_WAITING = 256
"""Frames of one node that wait for the name server."""

_ROOM_EVERY = 0.05
"""Seconds between two looks whether there is room for more of a roster."""

_MANY = 100  # frames in one turn

_OPTIONS = (
    (zmq.LINGER, 0),
    (zmq.RCVHWM, _MOST_WAITING),
    # Without it what finds no room would be dropped in silence.
    (zmq.ROUTER_MANDATORY, 1),
    *LINK_KEEPALIVE,
    # All nodes come at once when it was started again.
    (zmq.BACKLOG, 1_024),
)


class NameServer:
    """Takes in announcements of nodes, and tells the others of their bus.

    A node needs one to find its peers, and none to go on with them: messages do not pass it. It begins with
    nothing and keeps nothing; nodes announce themselves every second.

    Attributes:
        name: what it calls itself.
    """

    def __init__(
        self,
        bind: str | Iterable[str],
        *,
        name: str | None = None,
        context: zmq.Context[Any] | None = None,
        beacon: float = BEACON,
        expiry: float = EXPIRY,
        limits: Limits = Limits(),  # noqa: B008 - it is frozen
        security: Security | None = None,
    ) -> None:
        """Bind; `run` begins to answer.

        Args:
            bind: where nodes find it, such as `tcp://*:5756`; or a list of endpoints.
            name: what it calls itself, 255 bytes at most; this host's name unless given.
            context: a ZeroMQ context to use; one of its own unless given.
            beacon: seconds between two announcements of a node.
            expiry: seconds of silence after which a node counts as lost, and this name server for nodes;
                more than `beacon`.
            limits: `peers` bounds the nodes; `handshake`. See docs/limits.md.
            security: its key, and those that it trusts: it listens to nobody else, and believes of a node
                only what comes from that node's key. docs/security.md.

        Raises:
            TypeError: the limits are of another class, the security is none, or a duration is no number.
            ConfigurationError: another authenticator answers for the context.
            ValueError: the text is no endpoint, or the name or a duration is out of bounds.
            TransportUnavailable: this libzmq lacks the transport.
            zmq.ZMQError: the address is in use, or not one of this host; or file descriptors are used up.
        """
        bounds = node_limits(limits)
        check_number("beacon", beacon)
        check_number("expiry", expiry)
        self._credentials = credentials = credentials_of(security)
        self.name = socket.gethostname() if name is None else name
        self._registry = Registry(os.urandom(16), self.name, beacon=beacon, expiry=expiry, limits=bounds)
        places = endpoints.as_list(bind)
        for one in places:
            endpoints.check(one, own_context=context is None)
        self._is_stopping = False
        self._owner = os.getpid()
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._reported = 0
        self._own_context = context is None
        descriptors.need(descriptors.CONTEXT + 2 + 2 * len(places), "a name server")
        self._bell = Bell()
        self._context: zmq.Context[Any] = zmq.Context() if context is None else context
        self._socket = self._context.socket(zmq.ROUTER)
        self._files = SocketFiles()
        self._handshakes = Handshakes()
        self._arrivals = None if credentials is None else Arrivals(credentials)
        self.endpoints: list[str] = []
        """Where it is, with the ports that a `*` became."""
        try:
            for option, value in (*_OPTIONS, (zmq.SNDHWM, _frames(bounds.queued))):
                self._socket.setsockopt(option, value)
            limit_peers(self._socket, bounds, most=MAX_REQUEST)
            for one in places:
                self._socket.setsockopt(zmq.IPV6, endpoints.needs_ipv6(one))
                if credentials is not None and not is_inside(one):
                    credentials.serve(self._socket)
                    self._handshakes.begin(self._socket)
                with endpoints.refused_by_libzmq(one, BIND_HINT):
                    self._files.bind(self._socket, one)
                self.endpoints.append(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
            self._poller = zmq.Poller()
            self._poller.register(self._socket, zmq.POLLIN)
            self._poller.register(self._bell, zmq.POLLIN)
            if (pair := self._handshakes.pair) is not None:
                self._poller.register(pair, zmq.POLLIN)
        except BaseException:
            self.close()
            raise

    @property
    def endpoint(self) -> str:
        """The endpoint that was bound last, with the port that a `*` became."""
        return self.endpoints[-1]

    @property
    def nodes(self) -> list[Announcement]:
        """The nodes that are there, on any bus."""
        return self._registry.nodes

    @property
    def stats(self) -> RegistryStats:
        """The counts so far."""
        return self._registry.stats

    def run(self, look: Callable[[], object] | None = None) -> None:
        """Answer until `stop` or `close` is called, or the context is ended.

        Args:
            look: called after each turn, in this thread; ten times a second when nothing happens, or at the
                time of the monotonic clock that it returns, a float.
        """
        self._is_idle.clear()
        again = 0.0
        try:
            with suppress(zmq.ContextTerminated), self._bell.rung_by_signals():
                while not self._is_stopping:
                    self._turn(again)
                    again = look_again(look)
        finally:
            self._is_idle.set()

    def stop(self) -> None:
        """Make `run` return at once; any thread or signal handler may call it."""
        self._is_stopping = True
        self._bell.ring()

    def turn(self, seconds: float = 0) -> None:
        """Answer what is there, and forget who is not heard any more.

        Args:
            seconds: to wait at most when nothing is there.
        """
        check_number("seconds", seconds)
        self._turn(time.monotonic() + seconds)

    def _turn(self, until: float) -> None:
        due = self._registry.next_deadline()
        if self._registry.paging:
            until = min(until, time.monotonic() + _ROOM_EVERY)
        wait(self._poller, until if due is None else min(until, due))
        self._bell.hear()
        for _ in range(_MANY):
            try:
                peer, frames, key = self._receive()
            except zmq.Again:
                break
            # What is no message at all is counted as any other that means nothing.
            frame = frames[0] if len(frames) == 1 else b""
            self._send(self._registry.receive(peer, frame, time.monotonic(), key))
            self._send_pages()
        now = time.monotonic()
        due = self._registry.next_deadline()
        if due is not None and now >= due:
            self._send(self._registry.tick(now))
        self._send_pages()
        self._look_who_comes()
        self._say()

    def _look_who_comes(self) -> None:
        if self._arrivals is not None:
            now = time.monotonic()
            for one in self._handshakes.read():
                self._arrivals.take(one, now)
            self._arrivals.look(now)

    def _receive(self) -> tuple[bytes, list[bytes], str | None]:
        """Take a message, and the key that it comes from; of one in many parts the first two are kept."""
        peer = self._socket.recv(zmq.NOBLOCK)
        frames: list[bytes] = []
        key: str | None = None
        while self._socket.getsockopt(zmq.RCVMORE):
            if self._credentials is None:
                frame = self._socket.recv(zmq.NOBLOCK)
            else:
                part = self._socket.recv(zmq.NOBLOCK, copy=False)
                key, frame = key_of_client(part), part.bytes
            if len(frames) < 2:
                frames.append(frame)
        return peer, frames, key

    def _send(self, sends: Sends) -> None:
        """Send without waiting. Behind something that found no room, nothing more goes to that node."""
        full: set[bytes] = set()
        waiting = deque(sends)
        while waiting:
            peer, frame = waiting.popleft()
            if peer in full:
                continue
            try:
                self._socket.send(peer, zmq.NOBLOCK | zmq.SNDMORE)
                self._socket.send(frame, zmq.NOBLOCK)
            except zmq.ContextTerminated:
                raise
            except zmq.ZMQError as error:
                full.add(peer)
                if error.errno == zmq.EHOSTUNREACH:
                    waiting.extend(self._registry.unreachable(peer, time.monotonic()))
                else:
                    self._registry.missed(peer)

    def _send_pages(self) -> None:
        """Send of the rosters that did not find room what does now."""
        registry = self._registry
        for peer in registry.paging:
            while (frame := registry.page(peer)) is not None:
                try:
                    self._socket.send(peer, zmq.NOBLOCK | zmq.SNDMORE)
                    self._socket.send(frame, zmq.NOBLOCK)
                except zmq.Again:
                    break
                except zmq.ContextTerminated:
                    raise
                except zmq.ZMQError:
                    self._send(registry.unreachable(peer, time.monotonic()))
                    break
                registry.paged(peer)

    def _say(self) -> None:
        for news in self._registry.take_news():
            _log.info("%s", _line(news))
        stats = self.stats
        wrong = stats.malformed + stats.refused
        if wrong >= max(1, 2 * self._reported):
            self._reported = wrong
            _log.warning(
                "passed over so far: %d messages that mean nothing, and %d announcements or goodbyes "
                "of a node over the connection or with the key of another, or of nodes too many",
                stats.malformed,
                stats.refused,
            )

    def close(self) -> None:
        """End `run`, and close the socket. A second call does nothing.

        A signal handler calls `stop` instead, as this waits for `run`.
        """
        # A thread in `run` is stopped then, and never becomes idle; or it belongs to the parent process.
        if sys.is_finalizing() or self._owner != os.getpid():
            return
        self.stop()
        self._is_idle.wait()
        self._handshakes.close(self._socket)
        self._files.remove_all()
        self._socket.close()
        self._bell.close()
        if self._own_context:
            self._context.term()

    def __enter__(self) -> Self:
        """Use it in `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _frames(queued: float) -> int:
    """Return how many frames may wait for one node; what finds no room is dropped."""
    # 0 is no limit for libzmq.
    return 0 if queued == inf else min(2**31 - 1, max(1, int(queued) // _FRAME))


def _line(news: News) -> str:
    one = news.announcement
    where = ", ".join([*one.endpoints, *([one.local_endpoint] if one.local_endpoint else [])]) or "nowhere"
    return f"{news.what}: {one.name} of bus {one.bus} (host {one.host}, pid {one.pid}) at {where}"


def ask(
    nameserver: str,
    bus: str | None = None,
    *,
    timeout: float = 2.0,
    context: zmq.Context[Any] | None = None,
    security: Security | None = None,
) -> list[Announcement]:
    """Ask a name server which nodes there are.

    Args:
        nameserver: its endpoint.
        bus: on which bus; None: on any.
        timeout: seconds to wait for the answer.
        context: a ZeroMQ context to use; one of its own unless given.
        security: the own key, and those that are trusted; docs/security.md.

    Returns:
        The nodes, in the order in which they were last heard.

    Raises:
        NameserverUnavailable: it has not answered in that time.
        PermissionDenied: it does not trust the own key, or has none that is trusted.
        ValueError: the text is no endpoint.
        TransportUnavailable: this libzmq lacks the transport.
        zmq.ZMQError: file descriptors are used up.
    """
    check_number("timeout", timeout)
    endpoints.check(nameserver, own_context=context is None)
    descriptors.need(descriptors.CONTEXT + 2, "asking a name server")
    made: zmq.Context[Any] = zmq.Context() if context is None else context
    dealer = made.socket(zmq.DEALER)
    try:
        keep_tcp_alive(dealer)
        dealer.set(zmq.LINGER, 0)
        limit_peers(dealer, most=MAX_REPLY)
        dealer.set(zmq.IPV6, endpoints.needs_ipv6(nameserver))
        credentials = credentials_of(security)
        if credentials is not None and not is_inside(nameserver):
            credentials.call(dealer, nameserver)
        dealer.connect(nameserver)
        dealer.send(pack(Ask(bus)))
        nodes = _receive(dealer, time.monotonic() + timeout)
    finally:
        dealer.close()
        if context is None:
            made.term()
    if nodes is None:
        raise NameserverUnavailable([nameserver], timeout)
    return nodes


def _receive(dealer: zmq.Socket[bytes], ends: float) -> list[Announcement] | None:
    """Wait for all parts of the roster; None when they do not come."""
    nodes: list[Announcement] = []
    while (left := ends - time.monotonic()) > 0:
        if not dealer.poll(max(1, round(1000 * left))):
            continue
        with suppress(ProtocolError):
            said = unpack_reply(dealer.recv())
            if isinstance(said, Roster):
                nodes = [*nodes[: said.first], *said.announcements]
                if said.is_last:
                    return nodes
    return None
