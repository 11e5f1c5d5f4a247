"""Authenticators, which libzmq asks whether a peer with a CURVE key may connect.

A context has one authenticator, because libzmq sends the requests of all its sockets to one address. The authenticator
runs in its own thread, which ends with the context.
Source: ZeroMQ RFC 27 (ZAP).
"""

from __future__ import annotations

import threading
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import zmq
from zmq.auth import Authenticator
from zmq.utils import z85

from oz.errors import ConfigurationError
from oz.logs import peer_logger

_log = peer_logger("oz.security")


class Admission(Protocol):
    """Owner of a ZAP domain. The owner decides which keys may connect to the sockets of the domain."""

    domain: str

    def admits(self, key: str, address: str) -> bool:
        """Return whether a peer that has proved a key may connect. Count the peer as refused if not.

        Args:
            key: public key of the peer, in Z85 (text of 40 characters).
            address: IP address of the peer.
        """
        ...


class ContextAuthenticator(Authenticator):
    """pyzmq's authenticator, extended to answer for all domains of one context in its own thread."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        """Start to answer the requests of a context.

        Raises:
            ConfigurationError: the context has another authenticator.
        """
        super().__init__(context)
        self._admissions: WeakKeyDictionary[Admission, str] = WeakKeyDictionary()
        self.zap_socket = zmq.Socket(context, zmq.REP)
        try:
            self.zap_socket.bind("inproc://zeromq.zap.01")
        except zmq.ZMQError as error:
            self.zap_socket.close(0)
            raise ConfigurationError(
                "security",
                None,
                "argument",
                f"the context has an authenticator already ({error}); give the socket a context of its own",
            ) from None
        threading.Thread(target=self._answer, name="oz-authenticator", daemon=True).start()

    def add(self, admission: Admission) -> None:
        """Make an owner answer the requests of its domain."""
        self._admissions[admission] = admission.domain

    def _answer(self) -> None:
        try:
            while True:
                message = self.zap_socket.recv_multipart()
                try:
                    # The loop runs the coroutine to its end: `handle_zap_message` awaits nothing.
                    for _ in self.handle_zap_message(message).__await__():
                        pass
                except zmq.ZMQError:
                    raise
                except Exception:
                    _log.exception("a connection is refused: its key could not be checked")
                    self._send_zap_reply(message[1] if len(message) > 1 else b"", b"500", b"internal error")
        except zmq.ZMQError:
            # The context has ended. `zmq.Context.term` waits until this socket is closed.
            self.zap_socket.close(0)

    async def handle_zap_message(self, msg: list[bytes]) -> None:
        """Answer one ZAP request: admit a peer with a trusted key, refuse any other peer."""
        if len(msg) != 7 or msg[5] != b"CURVE" or len(msg[6]) != 32:
            if len(msg) > 1:
                self._send_zap_reply(msg[1], b"400", b"CURVE is needed")
            return
        version, number, domain, address, _, _, credentials = msg
        name, key = domain.decode("utf-8", "replace"), z85.encode(credentials).decode()
        with _lock:
            asked = next((admission for admission, its in self._admissions.items() if its == name), None)
        if version != b"1.0" or asked is None or not asked.admits(key, address.decode("utf-8", "replace")):
            self._send_zap_reply(number, b"400", b"unknown key")
        else:
            self._send_zap_reply(number, b"200", b"OK", key)


_lock = threading.Lock()
_authenticators: WeakKeyDictionary[zmq.Context[Any], ContextAuthenticator] = WeakKeyDictionary()


def authenticate(context: zmq.Context[Any], admission: Admission) -> None:
    """Make the owner of a domain decide which keys may connect to the sockets of the domain.

    Args:
        context: context of the sockets.
        admission: owner of the domain. The authenticator holds a weak reference.

    Raises:
        ConfigurationError: the context has another authenticator.
    """
    with _lock:
        found = _authenticators.get(context)
        if found is None:
            found = _authenticators[context] = ContextAuthenticator(context)
        found.add(admission)
