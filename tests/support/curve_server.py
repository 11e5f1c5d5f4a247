"""CURVE server that sends any properties, including names that libzmq does not let programs send.

It implements ZMTP itself, with the libsodium of pyzmq's wheels. Sources: ZeroMQ RFC 23 and RFC 26.
"""

import contextlib
import ctypes
import glob
import os
import socket
import threading

import zmq
from zmq.utils import z85

_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + b"\x01" + bytes(31)


def _library():
    beside = os.path.join(os.path.dirname(os.path.dirname(zmq.__file__)), "pyzmq.libs", "libsodium*")
    return next(iter(glob.glob(beside)), None)


SODIUM = _library()
"""The path of libsodium; None where the wheel has none."""


class CurveServer:
    """Listener that admits one SUB without a check of its key, and sends any properties in READY.

    Attributes:
        endpoint: where.
    """

    def __init__(self, pair, properties, message):
        self._sodium = ctypes.CDLL(SODIUM)
        self._secret = z85.decode(pair.secret)
        self._properties = properties
        self._message = message
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._kept = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for item in self._kept:
            item.close()

    def _serve(self):
        try:
            while True:
                connection, _ = self._listener.accept()
                self._kept.append(connection)
                threading.Thread(target=self._greet, args=(connection,), daemon=True).start()
        except OSError:
            pass

    def _greet(self, connection):
        with contextlib.suppress(OSError, EOFError):
            self._shake_hands(connection)

    def _shake_hands(self, connection):
        connection.sendall(_GREETING)
        _exactly(connection, len(_GREETING))
        hello = _frame(connection)
        client = hello[6 + 2 + 72 :][:32]
        public, secret = self._pair()
        nonce = os.urandom(16)
        welcome = self._box(public + os.urandom(96), b"WELCOME-" + nonce, client, self._secret)
        _send(connection, 0x04, b"\x07WELCOME" + nonce + welcome)
        _frame(connection)
        ready = self._box(_metadata(self._properties), b"CurveZMQREADY---" + _number(1), client, secret)
        _send(connection, 0x04, b"\x05READY" + _number(1) + ready)
        for count in range(2, 1_000_000):
            _frame(connection)
            flags_and_body = b"\x00" + self._message
            box = self._box(flags_and_body, b"CurveZMQMESSAGES" + _number(count), client, secret)
            _send(connection, 0x00, b"\x07MESSAGE" + _number(count) + box)

    def _pair(self):
        public, secret = ctypes.create_string_buffer(32), ctypes.create_string_buffer(32)
        self._sodium.crypto_box_keypair(public, secret)
        return public.raw, secret.raw

    def _box(self, text, nonce, public, secret):
        made = ctypes.create_string_buffer(len(text) + 16)
        size = ctypes.c_ulonglong(len(text))
        assert not self._sodium.crypto_box_easy(made, text, size, nonce, public, secret)
        return made.raw


def _number(count):
    return count.to_bytes(8, "big")


def _metadata(properties):
    return b"".join(
        bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value for name, value in properties
    )


def _send(connection, flags, body):
    if len(body) < 256:
        connection.sendall(bytes((flags, len(body))) + body)
    else:
        connection.sendall(bytes((flags | 0x02,)) + _number(len(body)) + body)


def _frame(connection):
    flags, size = _exactly(connection, 2)
    if flags & 0x02:
        size = int.from_bytes(bytes((size,)) + _exactly(connection, 7), "big")
    return _exactly(connection, size)


def _exactly(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
