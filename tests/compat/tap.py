"""Listens to a ZeroMQ connection over TCP: passes it on, and tells what went over it."""

import socket
import threading
from contextlib import suppress

_GREETING = 64
_MORE, _LONG, _COMMAND = 1, 2, 4


class Tap:
    """Stands between who connects and who is bound: `endpoint` is for the first, and leads to the second."""

    def __init__(self, endpoint):
        host, _, port = endpoint.removeprefix("tcp://").partition(":")
        self._to = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self.connections = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(self._to)
                except OSError:  # nobody is bound yet: who connects comes again
                    near.close()
                    continue
                up, down = bytearray(), bytearray()
                self.connections.append((up, down))
                for source, sink, seen in ((near, far, up), (far, near, down)):
                    threading.Thread(target=self._pump, args=(source, sink, seen), daemon=True).start()

    @staticmethod
    def _pump(source, sink, seen):
        with suppress(OSError):
            while data := source.recv(65_536):
                seen += data
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def told(self):
        """Give what came from who connected, and what from the other, of all connections."""
        ups, downs = zip(*self.connections, strict=True)
        return [sum((list(_spoken(bytes(one))) for one in seen), []) for seen in (ups, downs)]  # noqa: RUF017


def _spoken(data):
    """Read ZMTP 3: messages as lists of frames; a subscription is a byte and its key, as on an XPUB."""
    at, frames = _GREETING, []
    while at + 2 <= len(data):
        flags = data[at]
        is_long = flags & _LONG
        size, begin = (int.from_bytes(data[at + 1 : at + 9]), at + 9) if is_long else (data[at + 1], at + 2)
        body, at = data[begin : begin + size], begin + size
        if len(body) < size:
            return
        if flags & _COMMAND:
            name, rest = body[1 : 1 + body[0]], body[1 + body[0] :]
            if name in (b"SUBSCRIBE", b"CANCEL"):
                yield [bytes((name == b"SUBSCRIBE",)) + rest]
            continue
        frames.append(body)
        if not flags & _MORE:
            yield frames
            frames = []
