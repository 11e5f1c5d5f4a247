"""Search for the key of a listener: a connection is tried with each trusted key.

A client of CURVE must know the key of its server before it connects. With a wrong key, it detects only that
the handshake has failed. Source: ZeroMQ RFC 26 (CurveZMQ).
"""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from math import ceil
from typing import Any

import zmq

from oz.transport.certificates import KeyPair

HANDSHAKE_TIMEOUT, BUSY_HANDSHAKE_TIMEOUT = 2.0, 10.0
"""Seconds to wait for handshakes with a listener that accepts connections. After a first failed handshake, the longer
timeout applies: the listener is known to check keys, and its authenticator in Python may be slow."""

_ACCEPT_TIMEOUT = 0.3
"""Seconds to wait until the listener accepts a connection. After this time the outcome is ABSENT."""

_BATCH = 16
"""Number of keys that a search tries at the same time, each on its own connection. The number is small, because many
callers may search at one listener, whose backlog is limited."""

_RECONNECT_INTERVAL = 1_000 * ceil(BUSY_HANDSHAKE_TIMEOUT)
"""Milliseconds until libzmq connects again. The time is as long as the longest search, so that libzmq repeats no
handshake during a search."""

_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_EVENTS = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_DISCONNECTED
    | _FAILED
)


class Probed(enum.Enum):
    """Outcome of a search."""

    ADMITTED = enum.auto()
    """The listener has one of the keys, and trusts the key of this side."""
    REFUSED = enum.auto()
    """The listener has one of the keys, and does not trust the key of this side."""
    STRANGER = enum.auto()
    """The listener has none of the keys."""
    KEYLESS = enum.auto()
    """The listener demands no keys. `probe` reports it as STRANGER."""
    SILENT = enum.auto()
    """The listener accepts connections, but has not answered some handshakes. The listener may be busy."""
    ABSENT = enum.auto()
    """Nothing listens yet."""


def probe(endpoint: str, kind: int, pair: KeyPair, candidates: Sequence[str]) -> tuple[Probed, str | None]:
    """Find the key of the listener at an endpoint among some keys.

    Args:
        endpoint: `tcp://` or `ipc://` endpoint of the listener.
        kind: ZeroMQ type of the socket that connects, which must fit the socket of the listener.
        pair: key pair of this side.
        candidates: public keys to try.

    Returns:
        The outcome; and the public key of the listener, or None if the key is unknown.
    """
    found: tuple[Probed, str | None] = (Probed.ABSENT, None)
    for at in range(0, len(candidates), _BATCH):
        with zmq.Context() as context:
            tried = [_Try(context, endpoint, kind, pair, key) for key in candidates[at : at + _BATCH]]
            try:
                found = _outcome(tried)
            finally:
                for attempt in tried:
                    attempt.close()
        if found[0] is not Probed.STRANGER:
            break
    return found


class _Try:
    """Connection that tries one key."""

    def __init__(self, context: zmq.Context[Any], endpoint: str, kind: int, pair: KeyPair, key: str) -> None:
        self.key = key
        self.outcome: Probed | None = None
        self.has_connected = False
        self._socket = socket = context.socket(kind)
        socket.set(zmq.LINGER, 0)
        # With the default, libzmq would repeat a failed handshake every 0.1 s.
        socket.set(zmq.RECONNECT_IVL, _RECONNECT_INTERVAL)
        socket.set(zmq.CURVE_PUBLICKEY, pair.public.encode())
        socket.set(zmq.CURVE_SECRETKEY, pair.secret.encode())
        socket.set(zmq.CURVE_SERVERKEY, key.encode())
        self.monitor = socket.get_monitor_socket(_EVENTS)
        socket.connect(endpoint)

    def read(self) -> None:
        # Import this module here, because it imports asyncio.
        from zmq.utils.monitor import parse_monitor_message

        while self.outcome is None and self.monitor.get(zmq.EVENTS) & zmq.POLLIN:
            event = parse_monitor_message(self.monitor.recv_multipart())["event"]
            if event == zmq.EVENT_CONNECTED:
                self.has_connected = True
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self.outcome = Probed.ADMITTED
            elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self.outcome = Probed.REFUSED
            elif event == zmq.EVENT_CONNECT_RETRIED and not self.has_connected:
                self.outcome = Probed.ABSENT
            elif self.has_connected:
                # The handshake failed, or the listener closed the connection.
                self.outcome = Probed.STRANGER

    def close(self) -> None:
        if self._socket.closed:
            return
        self._socket.disable_monitor()
        self.monitor.close(0)
        self._socket.close(0)


def _outcome(tried: Sequence[_Try]) -> tuple[Probed, str | None]:
    poller, begun = zmq.Poller(), time.monotonic()
    for attempt in tried:
        poller.register(attempt.monitor, zmq.POLLIN)
    while True:
        for attempt in [attempt for attempt in tried if attempt.outcome is None]:
            attempt.read()
            if attempt.outcome in (Probed.ADMITTED, Probed.REFUSED):
                return attempt.outcome, attempt.key
            if attempt.outcome is not None:
                poller.unregister(attempt.monitor)
                attempt.close()
        waiting = [attempt for attempt in tried if attempt.outcome is None]
        left = begun + _timeout(tried) - time.monotonic()
        if not waiting or left <= 0:
            break
        poller.poll(ceil(1000 * left))
    if not any(attempt.has_connected for attempt in tried):
        return Probed.ABSENT, None
    return (Probed.SILENT if waiting else Probed.STRANGER), None


def _timeout(tried: Sequence[_Try]) -> float:
    if not any(attempt.has_connected for attempt in tried):
        return _ACCEPT_TIMEOUT
    has_answered = any(attempt.outcome is Probed.STRANGER for attempt in tried)
    return BUSY_HANDSHAKE_TIMEOUT if has_answered else HANDSHAKE_TIMEOUT
