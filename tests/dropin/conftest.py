"""Context and publisher for the tests of drop-in sockets."""

import pytest
import zmq

from support.waiting import DEADLINE


class Publisher:
    """XPUB of pyzmq: it knows when a subscription has arrived."""

    def __init__(self, context, address="tcp://127.0.0.1:*"):
        self.socket = context.socket(zmq.XPUB)
        self.socket.sndhwm = 0
        # Each subscription is reported, not only the first of its kind.
        self.socket.set(zmq.XPUB_VERBOSER, 1)
        self.socket.bind(address)
        self.endpoint = self.socket.last_endpoint.decode()

    def expect(self, count=1):
        """Wait for subscriptions or their ends, and return them."""
        found = []
        for _ in range(count):
            assert self.socket.poll(DEADLINE * 1000)
            found.append(self.socket.recv())
        return found

    def send(self, *frames):
        """Send a message."""
        self.socket.send_multipart([frame.encode() if isinstance(frame, str) else frame for frame in frames])


@pytest.fixture
def context():
    made = zmq.Context()
    yield made
    made.destroy(0)


@pytest.fixture
def made():
    """Function that closes a socket when the test is over."""
    sockets = []

    def keep(socket):
        sockets.append(socket)
        return socket

    yield keep
    for socket in sockets:
        socket.close(0)


@pytest.fixture
def publisher(context):
    made = Publisher(context)
    yield made
    # Not 0: libzmq aborts if a connection ends inside a multipart message of a socket that closes without linger.
    made.socket.close(1000)


@pytest.fixture
def make_sub(context, publisher):
    """Function that makes a connected SubSocket, and waits until its subscriptions have arrived."""
    import oz

    made = []

    def make(*patterns, dialect="nats", **options):
        sub = context.socket(zmq.SUB, socket_class=oz.SubSocket, dialect=dialect, **options)
        made.append(sub)
        sub.rcvtimeo = int(DEADLINE * 1000)
        sub.connect(publisher.endpoint)
        for pattern in patterns:
            sub.subscribe(pattern)
        publisher.expect(
            sum(len(oz.compile(pattern).prefixes) for pattern in patterns if isinstance(pattern, str))
        )
        publisher.expect(sum(isinstance(pattern, bytes) for pattern in patterns))
        return sub

    yield make
    for sub in made:
        sub.close(0)
