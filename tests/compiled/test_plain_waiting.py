"""Plain messages that wait for room, as a user may have them: the rest of the process goes on meanwhile."""

import ctypes
import errno

import pytest
import zmq

from oz.compiled import HOT
from oz.transport import backend
from oz.transport.backend import _send_parts
from support.scripts import run

NOBLOCK, MORE = int(zmq.NOBLOCK), int(zmq.SNDMORE)

BEGIN = """
import os, signal, sys, threading, time
import oz, zmq
from oz.transport import backend

way, count = sys.argv[1], 1_000
if way == "twin":
    backend.HOT = None
payload = b"x" if way == "compiled" else (b"x",)
context = zmq.Context()
sub = context.socket(zmq.SUB)
pub = oz.Publisher("inproc://here", context=context, high_water_mark=1)
# Of ZeroMQ, not by `on_full`: a publisher that drops sends plain messages without NOBLOCK.
pub.set(zmq.XPUB_NODROP, 1)
sub.set(zmq.RCVHWM, 1)
sub.subscribe(b"a")
sub.connect("inproc://here")
while not pub.interest("a"):
    time.sleep(0.001)
"""

READ_BY_ANOTHER = """
received = []
reader = threading.Thread(target=lambda: [received.append(sub.recv_multipart()) for _ in range(count)])
reader.start()
for _ in range(count):
    pub.publish("a", payload)
reader.join()
assert received == [[b"a", b"x"]] * count
"""

INTERRUPTED = """
is_over = threading.Event()

def interrupt():
    # One that comes before it waits is not seen by who waits then.
    while not is_over.wait(0.05):
        os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
sent = 0
try:
    while True:
        pub.publish("a", payload)
        sent += 1
except KeyboardInterrupt:
    pass
finally:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    is_over.set()
assert sent
pub.set(zmq.SNDTIMEO, 0)
for _ in range(sent):
    assert sub.recv_multipart() == [b"a", b"x"]
pub.publish("a", payload)
assert sub.recv_multipart() == [b"a", b"x"]
"""

END = """
pub.close(0)
sub.close(0)
context.term()
"""

WAYS = pytest.mark.parametrize("way", ["compiled", "several frames", "twin"])


@pytest.mark.heavy
@WAYS
def test_who_makes_room_may_be_a_thread_of_the_same_process(way):
    run("-c", BEGIN + READ_BY_ANOTHER + END, way)


PROTOTYPE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, use_errno=True
)


class Sendiov:
    """Stands for `zmq_sendiov`: fails with each number in turn, then sends; notes the flags of each call."""

    def __init__(self, *numbers):
        self.numbers, self.flags = list(numbers), []
        self.function = PROTOTYPE(self._call)

    def _call(self, socket, parts, count, flags):
        self.flags.append(flags)
        number = self.numbers.pop(0) if self.numbers else 0
        ctypes.set_errno(number)
        return -1 if number else 0


@pytest.fixture(params=["compiled", "twin"])
def send(request, monkeypatch):
    """Send a message of two frames through a function that stands for libzmq's; the number of an error."""
    if request.param == "compiled" and HOT is None:
        pytest.skip("the compiled part does not run")

    def call(sendiov, flags):
        if request.param == "compiled":
            address = ctypes.cast(sendiov.function, ctypes.c_void_p).value
            return HOT.send_parts(address, 1, (b"a", b"b"), flags)
        monkeypatch.setattr(backend, "SENDIOV", sendiov.function)
        monkeypatch.setattr(backend, "_WAITING", sendiov.function)
        return _send_parts(1, (b"a", b"b"), flags)

    return call


def test_what_finds_room_never_waits(send):
    sendiov = Sendiov()
    assert send(sendiov, MORE) == 0
    assert sendiov.flags == [MORE | NOBLOCK]


def test_what_finds_none_waits_if_it_may(send):
    sendiov = Sendiov(errno.EAGAIN)
    assert send(sendiov, MORE) == 0
    assert sendiov.flags == [MORE | NOBLOCK, MORE]
    sendiov = Sendiov(errno.EAGAIN)
    assert send(sendiov, MORE | NOBLOCK) == errno.EAGAIN
    assert sendiov.flags == [MORE | NOBLOCK]


def test_a_signal_does_not_end_it(send):
    sendiov = Sendiov(errno.EINTR, errno.EAGAIN, errno.EINTR)
    assert send(sendiov, MORE) == 0
    assert sendiov.flags == [MORE | NOBLOCK] * 2 + [MORE] * 2


def test_the_time_of_the_socket_does(send):
    # SNDTIMEO has passed.
    sendiov = Sendiov(errno.EAGAIN, errno.EAGAIN)
    assert send(sendiov, MORE) == errno.EAGAIN
    assert sendiov.flags == [MORE | NOBLOCK, MORE]
