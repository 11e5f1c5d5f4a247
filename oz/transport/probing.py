"""The search for the key of a listener: the trusted keys are tried, each with a connection.

A client of CURVE must know the key of its server before it connects, and ZeroMQ says no more to one that has
it wrong than that the handshake failed. Source: ZeroMQ RFC 26 (CurveZMQ).
"""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from math import ceil
from typing import Any

import zmq

from oz.transport.certificates import KeyPair

PATIENCE, PATIENCE_WITH_BUSY = 2.0, 10.0
"""Seconds for which a handshake is waited for where somebody accepts connections, and where handshakes with
other keys have ended meanwhile: who may come in is asked by Python, which may have much else to do."""

_TO_ACCEPT = 0.3
"""Seconds for which it is waited for that somebody accepts one."""

_AT_ONCE = 16
"""Keys that are tried at once. Many may look for one listener, which has a queue for connections."""

_NOT_AGAIN = 1_000 * ceil(PATIENCE_WITH_BUSY)
"""Milliseconds before ZeroMQ connects again by itself: by then nobody waits any more."""

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
    """The outcome of trying keys."""

    ADMITTED = enum.auto()
    """Somebody has one of them, and trusts ours."""
    REFUSED = enum.auto()
    """Somebody has one of them, and does not trust ours."""
    STRANGER = enum.auto()
    """Somebody is there, and has none of them."""
    KEYLESS = enum.auto()
    """Somebody is there who demands no keys, and so has none; `probe` takes it for a stranger."""
    SILENT = enum.auto()
    """Somebody accepts connections and says nothing, or not all that there is to say: it may be busy."""
    ABSENT = enum.auto()
    """Nobody is there yet."""


def probe(endpoint: str, kind: int, pair: KeyPair, candidates: Sequence[str]) -> tuple[Probed, str | None]:
    """Find out which of some keys the listener at an endpoint has.

    Args:
        endpoint: of TCP or IPC.
        kind: the type of the socket that is to connect there.
        pair: the own keys.
        candidates: public keys.

    Returns:
        The outcome, and the key of the listener, where that is known.
    """
    found: tuple[Probed, str | None] = (Probed.ABSENT, None)
    for at in range(0, len(candidates), _AT_ONCE):
        with zmq.Context() as context:
            tried = [_Try(context, endpoint, kind, pair, key) for key in candidates[at : at + _AT_ONCE]]
            try:
                found = _outcome(tried)
            finally:
                for one in tried:
                    one.close()
        if found[0] is not Probed.STRANGER:
            break
    return found


class _Try:
    """A connection that tries one key."""

    def __init__(self, context: zmq.Context[Any], endpoint: str, kind: int, pair: KeyPair, key: str) -> None:
        self.key = key
        self.outcome: Probed | None = None
        self.has_connected = False
        self._socket = socket = context.socket(kind)
        socket.set(zmq.LINGER, 0)
        # ZeroMQ tries a handshake that has failed again, each 0.1 s, at a listener that many may look for.
        socket.set(zmq.RECONNECT_IVL, _NOT_AGAIN)
        socket.set(zmq.CURVE_PUBLICKEY, pair.public.encode())
        socket.set(zmq.CURVE_SECRETKEY, pair.secret.encode())
        socket.set(zmq.CURVE_SERVERKEY, key.encode())
        self.monitor = socket.get_monitor_socket(_EVENTS)
        socket.connect(endpoint)

    def read(self) -> None:
        """Take in what has happened to it."""
        # It imports asyncio, which most programs do without.
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
                # It failed, or the other side ended it.
                self.outcome = Probed.STRANGER

    def close(self) -> None:
        """End it, unless that was done."""
        if self._socket.closed:
            return
        self._socket.disable_monitor()
        self.monitor.close(0)
        self._socket.close(0)


def _outcome(tried: Sequence[_Try]) -> tuple[Probed, str | None]:
    """Wait until one is admitted or refused, or none can be any more."""
    poller, begun = zmq.Poller(), time.monotonic()
    for one in tried:
        poller.register(one.monitor, zmq.POLLIN)
    while True:
        for one in [one for one in tried if one.outcome is None]:
            one.read()
            if one.outcome in (Probed.ADMITTED, Probed.REFUSED):
                return one.outcome, one.key
            if one.outcome is not None:
                poller.unregister(one.monitor)
                one.close()
        waiting = [one for one in tried if one.outcome is None]
        left = begun + _patience(tried) - time.monotonic()
        if not waiting or left <= 0:
            break
        poller.poll(ceil(1000 * left))
    if not any(one.has_connected for one in tried):
        return Probed.ABSENT, None
    return (Probed.SILENT if waiting else Probed.STRANGER), None


def _patience(tried: Sequence[_Try]) -> float:
    """Return for how many seconds to wait, as far as is known now."""
    if not any(one.has_connected for one in tried):
        return _TO_ACCEPT
    return PATIENCE_WITH_BUSY if _has_answered(tried) else PATIENCE


def _has_answered(tried: Sequence[_Try]) -> bool:
    """Tell whether somebody there has said of a key that it is none of theirs."""
    return any(one.outcome is Probed.STRANGER for one in tried)
