"""Plain connections: one SUB for each endpoint, which subscribes to the prefixes of the patterns.

With `filtering="prefix"` each endpoint has a SUB. Otherwise an endpoint has a SUB if the subscriber binds the endpoint,
or if the publisher has no links. The library libzmq filters by prefix, and oz compares each received message with the
patterns.

- SNDHWM is 0, because a SUB with a limit silently drops subscriptions if the program adds many patterns in a burst.
- A SUB is closed but never disconnected, because libzmq aborts if a pipe ends inside the read of a multipart message.
- The monitor reports the handshake. Before the handshake, the publisher has not received the subscriptions.
- With `filtering="auto"` a SUB first has no subscriptions. A SUB *serves* when it has subscribed to the prefixes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import zmq

from oz.multicast.endpoints import is_multicast
from oz.multicast.group import Claim, configure
from oz.options import Multicast
from oz.subjects.index.patterns import PatternIndex
from oz.subscriber.keys import SubscriberKeys
from oz.subscriber.queue import Inbox
from oz.subscriber.subscriptions import RESERVED, names_reserved
from oz.transport.endpoints import needs_ipv6, refused_by_libzmq
from oz.transport.ipc_paths import SocketFiles
from oz.transport.libzmq import raw_socket
from oz.transport.monitors import HANDSHAKES, Monitor, Outcome
from oz.transport.peer_keys import key_of_client
from oz.transport.runtime import message_reader, runtime_of

_MAX_FRAMES = 1 << 30


class PlainPatterns:
    """Patterns of the subscriptions that plain connections may serve."""

    def __init__(self, delimiter: bytes | None = None) -> None:
        """Start without patterns.

        Args:
            delimiter: bytes between subject and payload in messages of one frame, or None.
        """
        self._delimiter = delimiter
        self._index: PatternIndex[Inbox] = PatternIndex(cache_size=0)
        self._inboxes: dict[Inbox, None] = {}

    def add(self, inbox: Inbox) -> None:
        """Add the patterns of an inbox."""
        self._inboxes[inbox] = None
        for entry in inbox.entries:
            self._index.add(entry.pattern, inbox)

    def discard(self, inbox: Inbox) -> bool:
        """Remove the patterns of an inbox; return whether the inbox had patterns."""
        if inbox not in self._inboxes:
            return False
        del self._inboxes[inbox]
        for entry in inbox.entries:
            self._index.discard(entry.pattern, inbox)
        return True

    def match(self, subject: bytes) -> tuple[Inbox, ...]:
        """Return the inboxes whose patterns match a subject. A pattern that exceeds its time limit does not match."""
        found = dict.fromkeys(self._index._find(subject).values)
        if subject.startswith(RESERVED):
            named = [entry for inbox in found for entry in inbox.entries if names_reserved(entry.pattern)]
            return tuple(dict.fromkeys(entry.owner for entry in named if entry.pattern.matches(subject)))
        return tuple(found)

    def prefixes(self) -> Iterable[bytes]:
        """Return the prefixes of all patterns, with repetitions."""
        return [prefix for inbox in self._inboxes for prefix in self.prefixes_of(inbox)]

    def prefixes_of(self, inbox: Inbox) -> Iterable[bytes]:
        """Return the prefixes of an inbox.

        With a delimiter, the prefix of a literal pattern includes the delimiter, so that it matches this subject only.
        """
        found: list[bytes] = []
        for entry in inbox.entries:
            literal = None if self._delimiter is None else entry.pattern._compiled.literal
            found += entry.pattern.prefixes if literal is None else (literal + (self._delimiter or b""),)
        return found


class PlainSocket:
    """SUB of one endpoint.

    Attributes:
        socket: pyzmq socket.
        endpoint: connected or bound endpoint, with its port number.
        is_reached: whether the handshake of the connection is done.
        serves: whether the socket has subscribed to the prefixes.
        is_empty: whether the last read has left no message in the socket.
        outcomes: results of handshakes, as the monitor has reported them.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        endpoint: str,
        prefixes: Iterable[bytes] | None,
        *,
        binds: bool,
        message_bytes: int,
        high_water_mark: int,
        keys: SubscriberKeys | None = None,
        multicast: Multicast | None = None,
    ) -> None:
        """Create the SUB and connect or bind it.

        Args:
            context: context of the socket.
            endpoint: endpoint to connect or bind.
            prefixes: prefixes to subscribe to; None if the socket must not serve yet.
            binds: whether to bind the endpoint.
            message_bytes: maximum size of a frame in bytes.
            high_water_mark: maximum number of messages that wait in the socket.
            keys: keys of the publishers; None without security.
            multicast: options of a multicast endpoint; None for any other endpoint.

        Raises:
            EndpointError: libzmq refuses the endpoint.
        """
        self._files = SocketFiles()
        self.monitor: Monitor | None = None
        runtime = runtime_of(context)
        self.socket: zmq.Socket[bytes] = context.socket(zmq.SUB, socket_class=zmq.Socket)
        self._raw = raw_socket(self.socket)
        self._read = message_reader(self.socket, runtime)
        self.fds = [int(self.socket.getsockopt(zmq.FD))]
        self.outcomes: list[Outcome] = []
        self._keys: SubscriberKeys | None = None
        try:
            if multicast is not None:
                configure(self.socket, multicast, is_publisher=False)
                endpoint = str(Claim(endpoint, mtu=multicast.mtu, is_publisher=False).endpoint)
            elif keys is not None and not endpoint.startswith("inproc:"):
                if binds:
                    keys.serve(self.socket, runtime.clock())
                    self._keys = keys
                else:
                    keys.prepare(self.socket, endpoint)
            self._open(endpoint, prefixes, binds, message_bytes, high_water_mark)
        except BaseException:
            self.close()
            raise

    def _open(
        self,
        endpoint: str,
        prefixes: Iterable[bytes] | None,
        binds: bool,
        message_bytes: int,
        high_water_mark: int,
    ) -> None:
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, high_water_mark),
            (zmq.MAXMSGSIZE, message_bytes),
            (zmq.IPV6, int(needs_ipv6(endpoint))),
            (zmq.TCP_KEEPALIVE, 1),
            (zmq.TCP_KEEPALIVE_IDLE, 5),
            (zmq.TCP_KEEPALIVE_INTVL, 2),
            (zmq.TCP_KEEPALIVE_CNT, 3),
            (zmq.RECONNECT_IVL_MAX, 1_000),
        ):
            self.socket.setsockopt(option, value)
        self.serves = False
        if prefixes is not None:
            self.serve(prefixes)
        self.is_empty = False
        # Inproc and multicast have no handshake. For a bound socket, the monitor does not show whether a peer is ready.
        self.is_reached = binds or endpoint.startswith("inproc://") or is_multicast(endpoint)
        if not self.is_reached:
            events = HANDSHAKES | zmq.EVENT_DISCONNECTED
            self.monitor = Monitor(self.socket, int(events))
            self.fds.append(self.monitor.fd)
        with refused_by_libzmq(endpoint, "name the host and the port of the other side"):
            if binds:
                self._files.bind(self.socket, endpoint, lambda socket, where: socket.bind(where))
                last: Any = self.socket.getsockopt(zmq.LAST_ENDPOINT)
                endpoint = last.rstrip(b"\0").decode()
            else:
                self.socket.connect(endpoint)
        self.endpoint = endpoint

    @property
    def is_ready(self) -> bool:
        """Whether a publisher is connected and the socket serves."""
        return self.is_reached and self.serves

    def serve(self, prefixes: Iterable[bytes]) -> None:
        """Subscribe to the prefixes. A second call has no effect."""
        if not self.serves:
            for prefix in prefixes:
                self.socket.setsockopt(zmq.SUBSCRIBE, prefix)
            self.serves = True

    def subscribe(self, prefixes: Iterable[bytes]) -> None:
        """Subscribe to more prefixes, if the socket serves. libzmq counts equal prefixes."""
        if self.serves:
            for prefix in prefixes:
                self.socket.setsockopt(zmq.SUBSCRIBE, prefix)

    def unsubscribe(self, prefixes: Iterable[bytes]) -> None:
        """End one subscription to each prefix, if the socket serves."""
        if self.serves:
            for prefix in prefixes:
                self.socket.setsockopt(zmq.UNSUBSCRIBE, prefix)

    def read(self, limit: int) -> list[list[bytes]]:
        """Return at most `limit` messages, each as a list of frames."""
        messages: list[list[bytes]] = []
        self.is_empty = False
        if self._raw is not None:
            messages = self._raw.read(limit, _MAX_FRAMES)
            self.is_empty = len(messages) < limit
            return messages
        try:
            while len(messages) < limit:
                messages.append(self._read(self.socket))
        except zmq.Again:
            self.is_empty = True
        return messages

    def read_keyed(self, limit: int) -> list[tuple[str | None, list[bytes]]]:
        """Return at most `limit` messages of a bound socket, each as a pair of the publisher's key and the frames."""
        messages: list[tuple[str | None, list[bytes]]] = []
        self.is_empty = False
        try:
            while len(messages) < limit:
                frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
                messages.append((key_of_client(frames[0]), [frame.bytes for frame in frames]))
        except zmq.Again:
            self.is_empty = True
        return messages

    def read_monitor(self) -> bool:
        """Read the events of the monitor, and update `is_reached`; return whether there was an event."""
        has_any = False
        for event in self.monitor.read() if self.monitor is not None else ():
            has_any, self.is_reached = True, event.outcome is Outcome.ADMITTED
            if event.outcome is not None:
                self.outcomes.append(event.outcome)
        return has_any

    def close(self) -> None:
        """Close the socket."""
        if self.monitor is not None:
            self.monitor.close()
        if self._keys is not None:
            self._keys.unwatch(self.socket)
        self._files.remove_all()
        self.socket.close(0)
