"""TCP connections whose other end has vanished are noticed by the system, and tried anew."""

import asyncio
import sys

import pytest
import zmq
import zmq.asyncio

import oz
from support.waiting import DEADLINE, until

OPTIONS = (
    zmq.TCP_KEEPALIVE,
    zmq.TCP_KEEPALIVE_IDLE,
    zmq.TCP_KEEPALIVE_INTVL,
    zmq.TCP_KEEPALIVE_CNT,
    zmq.CONNECT_TIMEOUT,
)
KEEPALIVE_TIMER = "02"


def options_of(socket):
    return [socket.get(option) for option in OPTIONS]


@pytest.mark.parametrize("kind", [oz.Publisher, oz.Subscriber])
def test_a_socket_keeps_its_connections_alive_unless_told_otherwise(kind):
    with kind() as socket:
        assert options_of(socket) == [1, 30, 5, 3, 5_000]
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 7)
        assert options_of(socket) == [1, 7, 5, 3, 5_000]


@pytest.mark.parametrize("kind", [oz.asyncio.Publisher, oz.asyncio.Subscriber])
def test_so_does_one_of_asyncio(kind):
    async def main():
        async with kind() as socket:
            assert options_of(socket) == [1, 30, 5, 3, 5_000]

    asyncio.run(main())


@pytest.mark.parametrize(("kind", "name"), [(zmq.SUB, "Subscriber"), (zmq.PUB, "Publisher")])
def test_what_a_context_says_of_its_sockets_holds(kind, name):
    with zmq.Context() as context:
        context.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 9)
        context.setsockopt(zmq.LINGER, 0)
        with getattr(oz, name)(context=context) as socket:
            assert options_of(socket) == [1, 9, 5, 3, 5_000]
        with context.socket(kind, socket_class=getattr(oz, name)) as socket:
            assert options_of(socket) == [1, 9, 5, 3, 5_000]


@pytest.mark.skipif(sys.platform != "linux", reason="the system's table of connections is read")
def test_the_system_watches_both_ends_of_a_connection():
    with oz.Publisher("tcp://127.0.0.1:*") as pub, oz.Subscriber(pub.endpoint) as sub:
        sub.subscribe("a")
        pub.wait_for_subscribers(timeout=DEADLINE)
        port = f":{int(pub.endpoint.rpartition(':')[2]):04X}"

        def timers():
            with open("/proc/self/net/tcp") as table:
                rows = [line.split() for line in table][1:]
            # Established: 01. What is being sent has another timer for a moment.
            return [row[5][:2] for row in rows if row[3] == "01" and port in row[1] + row[2]]

        until(lambda: timers() == [KEEPALIVE_TIMER, KEEPALIVE_TIMER])
