"""Plain subscribers of a publisher with keys: the requested and the allowed prefixes of each connection.

Theory of operation
-------------------
Each subscription frame carries the connection and the key of its sender. With a permissions file the XPUB is in manual
mode: libzmq reports each subscription, and applies the subscription only when the publisher requests this. Without a
permissions file the XPUB applies all subscriptions, and this class records the connections of each key.

Manual mode has these limits (`docs/libzmq.md`):

- libzmq applies a subscription to the connection whose frame was read last. After a frame that is not a subscription,
  libzmq may choose a wrong connection. The publisher then ignores frames and cuts their connections, until no frame
  waits any more. The subscribers connect again.
- libzmq reads freed memory if a connection ends before its frames were read. Therefore the publisher reads all
  frames without a check of EVENTS in between.
- When a connection ends, libzmq reports each prefix that the connection requested, including refused prefixes, but
  does not name the connection. `match_reports` finds the connections whose descriptor is closed. A report that matches
  no closed connection within a second comes from a subscriber inside the process (inproc).

The publisher counts the subscriptions to each prefix. If a count is too high, the publisher sends messages that no
subscriber wants. If a count is too low, subscribers lose messages. Therefore a report is never assigned by a guess.
"""

from __future__ import annotations

from collections import Counter
from time import monotonic
from typing import Any

import zmq

from oz.logs import peer_logger
from oz.publisher.keys import PublisherKeys
from oz.publisher.plain import PlainSubscribers
from oz.transport.connections import Connection, cut, inode_of

MAX_READ = 1_000
"""Maximum number of frames that one call of `read` reads."""
INSIDE_AFTER = 1.0
"""If a report has matched no closed connection for this number of seconds, it belongs to an inproc subscriber."""

_LAST = int(zmq.NOBLOCK)
_SUBSCRIBE, _UNSUBSCRIBE = int(zmq.SUBSCRIBE), int(zmq.UNSUBSCRIBE)
_ADD, _REMOVE = b"\x01", b"\x00"
_MIN_SWEEP = 64  # Minimum number of known connections at which `read` searches for closed ones.
_ENTRY = 64  # Bytes added to the length of each prefix, as an estimate of its memory.

_log = peer_logger("oz.publisher")


class _Held:
    """Prefixes of one connection.

    Attributes:
        held: dict from each allowed prefix to the number of subscriptions.
        refused: requested prefixes that the permissions do not allow.
        size: estimated memory in bytes of the requested prefixes.
    """

    __slots__ = ("held", "refused", "size")

    def __init__(self) -> None:
        self.held: Counter[bytes] = Counter()
        self.refused: set[bytes] = set()
        self.size = 0


class KeyedPlainSubscribers(PlainSubscribers):
    """XPUB of a publisher with keys."""

    def __init__(
        self,
        context: zmq.Context[Any],
        *,
        keys: PublisherKeys,
        longest_prefix: int,
        **options: Any,
    ) -> None:
        """Create the socket, without endpoints.

        Args:
            context: ZeroMQ context of the socket.
            keys: keys of the publisher.
            longest_prefix: maximum size in bytes of a subscription. After a denied subscription, the limit also applies
                to all subscriptions of the connection together: the publisher cuts a connection above the limit.
            options: other arguments of `PlainSubscribers`.
        """
        super().__init__(context, longest_prefix=longest_prefix, **options)
        self._keys, self._max_bytes = keys, longest_prefix
        self._connections: dict[Connection, _Held] = {}
        self._reported: dict[bytes, list[float]] = {}
        self._expected: Counter[bytes] = Counter()
        self._inside: Counter[bytes] = Counter()
        self._is_manual = keys.has_permissions
        self._is_astray = False
        self._sweep_at = _MIN_SWEEP
        if self._is_manual:
            self.socket.setsockopt(zmq.XPUB_MANUAL, 1)

    def read(self, limit: int) -> bool:
        """Read all waiting subscriptions; return whether at least one was read.

        Args:
            limit: ignored, because all waiting frames must be read together.
        """
        if not self.has_input():
            return False
        now = monotonic()
        for _ in range(MAX_READ):
            try:
                frame, peer = self._keys.receive(self.socket, _LAST)
            except zmq.Again:
                self._is_astray = False
                break
            if self._is_manual:
                self._on_frame(frame, peer, now)
            else:
                self._apply(frame)
                if peer is not None and frame[:1] == _ADD:
                    self._connections.setdefault(peer, _Held())
        if len(self._connections) >= self._sweep_at:
            self._sweep()
            self._sweep_at = max(_MIN_SWEEP, 2 * len(self._connections))
        self.match_reports(now)
        return True

    def _on_frame(self, frame: bytes, peer: Connection | None, now: float) -> None:
        kind, prefix = frame[:1], frame[1:]
        if kind == _REMOVE:
            if peer is None:
                self._reported.setdefault(prefix, []).append(now)
            else:
                self._unsubscribe(peer, prefix)
            return
        if kind != _ADD:
            self._is_astray = True
        if self._is_astray:
            if peer is not None:
                _log.warning(
                    "a connection of key %s is ended: it sent a frame that is no subscription; only SUB and XSUB "
                    "sockets may connect to a publisher",
                    peer.key,
                )
                cut(peer)
                self._expect(peer, prefix, kind)
        elif peer is None:
            self._inside[prefix] += 1
            self._grant(frame)
        elif peer.inode is None:
            # The connection has ended already.
            self._expect(peer, prefix, kind)
        else:
            self._subscribe(peer, frame, prefix)

    def _expect(self, peer: Connection, prefix: bytes, kind: bytes) -> None:
        """Record a prefix that was not applied. libzmq reports this prefix too when the connection ends."""
        if kind == _ADD and peer not in self._connections:
            self._expected[prefix] += 1
        elif kind == _ADD:
            self._connections[peer].refused.add(prefix)

    def _grant(self, frame: bytes) -> None:
        self.socket.setsockopt(_SUBSCRIBE, frame[1:])
        self._apply(frame)

    def _subscribe(self, peer: Connection, frame: bytes, prefix: bytes) -> None:
        connection = self._connections.setdefault(peer, _Held())
        connection.size += len(prefix) + _ENTRY
        denial = self._keys.access.denial_of_key(peer.key or "", prefix)
        if denial is None:
            connection.held[prefix] += 1
            self._grant(frame)
            return
        connection.refused.add(prefix)
        self._keys.count(peer.key or "", denial)
        if connection.size > self._max_bytes:
            _log.warning(
                "a connection of key %s is ended: its subscriptions, with a denied one, exceed %d bytes; change "
                "its subscriptions or the permissions",
                peer.key,
                self._max_bytes,
            )
            cut(peer)

    def _unsubscribe(self, peer: Connection, prefix: bytes) -> None:
        connection = self._connections.get(peer)
        if connection is None:
            return
        if not connection.held[prefix]:
            connection.refused.discard(prefix)
            return
        connection.held[prefix] -= 1
        connection.size -= len(prefix) + _ENTRY
        self._apply(_REMOVE + prefix)
        if not connection.held[prefix]:
            # libzmq keeps only one entry for a prefix of a connection, however often the connection has subscribed.
            del connection.held[prefix]
            if not self._is_astray:
                self.socket.setsockopt(_UNSUBSCRIBE, prefix)

    def _sweep(self) -> None:
        for peer in [known for known in self._connections if inode_of(known.descriptor) != known.inode]:
            connection = self._connections.pop(peer)
            if not self._is_manual:
                continue
            for prefix, count in connection.held.items():
                for _ in range(count):
                    self._apply(_REMOVE + prefix)
            self._expected.update((*connection.held, *connection.refused - connection.held.keys()))

    def match_reports(self, now: float) -> None:
        """Assign reported unsubscriptions to the connections that have ended.

        Args:
            now: current time in seconds of `time.monotonic`.
        """
        if not self._reported:
            return
        self._sweep()
        for prefix, times in [*self._reported.items()]:
            matched = min(len(times), self._expected[prefix])
            del times[:matched]
            self._expected[prefix] -= matched
            while times and now - times[0] >= INSIDE_AFTER:
                del times[0]
                if self._inside[prefix]:
                    self._inside[prefix] -= 1
                    self._apply(_REMOVE + prefix)
            if not times:
                del self._reported[prefix]
        self._expected, self._inside = +self._expected, +self._inside

    def reconsider(self) -> None:
        """Cut each connection whose key is no longer trusted, or that has a prefix that is no longer allowed.

        The subscribers may connect again.
        """
        self._sweep()
        access = self._keys.access
        for peer, connection in self._connections.items():
            key = peer.key or ""
            if self._keys.is_trusted(key) and not any(
                access.denial_of_key(key, prefix) for prefix in connection.held
            ):
                continue
            _log.warning(
                "a connection of key %s is ended: the trusted keys or the permissions have changed; it may "
                "subscribe again",
                key,
            )
            cut(peer)
