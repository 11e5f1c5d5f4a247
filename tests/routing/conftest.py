import json
import socket
import struct
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

import oz
from support.ports import lasting_port
from support.scripts import started
from support.waiting import DEADLINE, until

HERE = Path(__file__).parent


class Ledger:
    """What a subscriber got, and what it said it lost: together all that was published, to the message."""

    def __init__(self):
        self.messages = []
        self.gaps = []

    def note(self, gap):
        self.gaps.append(gap)

    def take(self, sub, timeout=0.02):
        with suppress(oz.Timeout):
            while True:
                self.messages.append(sub.receive(timeout=timeout))

    def settle(self, sub, published, timeout=DEADLINE):
        """Receive until all that was published is accounted for; payloads are numbers from 0."""

        def is_settled():
            self.take(sub)
            return len(self.messages) + sub.stats.lost >= published

        until(is_settled, timeout)
        lost = sub.stats.lost
        assert len(self.messages) + lost == published
        assert sum(gap.count for gap in self.gaps) == lost
        expected = 0
        for message in self.messages:
            number = int(message.payload[:12])
            assert message.gap == number - expected
            expected = number + 1
        assert sum(message.gap for message in self.messages) + published - expected == lost


@pytest.fixture
def ledger():
    return Ledger()


class Relay:
    """Passes TCP connections on until it is cut, which resets them wherever they are."""

    def __init__(self, endpoint):
        host, port = endpoint.removeprefix("tcp://").split(":")
        self._upstream = host, int(port)
        self._port = lasting_port()
        self._ends = []
        self._lock = threading.Lock()
        self.restore()

    @property
    def endpoint(self):
        return f"tcp://127.0.0.1:{self._port}"

    def restore(self):
        self._listener = socket.create_server(("127.0.0.1", self._port), reuse_port=False)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener):
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                try:
                    far = socket.create_connection(self._upstream)
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    self._ends += (near, far)
                    if listener is not self._listener:
                        near.close()
                        far.close()
                        return
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source, target):
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def cut(self):
        with self._lock:
            ends, self._ends = self._ends, []
            listener, self._listener = self._listener, None
            for one in ends:
                with suppress(OSError):
                    # Reset: what is on its way is gone.
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    one.shutdown(socket.SHUT_RD)
                one.close()
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()


@pytest.fixture
def relay():
    """Make relays to endpoints."""
    relays = []

    def make(endpoint):
        relays.append(Relay(endpoint))
        return relays[-1]

    yield make
    for one in relays:
        one.cut()


class Program:
    """A program beside this file, in a process of its own; it answers each line that it is sent."""

    def __init__(self, stack, name, *arguments):
        self._arguments = HERE / f"{name}.py", *arguments
        self._stack = stack
        self.start()

    def start(self, *arguments):
        if arguments:
            self._arguments = self._arguments[0], *arguments
        self.process = self._stack.enter_context(started(*self._arguments))

    def hear(self):
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return line.strip()

    def send(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def ask(self, line):
        self.send(line)
        return self.hear()

    def report(self, line=""):
        return SimpleNamespace(**json.loads(self.ask(line)))

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def program():
    """Start programs from this directory: name and arguments."""
    with ExitStack() as stack:
        yield lambda name, *arguments: Program(stack, name, *arguments)


class Proxy(Program):
    """A plain proxy that comes back on the same ports."""

    def __init__(self, stack):
        super().__init__(stack, "proxy", lasting_port(), lasting_port())
        self.publishers, self.subscribers = self.hear().split()

    def restart(self):
        self.start(*(one.rpartition(":")[2] for one in (self.publishers, self.subscribers)))
        self.hear()


@pytest.fixture
def proxy():
    with ExitStack() as stack:
        yield Proxy(stack)
