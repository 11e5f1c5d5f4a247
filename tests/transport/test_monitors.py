"""Monitor sockets: whatever becomes of them, libzmq goes on, and closing takes no longer than it must."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

import oz
import oz.asyncio
from support.waiting import DEADLINE

LOOPBACK = "tcp://127.0.0.1:*"
FILTERINGS = ["prefix", "publisher"]


@pytest.fixture
def context():
    with zmq.Context() as one:
        yield one


@pytest.fixture(params=["own", "shared"])
def arguments(request):
    """What makes a socket with a context of its own, or with one of the application's."""
    if request.param == "own":
        yield {}
        return
    with zmq.Context() as context:
        yield {"context": context}


@pytest.fixture
def loop_arguments(arguments):
    if "context" in arguments:
        with zmq.asyncio.Context() as context:
            yield {"context": context}
    else:
        yield arguments


def is_heard_by_new_subscribers(pub, filtering):
    with oz.Subscriber(pub.endpoint, filtering=filtering) as sub:
        # Not what somebody who is leaving may have asked for.
        sub.subscribe("new")
        pub.wait_for_subscribers(subject="new", timeout=DEADLINE)
        pub.publish("new", b"x")
        return sub.receive(timeout=DEADLINE).payload == b"x"


def all_was_sent(caplog):
    return not [record for record in caplog.records if record.name == "oz.socket"]


@pytest.mark.parametrize("filtering", FILTERINGS)
def test_a_publisher_goes_on_when_its_monitor_socket_was_closed(arguments, filtering, caplog):
    with oz.Publisher(LOOPBACK, **arguments) as pub:
        with oz.Subscriber(pub.endpoint, filtering=filtering) as sub:
            sub.subscribe("a")
            pub.wait_for_subscribers(timeout=DEADLINE)
            pub.get_monitor_socket().close()
        # That it left was an event. libzmq would wait for ever to tell of it.
        assert is_heard_by_new_subscribers(pub, filtering)
        started = time.monotonic()
    # Of the five seconds that it may take.
    assert time.monotonic() - started < 4.5
    assert all_was_sent(caplog)


@pytest.mark.parametrize("filtering", FILTERINGS)
def test_a_subscriber_goes_on_when_its_monitor_socket_was_closed(arguments, filtering, caplog):
    with (
        oz.Publisher(LOOPBACK) as first,
        oz.Publisher(LOOPBACK) as second,
        oz.Subscriber(first.endpoint, filtering=filtering, **arguments) as sub,
    ):
        sub.subscribe("a")
        first.wait_for_subscribers(timeout=DEADLINE)
        sub.get_monitor_socket().close()
        first.close()
        sub.connect(second.endpoint)
        second.wait_for_subscribers(timeout=DEADLINE)
        second.publish("a", b"x")
        assert sub.receive(timeout=DEADLINE).payload == b"x"
    assert all_was_sent(caplog)


@pytest.mark.parametrize("filtering", FILTERINGS)
def test_asyncio_sockets_go_on_when_their_monitor_sockets_were_closed(loop_arguments, filtering, caplog):
    async def run():
        async with oz.asyncio.Publisher(LOOPBACK, **loop_arguments) as pub:
            # The second finds what the first has left behind, on both sides.
            for subject in ("a", "b"):
                options = {"filtering": filtering, **loop_arguments}
                async with oz.asyncio.Subscriber(pub.endpoint, **options) as sub:
                    sub.subscribe(subject)
                    await pub.wait_for_subscribers(subject=subject, timeout=DEADLINE)
                    pub.get_monitor_socket().close()
                    sub.get_monitor_socket().close()
                    await pub.publish(subject, b"x")
                    assert (await sub.receive(timeout=DEADLINE)).payload == b"x"

    asyncio.run(run())
    assert all_was_sent(caplog)


def test_events_that_nobody_reads_do_not_stop_a_publisher(arguments):
    with oz.Publisher(LOOPBACK, **arguments) as pub, pub.get_monitor_socket() as seen:
        address = ("127.0.0.1", int(pub.endpoint.rsplit(":")[-1]))
        # Each is two events at least; libzmq has room for 2,000 unless told otherwise.
        for _ in range(1_100):
            socket.create_connection(address).close()
        assert is_heard_by_new_subscribers(pub, "prefix")
        assert seen.poll(1000 * DEADLINE)


def test_a_monitor_socket_ends_only_the_monitor_that_it_belongs_to(arguments):
    with oz.Publisher(LOOPBACK, **arguments) as pub:
        first = pub.get_monitor_socket()
        assert pub.get_monitor_socket() is first
        pub.disable_monitor()
        with pub.get_monitor_socket(zmq.EVENT_ACCEPTED) as second:
            assert second is not first
            first.close()
            assert is_heard_by_new_subscribers(pub, "prefix")
            assert next_event(second) == zmq.EVENT_ACCEPTED


def test_the_end_of_a_monitor_is_told(context):
    with context.socket(zmq.SUB, socket_class=oz.Subscriber) as sub:
        seen = sub.get_monitor_socket()
        sub.close()
        assert next_event(seen) == zmq.EVENT_MONITOR_STOPPED
        seen.close()


def next_event(seen):
    assert seen.poll(1000 * DEADLINE)
    return recv_monitor_message(seen)["event"]
