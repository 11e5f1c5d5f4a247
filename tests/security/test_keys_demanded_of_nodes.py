"""A peer that comes back and demands keys, of a node that has none."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from socket import create_server

import pytest
import zmq

import oz
import oz.asyncio
from oz.services import NameServer
from support import ways_to_wait
from support.meeting import advisories
from support.sizes import in_suite
from support.waiting import DEADLINE, Thread, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")

PLAIN = """
import sys, time, oz
with oz.Node("feed", bind=sys.argv[1], directory=sys.argv[2]) as feed:
    feed.subscribe("svc.never", handler=lambda message: time.sleep(3600))
    while True:
        feed.publish("md.x", b"")
        time.sleep(0.01)
"""


@pytest.fixture
def endpoint():
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        return f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"


@contextmanager
def served_anew(endpoint, **options):
    """Run a name server where another was closed: libzmq ends its listener a moment later."""

    def attempt():
        try:
            return NameServer(endpoint, **options)
        except zmq.ZMQError:
            return None

    with until(attempt) as server:
        running = Thread(server.run)
        yield server
        server.stop()
        running.outcome()


class Peers:
    """The peers of a node, each in a directory of its own, where nobody else looks."""

    def __init__(self, ring, directory):
        self._ring, self._directory = ring, directory
        self._count = 0
        self._processes = []

    def place(self):
        self._count += 1
        return self._directory / str(self._count)

    def start(self, endpoint):
        """Start a node without keys in a process of its own, which publishes all the time."""
        process = subprocess.Popen([sys.executable, "-c", PLAIN, endpoint, str(self.place())])
        self._processes.append(process)
        return process

    def end(self, process, how=signal.SIGKILL):
        process.send_signal(how)
        process.wait()

    def plain(self, endpoint, **options):
        return oz.Node("feed", bind=endpoint, directory=self.place(), **options)

    def keyed(self, endpoint):
        return until(lambda: self._keyed(endpoint))

    def _keyed(self, endpoint):
        try:
            return oz.Node(
                "feed", bind=endpoint, security=self._ring.security("feed"), directory=self.place()
            )
        except zmq.ZMQError:
            # Where another was closed libzmq ends the listener a moment later.
            return None

    def close(self):
        for process in self._processes:
            if process.poll() is None:
                self.end(process)


@pytest.fixture
def peers(ring, directory):
    made = Peers(ring, directory)
    yield made
    made.close()


def take_until(error, sub, timeout=DEADLINE):
    """Take messages until there is an error in their place; return the subjects that came before."""
    subjects = []
    while True:
        try:
            subjects.append(sub.receive(timeout=timeout).subject)
        except error:
            return subjects


def told(sub):
    return take_until(oz.PermissionDenied, sub)


ENDS = {
    "killed": lambda peers, process: peers.end(process),
    "closed": lambda peers, process: peers.end(process, signal.SIGINT),
}
EACH = [(way, end) for way in ways_to_wait.OF_NODES for end in ENDS]
IN_SUITE = [("receive", "killed"), ("receive within", "closed"), ("iteration", "killed")]


@pytest.mark.parametrize(("way", "end"), in_suite(IN_SUITE, [one for one in EACH if one not in IN_SUITE]))
def test_whoever_waits_is_told(peers, directory, endpoint, way, end):
    process = peers.start(endpoint)
    with oz.Node("desk", peers=endpoint, directory=directory / "desk") as desk:
        sub = desk.subscribe("md.>")
        sub.receive(timeout=DEADLINE)
        ENDS[end](peers, process)

        def wait():
            while True:
                ways_to_wait.OF_NODES[way](sub)

        waiting = Thread(wait)
        with peers.keyed(endpoint), pytest.raises(oz.PermissionDenied, match=f"{endpoint} demands keys"):
            waiting.outcome()


@pytest.mark.parametrize(("way", "end"), in_suite(IN_SUITE, [one for one in EACH if one not in IN_SUITE]))
def test_whoever_waits_in_a_loop_is_told(peers, directory, endpoint, way, end):
    heard = threading.Event()

    async def run():
        async with oz.asyncio.Node("desk", peers=endpoint, directory=directory / "desk") as desk:
            sub = desk.subscribe("md.>")
            await sub.receive(timeout=DEADLINE)
            heard.set()
            while True:
                await ways_to_wait.OF_NODES_IN_LOOP[way](sub)

    process = peers.start(endpoint)
    waiting = Thread(lambda: asyncio.run(run()))
    until(heard.is_set)
    ENDS[end](peers, process)
    with peers.keyed(endpoint), pytest.raises(oz.PermissionDenied, match=f"{endpoint} demands keys"):
        waiting.outcome()


@pytest.mark.parametrize("end", ENDS)
def test_it_goes_on_without_keys_and_is_told_once_for_each_return(peers, directory, endpoint, end):
    process = peers.start(endpoint)
    with oz.Node("desk", peers=endpoint, directory=directory / "desk") as desk:
        others = [desk.subscribe("md.>", handler=lambda message: None), desk.subscribe("md.*")]
        sub = desk.subscribe("md.>")
        advised = advisories(desk)
        for times in (1, 2, 3):
            sub.receive(timeout=DEADLINE)
            ENDS[end](peers, process)
            with peers.keyed(endpoint):
                assert set(told(sub)) <= {"md.x"}
                # It is called anew meanwhile.
                assert take_until(oz.Timeout, sub, timeout=1.5) == []
                until(
                    lambda times=times: len([one for one in advised() if "demands keys" in one.text]) == times
                )
                told(others[1])
                with pytest.raises(oz.PermissionDenied, match="demands keys"):
                    desk.wait_for_peers("feed", timeout=DEADLINE)
            process = peers.start(endpoint)
        assert sub.receive(timeout=DEADLINE).subject == "md.x"
        desk.wait_for_peers("feed", timeout=DEADLINE)
        assert take_until(oz.Timeout, others[1], timeout=0)


def test_who_subscribes_later_is_told_as_well(peers, directory, endpoint):
    with peers.keyed(endpoint), oz.Node("desk", peers=endpoint, directory=directory / "desk") as desk:
        told(desk.subscribe("md.>"))
        told(desk.subscribe("md.>"))
        with pytest.raises(oz.Timeout):
            desk.subscribe("_OZ.ADVISORY.>").receive(timeout=0)
    with oz.Node("desk", peers=endpoint, directory=directory / "desk") as desk, peers.keyed(endpoint):
        told(desk.subscribe("md.>"))


def test_messages_of_other_peers_go_on(peers, directory, endpoint):
    process = peers.start(endpoint)
    with (
        peers.plain("tcp://127.0.0.1:*") as other,
        oz.Node("desk", peers=[endpoint, other.endpoint], directory=directory / "desk") as desk,
    ):
        sub, is_over = desk.subscribe(["md.>", "other.>"]), threading.Event()

        def publish():
            while not is_over.wait(0.01):
                other.publish("other.x", b"")

        publishing, subjects = Thread(publish), set()
        try:
            while subjects < {"md.x", "other.x"}:
                subjects.add(sub.receive(timeout=DEADLINE).subject)
            peers.end(process)
            with peers.keyed(endpoint):
                told(sub)
                assert {sub.receive(timeout=DEADLINE).subject for _ in range(20)} == {"other.x"}
            peers.start(endpoint)
            until(lambda: sub.receive(timeout=DEADLINE).subject == "md.x")
        finally:
            is_over.set()
            publishing.outcome()


def test_what_has_come_is_given_first(peers, directory, endpoint):
    is_slow, handled = threading.Event(), []

    def handle(message):
        handled.append(message)
        if is_slow.wait(0):
            time.sleep(0.05)

    with oz.Node("desk", peers=endpoint, directory=directory / "desk") as desk:
        feed = peers.plain(endpoint)
        desk.subscribe("md.>", handler=handle, inline=True)
        sub = desk.subscribe("md.>")
        feed.wait_for_subscribers(1, "md.x", timeout=DEADLINE)
        is_slow.set()
        for _ in range(40):
            feed.publish("md.x", b"")
        feed.close()
        with peers.keyed(endpoint):
            assert len(told(sub)) == 40


def test_requests_on_their_way_end_in_their_time(peers, directory, endpoint):
    process = peers.start(endpoint)
    with oz.Node("desk", peers=endpoint, directory=directory / "desk") as desk:
        desk.wait_for_subscribers(1, "svc.never", timeout=DEADLINE)
        asking = Thread(lambda: desk.request("svc.never", b"", timeout=3.0))
        until(lambda: desk.stats.requests)
        peers.end(process)
        with peers.keyed(endpoint), pytest.raises((oz.Timeout, oz.NoResponders)):
            asking.outcome()


def test_a_peer_that_demands_keys_for_long_costs_no_descriptors(peers, directory, endpoint):
    process = peers.start(endpoint)
    with oz.Node("desk", peers=endpoint, directory=directory / "desk") as desk:
        sub = desk.subscribe("md.>")
        sub.receive(timeout=DEADLINE)
        peers.end(process)
        with peers.keyed(endpoint):
            told(sub)
            before, threads = len(os.listdir("/dev/fd")), threading.active_count()
            with pytest.raises(oz.Timeout):
                sub.receive(timeout=3.0)
            assert len(os.listdir("/dev/fd")) <= before + 4
            assert threading.active_count() <= threads + 1


def test_a_name_server_that_demanded_keys_for_a_time_is_found_again(ring, directory, endpoint):
    ring.make("ns")
    with oz.Node("desk", nameserver=endpoint, join_timeout=0, directory=directory / "desk") as desk:
        advised = advisories(desk)
        for times in (1, 2):
            with (
                served_anew(endpoint),
                oz.Node("other", nameserver=endpoint, directory=directory / "other") as other,
            ):
                other.wait_for_peers("desk", timeout=DEADLINE)
            with served_anew(endpoint, security=ring.security("ns")):
                until(
                    lambda times=times: len([one for one in advised() if "demands keys" in one.text]) == times
                )
                with pytest.raises(oz.PermissionDenied, match=f"{endpoint} demands keys"):
                    desk.wait_ready(timeout=DEADLINE)


def test_a_peer_that_is_named_in_two_ways_is_met_again_by_both(peers, directory, endpoint):
    named = endpoint.replace("127.0.0.1", "localhost")
    process = peers.start(endpoint)
    with oz.Node("desk", peers=[endpoint, named], directory=directory / "desk") as desk:
        sub = desk.subscribe("md.>")
        # At first it may be asked as any that is named: nobody has to see it broken off.
        for _ in range(2):
            sub.receive(timeout=DEADLINE)
            peers.end(process)
            with peers.keyed(endpoint):
                assert {denial_of(sub), denial_of(sub)} == {endpoint, named}
            process = peers.start(endpoint)
            until(lambda: is_met(desk))


def denial_of(sub):
    """Take messages until a refusal comes in their place; return where that is."""
    while True:
        try:
            sub.receive(timeout=DEADLINE)
        except oz.PermissionDenied as denied:
            return str(denied).partition(" ")[0]


def is_met(desk):
    """Whether the peer is up, and stands at all endpoints: a refusal that lasts is not told again."""
    with suppress(oz.PermissionDenied, oz.Timeout):
        desk.wait_for_peers("feed", timeout=0.5)
        desk.wait_ready(timeout=DEADLINE)
        return True


MALFORMED = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 32) + b"\x04\x05\x04WHAT"
"""A greeting of ZMTP 3 without keys, and a command that no handshake has."""


def test_a_peer_whose_place_somebody_has_for_a_time_who_speaks_nonsense_is_met(peers, directory, endpoint):
    with create_server(("127.0.0.1", int(endpoint.rpartition(":")[2]))) as listener:
        desk = oz.Node("desk", peers=endpoint, directory=directory / "desk")
        with listener.accept()[0] as caller:
            caller.sendall(MALFORMED)
            while caller.recv(1024):
                pass
    with desk, peers.plain(endpoint):
        desk.wait_for_peers("feed", timeout=DEADLINE)
