"""A publisher that comes back and demands keys, while a subscriber without any waits for messages."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress

import pytest
import zmq

import oz
import oz.asyncio
from oz.transport.peer_keys import is_connected_to
from support import ways_to_wait
from support.sizes import in_suite
from support.waiting import DEADLINE, Thread, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")

LAST = b"last"


PLAIN = """
import sys, time, oz
with oz.Publisher(sys.argv[1]) as pub:
    while True:
        pub.publish("md.x", b"")
        time.sleep(0.01)
"""


@pytest.fixture
def endpoint():
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        return f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"


class Plain:
    """A publisher without keys, in a process of its own."""

    def __init__(self, endpoint):
        self.process = subprocess.Popen([sys.executable, "-c", PLAIN, endpoint])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def plain(endpoint):
    made = Plain(endpoint)
    yield made
    made.kill()


@pytest.fixture
def waits_behind_the_last_message(ring):
    """Wait at a publisher that demands keys when it comes back, as soon as all has come."""

    def wait(work):
        heard = []
        with oz.Publisher("tcp://127.0.0.1:*") as pub:
            endpoint = pub.endpoint
            waiting = Thread(lambda: work(endpoint, heard))

            def is_heard():
                pub.publish("md.x", b"")
                return bool(heard)

            until(is_heard)
            pub.publish("md.x", LAST)
        with (
            oz.Publisher(endpoint, security=ring.security("feed")),
            pytest.raises(oz.PermissionDenied, match=f"{endpoint} demands keys"),
        ):
            waiting.outcome()

    return wait


ALL = [(way, filtering) for way in ways_to_wait.ALL for filtering in ("prefix", "publisher")]
IN_SUITE = [
    ("receive", "prefix"), ("receive_many", "publisher"), ("recv_multipart", "prefix"),
    ("poll", "publisher"), ("oz.Poller", "prefix"), ("run", "publisher"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("way", "filtering"), in_suite(IN_SUITE, [one for one in ALL if one not in IN_SUITE])
)
def test_whoever_waits_is_told(waits_behind_the_last_message, filtering, way):
    def work(endpoint, heard):
        with oz.Subscriber(endpoint, filtering=filtering) as sub:
            sub.subscribe("md.>")
            while (message := sub.receive()).payload != LAST:
                heard.append(message)
            ways_to_wait.ALL[way](sub)

    waits_behind_the_last_message(work)


ALL_IN_LOOP = [(way, filtering) for way in ways_to_wait.ALL_IN_LOOP for filtering in ("prefix", "publisher")]
IN_LOOP_IN_SUITE = [("receive", "publisher"), ("iteration", "prefix"), ("poll", "prefix")]


@pytest.mark.parametrize(
    ("way", "filtering"),
    in_suite(IN_LOOP_IN_SUITE, [one for one in ALL_IN_LOOP if one not in IN_LOOP_IN_SUITE]),
)
def test_whoever_waits_in_a_loop_is_told(waits_behind_the_last_message, filtering, way):
    async def run(endpoint, heard):
        async with oz.asyncio.Subscriber(endpoint, filtering=filtering) as sub:
            sub.subscribe("md.>")
            while (message := await sub.receive()).payload != LAST:
                heard.append(message)
            await ways_to_wait.ALL_IN_LOOP[way](sub)

    waits_behind_the_last_message(lambda *given: asyncio.run(run(*given)))


def take_until(error, sub, timeout=DEADLINE):
    """Take messages until there is an error in their place; return how many came before."""
    received = 0
    while True:
        try:
            sub.receive(timeout=timeout)
        except error:
            return received
        received += 1


def take_until_told(sub):
    return take_until(oz.PermissionDenied, sub)


@pytest.mark.parametrize("filtering", in_suite(["publisher"], ["prefix"]))
def test_it_goes_on_without_keys_and_is_told_once_for_each_return(ring, endpoint, plain, filtering):
    with oz.Subscriber(endpoint, filtering=filtering) as sub:
        sub.subscribe("md.>")
        for _ in range(2):
            sub.receive(timeout=DEADLINE)
            plain.kill()
            with oz.Publisher(endpoint, security=ring.security("feed")):
                take_until_told(sub)
                # It is called anew meanwhile.
                with pytest.raises(oz.Timeout):
                    sub.receive(timeout=1.0)
            plain.__init__(endpoint)
        assert sub.receive(timeout=DEADLINE).subject == "md.x"


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_who_is_told_at_first_goes_on_without_keys(ring, endpoint, filtering):
    with oz.Subscriber(endpoint, filtering=filtering) as sub:
        sub.subscribe("md.>")
        with oz.Publisher(endpoint, security=ring.security("feed")):
            take_until_told(sub)
        plain = Plain(endpoint)
        try:
            assert sub.receive(timeout=DEADLINE).subject == "md.x"
        finally:
            plain.kill()


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_messages_of_other_publishers_go_on(ring, endpoint, plain, filtering):
    with (
        oz.Publisher("tcp://127.0.0.1:*") as other,
        oz.Subscriber([endpoint, other.endpoint], filtering=filtering) as sub,
    ):
        sub.subscribe(["md.>", "other.>"])
        subjects, is_over = set(), threading.Event()

        def publish():
            while not is_over.wait(0.01):
                other.publish("other.x", b"")

        publishing = Thread(publish)
        try:
            while subjects < {"md.x", "other.x"}:
                subjects.add(sub.receive(timeout=DEADLINE).subject)
            plain.kill()
            with oz.Publisher(endpoint, security=ring.security("feed")):
                take_until_told(sub)
                assert {sub.receive(timeout=DEADLINE).subject for _ in range(20)} == {"other.x"}
        finally:
            is_over.set()
            publishing.outcome()


def test_what_has_come_is_given_first(ring, endpoint, plain):
    with oz.Subscriber(endpoint) as sub:
        sub.subscribe("md.>")
        sub.receive(timeout=DEADLINE)
        until(lambda: zmq.Socket.poll(sub, 0))
        plain.kill()
        with oz.Publisher(endpoint, security=ring.security("feed")):
            assert take_until_told(sub)


def test_a_publisher_that_demands_keys_for_long_costs_no_descriptors(ring, endpoint, plain):
    with oz.Subscriber(endpoint) as sub:
        sub.subscribe("md.>")
        sub.receive(timeout=DEADLINE)
        plain.kill()
        with oz.Publisher(endpoint, security=ring.security("feed")):
            take_until_told(sub)
            before = len(os.listdir("/dev/fd"))
            with pytest.raises(oz.Timeout):
                sub.receive(timeout=3.0)
            assert len(os.listdir("/dev/fd")) <= before + 4


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_a_monitor_of_the_user_is_left_alone(endpoint, plain, filtering):
    with oz.Subscriber(endpoint, filtering=filtering) as sub:
        sub.subscribe("md.>")
        sub.receive(timeout=DEADLINE)
        monitor = sub.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        plain.kill()
        began = time.monotonic()
        while not monitor.poll(0):
            assert time.monotonic() - began < DEADLINE
            with suppress(oz.Timeout):
                sub.receive(timeout=0.5)
        take_until(oz.Timeout, sub, timeout=2.0)
        assert sub.get_monitor_socket() is monitor


def sockets_of(context):
    """Count the sockets that a context has room for."""
    made = []
    with suppress(zmq.ZMQError):
        while True:
            made.append(zmq.Socket(context, zmq.PAIR))
    for one in made:
        one.close(0)
    return len(made)


def test_sockets_that_the_program_may_need_are_not_taken(endpoint, plain):
    with zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, 9)
        with oz.Subscriber(endpoint, context=context) as sub:
            sub.subscribe("md.>")
            sub.receive(timeout=DEADLINE)
            before = sockets_of(context)
            plain.kill()
            take_until(oz.Timeout, sub, timeout=3.0)
            assert sockets_of(context) == before


@pytest.mark.parametrize("filtering", in_suite(["publisher"], ["prefix"]))
def test_keys_that_were_demanded_while_nobody_looked_keep_nobody_apart(ring, endpoint, plain, filtering):
    with oz.Subscriber(endpoint, filtering=filtering) as sub:
        sub.subscribe("md.>")
        sub.receive(timeout=DEADLINE)
        plain.kill()
        with (
            oz.Publisher(endpoint, security=ring.security("feed")) as keyed,
            oz.Subscriber(endpoint, security=ring.security("desk")) as other,
        ):
            other.subscribe("md.>")
            keyed.wait_for_subscribers(1, timeout=DEADLINE)
            # Longer than ZeroMQ takes to call again.
            time.sleep(1.0)
        plain.__init__(endpoint)
        take_until(oz.Timeout, sub, timeout=0)
        assert sub.receive(timeout=DEADLINE).subject == "md.x"


@pytest.mark.parametrize("scheme", ["tcp", "ipc", "abstract"])
def test_looking_who_is_connected_leaves_no_descriptor_open(tmp_path, scheme):
    names = {"tcp": "tcp://127.0.0.1:*", "ipc": f"ipc://{tmp_path}/s", "abstract": f"ipc://@{uuid.uuid4()}"}
    with open(os.devnull), oz.Publisher(names[scheme]) as pub, oz.Subscriber(pub.endpoint) as sub:
        endpoint = pub.endpoint
        sub.subscribe("md.>")
        pub.wait_for_subscribers(1, timeout=DEADLINE)
        before = len(os.listdir("/dev/fd"))
        assert is_connected_to(endpoint)
        assert not is_connected_to("tcp://127.0.0.1:1")
        assert len(os.listdir("/dev/fd")) == before


def test_a_connection_within_the_process_is_not_made_anew_for_a_publisher_that_is_not_there(endpoint):
    with (
        zmq.Context() as context,
        oz.Publisher("inproc://beside", context=context) as beside,
        oz.Subscriber([endpoint, "inproc://beside"], context=context) as sub,
    ):
        sub.subscribe("beside.>")
        beside.wait_for_subscribers(1, timeout=DEADLINE)
        began = time.monotonic()
        # Longer than it takes to find out, and to connect anew.
        while time.monotonic() - began < 2.0:
            beside.publish("beside.x", b"")
            assert sub.receive(timeout=DEADLINE)
            take_until(oz.Timeout, sub, timeout=0.01)


def test_a_connection_of_another_socket_hides_none_that_was_given_up(ring, endpoint, plain, monkeypatch):
    # However long a busy publisher may say nothing.
    monkeypatch.setattr("oz.transport.subscriber.returns.SILENT", 3.0)
    with (
        oz.Subscriber(endpoint, filtering="publisher") as sub,
        oz.Subscriber(endpoint, filtering="publisher") as other,
    ):
        for one in (sub, other):
            one.subscribe("md.>")
            one.receive(timeout=DEADLINE)
        plain.kill()
        with oz.Publisher(endpoint, security=ring.security("feed")):
            take_until_told(other)
            # Longer than ZeroMQ takes to call again, while nobody looks.
            time.sleep(1.0)
        plain.__init__(endpoint)
        until(lambda: other.receive(timeout=DEADLINE) and is_connected_to(endpoint))
        take_until(oz.Timeout, sub, timeout=0)
        assert sub.receive(timeout=DEADLINE).subject == "md.x"
