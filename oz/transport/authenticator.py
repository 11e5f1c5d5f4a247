"""The authenticators, which say who may connect: one for each context, as ZeroMQ asks one address for all.

Each has a thread, which ends with the context, and holds up nobody who ends that.
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
    """The owner of a domain: it knows who may connect to its sockets."""

    domain: str

    def admits(self, key: str, address: str) -> bool:
        """Tell whether a peer that has proved to have a key may connect, and count it if not.

        Args:
            key: its public key, in Z85.
            address: its IP address.
        """
        ...


class ContextAuthenticator(Authenticator):
    """pyzmq's authenticator, for all domains of one context, in a thread of its own."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        """Begin to answer for a context.

        Raises:
            ConfigurationError: another authenticator answers for it already.
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
        """Answer for the sockets of a domain too."""
        self._admissions[admission] = admission.domain

    def _answer(self) -> None:
        """Answer until the context ends."""
        try:
            while True:
                message = self.zap_socket.recv_multipart()
                try:
                    # It awaits nothing: what it asks answers at once.
                    for _ in self.handle_zap_message(message).__await__():
                        pass
                except zmq.ZMQError:
                    raise
                except Exception:
                    _log.exception("a connection is refused: who it is could not be found out")
                    self._send_zap_reply(message[1] if len(message) > 1 else b"", b"500", b"internal error")
        except zmq.ZMQError:
            # The context ends, which waits for this.
            self.zap_socket.close(0)

    async def handle_zap_message(self, msg: list[bytes]) -> None:
        """Admit those with a trusted key; nobody comes in without CURVE."""
        if len(msg) != 7 or msg[5] != b"CURVE" or len(msg[6]) != 32:
            if len(msg) > 1:
                self._send_zap_reply(msg[1], b"400", b"CURVE is needed")
            return
        version, number, domain, address, _, _, credentials = msg
        name, key = domain.decode("utf-8", "replace"), z85.encode(credentials).decode()
        with _lock:
            asked = next((one for one, its in self._admissions.items() if its == name), None)
        if version != b"1.0" or asked is None or not asked.admits(key, address.decode("utf-8", "replace")):
            self._send_zap_reply(number, b"400", b"unknown key")
        else:
            self._send_zap_reply(number, b"200", b"OK", key)


_lock = threading.Lock()
_authenticators: WeakKeyDictionary[zmq.Context[Any], ContextAuthenticator] = WeakKeyDictionary()


def authenticate(context: zmq.Context[Any], admission: Admission) -> None:
    """Have a context ask who may connect to the sockets of a domain.

    Args:
        context: of the sockets.
        admission: knows who may; it is kept only as long as somebody else has it.

    Raises:
        ConfigurationError: another authenticator answers for the context already.
    """
    with _lock:
        found = _authenticators.get(context)
        if found is None:
            found = _authenticators[context] = ContextAuthenticator(context)
        found.add(admission)
