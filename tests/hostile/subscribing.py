"""A subscriber that keeps no rules: `subscribing.py ATTACK ENDPOINT`, until it is killed.

It says when it is at it. It speaks ZMTP itself, as libzmq takes back only what was subscribed to.
Source: ZeroMQ RFC 23 (ZMTP 3.0).
"""

import itertools
import os
import select
import socket
import struct
import sys
import time

import zmq
from oz.wire.keys import STREAM, Declaration, Declared, DeliveryOptions, parse_declaration, stream_key

from support.sizes import size

NATS, REGEX = 1, 8
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 3) + b"SUB"


class Peer:
    """A connection to a publisher that sends whatever it likes."""

    def __init__(self, endpoint, *, reads=True):
        host, port = endpoint.removeprefix("tcp://").split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._reads = reads
        self._socket.sendall(GREETING + b"\x04" + bytes((len(READY),)) + READY)
        greeting = b""
        # libzmq takes no message before it has said READY too.
        while b"READY" not in greeting:
            greeting += self._socket.recv(1 << 16)
        if reads:
            self._socket.setblocking(False)

    def send(self, *frames):
        data = bytearray()
        for frame in frames:
            size = len(frame)
            data += bytes((0, size)) if size < 256 else b"\x02" + struct.pack(">Q", size)
            data += frame
        while data:
            readable, writable, _ = select.select([self._socket] * self._reads, [self._socket], [], 30)
            if readable and not self._socket.recv(1 << 16):
                raise SystemExit("cut off")
            if writable:
                del data[: self._socket.send(data[: 1 << 16])]

    def send_raw(self, data):
        """Send bytes that are no whole frame.

        Raises:
            OSError: it was cut off.
        """
        self._socket.sendall(data)

    def read(self, seconds):
        """Read what comes for so long, and throw it away."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            readable, _, _ = select.select([self._socket], [], [], left)
            if readable and not self._socket.recv(1 << 16):
                raise SystemExit("cut off")


def declare(stream, chunk, *texts, dialect=NATS, leaving=False, **delivery):
    patterns = tuple(Declared(dialect, text) for text in texts)
    return Declaration(stream, chunk, DeliveryOptions(**delivery), False, leaving, patterns).encode()


def unsubscribe_another(endpoint):
    """Learn what another subscriber has asked for as one of its publishers, and take it back elsewhere."""
    with zmq.Context() as context, context.socket(zmq.XPUB) as xpub:
        xpub.set(zmq.XPUB_MANUAL, 1)
        xpub.bind("tcp://127.0.0.1:*")
        print(xpub.get_string(zmq.LAST_ENDPOINT), flush=True)
        keys = []
        while not any(key.startswith(STREAM) for key in keys):
            keys.append(xpub.recv()[1:])
        name = next(key for key in keys if key.startswith(STREAM))[len(STREAM) :]
        declared = [parse_declaration(key).chunk for key in keys if not key.startswith(STREAM)]
        peer = Peer(endpoint)
        for chunk in itertools.count(max(declared) + 1_000):
            peer.send(b"\1" + declare(name, chunk, leaving=True), *(b"\0" + key for key in keys))
            peer.send(b"\1" + stream_key(name), b"\1" + declare(name, chunk + 10**6, leaving=True))
            if chunk % 10 == 0:
                yield
            peer.read(0.01)


def declare_without_end(endpoint):
    """Declare other patterns again and again, 8,000 times a second.

    libzmq itself reads what a connection sends until nothing is left, and files it by its bytes. So whoever
    sends some megabytes a second without a pause holds up any publisher, raw ones too.
    """
    peer, stream = Peer(endpoint), os.urandom(16)
    peer.send(b"\1" + stream_key(stream))
    for chunk in itertools.count(1, 80):
        peer.send(*(b"\1" + declare(stream, chunk + one, b"%d.*.%d.>" % (chunk, one)) for one in range(80)))
        peer.read(0.01)
        if chunk > size(2_000, 8_000):
            yield


def listen_on_many_streams(endpoint):
    """Have many more streams than anybody may, and declare something on each."""
    peer = Peer(endpoint)
    for number in range(size(5_000, 66_000)):
        stream = struct.pack(">QQ", number, number)
        peer.send(b"\1" + declare(stream, 1, b"hostile"), b"\1" + stream_key(stream))
    while True:
        yield
        peer.read(0.1)


def subscribe_to_long_prefixes(endpoint):
    """Subscribe to what is longer than any subject."""
    peer = Peer(endpoint)
    for number in range(1_000):
        peer.send(b"\1" + b"%03d" % number + os.urandom(1_100))
    while True:
        yield
        peer.read(0.1)


def join_a_group_many_times(endpoint):
    """Join the queue group of others with 200 streams."""
    peer = Peer(endpoint)
    for _ in range(200):
        stream = os.urandom(16)
        peer.send(b"\1" + declare(stream, 1, b"job", group="workers"), b"\1" + stream_key(stream))
    while True:
        peer.read(0.5)
        yield


def declare_empty_chunks(endpoint):
    """Declare chunks that ask for nothing, and some that are refused, and never read the answers."""
    peer, stream = Peer(endpoint, reads=False), os.urandom(16)
    peer.send(b"\1" + stream_key(stream))
    for chunk in range(0, size(10_000, 40_000), 2):
        peer.send(
            b"\1" + declare(stream, chunk), *[b"\1" + declare(stream, chunk + 1, b"..")] * (chunk < 2_000)
        )
        if chunk % 500 == 0:
            yield
    while True:
        yield
        time.sleep(0.1)


def be_refused_what_another_has(endpoint):
    """Subscribe to so much that what another has is refused; libzmq takes it back when this process ends."""
    peer = Peer(endpoint)
    for number in range(4_200):
        peer.send(b"\1" + b"%04d" % number + os.urandom(1_016))
    # Until there is no room for the shortest.
    peer.send(*(b"\1%03d" % number for number in range(1_000)), b"\1honest.")
    while True:
        peer.read(0.1)
        yield


def read_no_batches(endpoint):
    """Have everything sent on a stream of its own, and take nothing."""
    peer, stream = Peer(endpoint, reads=False), os.urandom(16)
    peer.send(b"\1" + stream_key(stream), b"\1" + declare(stream, 1, b">"))
    while True:
        yield
        time.sleep(0.1)


def read_no_messages(endpoint):
    """Have everything sent as ZeroMQ does, and take nothing."""
    peer = Peer(endpoint, reads=False)
    peer.send(b"\1")
    while True:
        yield
        time.sleep(0.1)


ATTACKS = {
    attack.__name__: attack
    for attack in (
        unsubscribe_another,
        declare_without_end,
        listen_on_many_streams,
        subscribe_to_long_prefixes,
        join_a_group_many_times,
        declare_empty_chunks,
        be_refused_what_another_has,
        read_no_batches,
        read_no_messages,
    )
}

if __name__ == "__main__":
    at_it = ATTACKS[sys.argv[1]](sys.argv[2])
    next(at_it)
    print("ready", flush=True)
    for _ in at_it:
        pass
