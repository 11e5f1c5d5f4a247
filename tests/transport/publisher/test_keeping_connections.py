"""Which connections a publisher that closes keeps, and that it touches no others."""

import errno
import logging
import os
import socket
import sys
import threading
from contextlib import nullcontext

import pytest
import zmq

import oz
from oz import system
from oz.transport.publisher import closing, ends
from oz.transport.publisher.ends import Fate
from oz.transport.publisher.untaken import Untaken, kept
from support.inside import engine_of
from support.waiting import DEADLINE, Thread, until

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="nothing tells what is open")

SENT = 100
PAYLOAD = b"." * 3_000


@pytest.fixture
def context():
    with zmq.Context() as context:
        yield context


@pytest.fixture
def gaps():
    return []


def publish(pub):
    for _ in range(SENT):
        pub.publish("a.x", PAYLOAD)
        pub.flush()


def watch(gaps, endpoint=None, **options):
    sub = oz.Subscriber(
        endpoint,
        filtering="publisher",
        high_water_mark=2,
        on_gap=lambda gap: gaps.append(gap.count),
        **options,
    )
    sub.subscribe("a.>")
    return sub


def take_all(sub):
    for number in range(SENT):
        # Whatever is said to a connection that is closed at the other end is answered by a reset.
        sub.subscribe(f"b.{number}")
        assert sub.receive(timeout=DEADLINE).payload == PAYLOAD


@pytest.fixture
def pub(context):
    with oz.Publisher("tcp://127.0.0.1:*", context=context) as pub:
        yield pub


@pytest.fixture
def sub(pub, gaps):
    with watch(gaps, pub.endpoint) as sub:
        sub.wait_ready(timeout=DEADLINE)
        yield sub


def fail_with_none_left(*_):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_publisher_closes_where_no_descriptor_is_left_to_look(pub, sub, gaps, monkeypatch):
    publish(pub)
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", fail_with_none_left)
        pub.close()
    take_all(sub)
    assert gaps == []


def test_what_cannot_be_kept_as_no_descriptor_is_left_is_told(pub, sub, monkeypatch, caplog):
    with monkeypatch.context() as patched:
        patched.setattr(system, "second_socket", fail_with_none_left)
        pub.close()
    assert "no file descriptor is left to keep 1 connections open" in caplog.text


def test_nothing_but_connections_of_the_publisher_is_copied(pub, sub, monkeypatch):
    # To another who looks just then a copy is a connection, which is soon closed: all is written, it seems.
    copied, copy = [], system.second_socket
    monkeypatch.setattr(system, "second_socket", lambda number: copied.append(copy(number)) or copied[-1])
    Untaken([pub.endpoint]).close()
    assert len(copied) == 1


def test_what_one_keeps_is_no_connection_for_another(pub, sub):
    first, second = Untaken([pub.endpoint]), Untaken([pub.endpoint])
    first.close()
    assert not second.is_over()
    second.close()
    publish(pub)
    take_all(sub)


def test_a_connection_of_others_at_the_same_port_is_let_alone(context):
    with oz.Publisher("tcp://*:*", context=context) as pub:
        port = int(pub.endpoint.rpartition(":")[2])
        try:
            server = socket.create_server(("::1", port), family=socket.AF_INET6)
        except OSError:
            pytest.skip("there is no IPv6, or the port is in use")
        with server, socket.create_connection(("::1", port)) as client:
            accepted, _ = server.accept()
            # As one that a child of a fork has taken over.
            with accepted.dup() as other:
                untaken = Untaken([pub.endpoint])
                accepted.close()
                untaken.is_over()
                other.sendall(b"still here")
                assert client.recv(100) == b"still here"
                untaken.close()


def test_sockets_of_others_stay_blocking_whatever_pythons_default_is(monkeypatch):
    one, other = socket.socketpair()
    with one, other:
        socket.setdefaulttimeout(30)
        try:
            with oz.Publisher("tcp://127.0.0.1:*"):
                pass
            with system.borrowed_socket(one.fileno()):
                pass
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(one.fileno())


def test_the_time_that_was_given_counts_in_a_context_of_yours_too(pub, sub, monkeypatch):
    given = []
    monkeypatch.setattr(Untaken, "wait_aside", lambda self, seconds: given.append(seconds) or self.close())
    monkeypatch.setattr(closing, "CLOSE_TIMEOUT", 5.0)
    pub.close(timeout=60)
    assert given == [pytest.approx(60)]


def test_what_is_not_read_in_time_is_told(context, caplog):
    pub = oz.Publisher("tcp://127.0.0.1:*", context=context)
    host, port = pub.endpoint.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as stranger:
        # The greeting of ZeroMQ: the connection stands. Whoever says nothing is not waited for.
        assert stranger.recv(1)
        stranger.sendall(b"\xff")
        pub.close(timeout=0.05)
        until(lambda: "may not have read" in caplog.text)
    assert [(one.name, one.levelno) for one in caplog.records] == [("oz.socket", logging.WARNING)]


class Unwritten:
    """A connection on which libzmq has still to write."""

    is_silent = is_late = False
    number = -1

    def __init__(self):
        self.is_written = False

    def fate(self, longest):
        return Fate.OPEN

    def close(self):
        pass


def test_the_time_to_read_begins_when_all_is_written(caplog):
    untaken, end = Untaken([]), Unwritten()
    untaken._ends = [end]
    waiting = Thread(lambda: untaken.wait(0.02, is_aside=True))
    waiting.join(0.3)
    assert waiting.is_alive()
    assert caplog.text == ""
    end.is_written = True
    waiting.outcome()
    assert "closed, and 1 subscribers may not have read" in caplog.text


@pytest.mark.parametrize("side", ["bound", "connected"])
def test_what_was_sent_on_a_connection_is_read_though_it_was_closed_and_is_answered(side):
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        if side == "bound":
            ours, theirs = theirs, ours
        with theirs:
            theirs.sendall(b"a")
            assert ours.recv(1) == b"a"
            ours.sendall(PAYLOAD)
            with kept(DEADLINE, **{side: [there]}):
                ours.close()
            for _ in range(2):
                # Nobody has it open any more but what was kept: otherwise a reset answers.
                theirs.sendall(b"more")
            assert theirs.recv(len(PAYLOAD), socket.MSG_WAITALL) == PAYLOAD
            assert theirs.recv(1) == b""
    until(lambda: all(one.name != "oz-untaken" for one in threading.enumerate()))


@pytest.mark.parametrize("action", ["close", "disconnect"])
def test_who_has_connected_in_a_context_of_the_users_keeps_its_own_connection(context, gaps, action):
    with watch(gaps) as sub:
        sub.bind("tcp://127.0.0.1:*")
        publishers = [oz.Publisher(connect=sub.endpoint, context=context) for _ in range(2)]
        until(lambda: sub.poll(1) or all(one.interest("a.x") for one in publishers))
        pub, other = publishers
        own = {(one.descriptor, one.inode) for one in engine_of(pub).closing.peers()}
        places = {"bound": [], "connected": [sub.endpoint], "own": own}
        untaken = Untaken(**places)
        assert untaken.fates.keys() == {one[0] for one in own}
        untaken.close()
        publish(pub)
        taking = Thread(lambda: take_all(sub)) if action == "disconnect" else None
        pub.close() if taking is None else pub.disconnect(sub.endpoint)
        take_all(sub) if taking is None else taking.outcome()
        other.close()
        pub.close()
    assert gaps == []


@pytest.mark.parametrize("action", ["disconnect", "unbind"])
def test_an_endpoint_is_left_as_a_publisher_is_closed(action, monkeypatch):
    calls = []

    def record(seconds, own, **places):
        calls.append(places)
        return nullcontext()

    monkeypatch.setattr(closing, "kept", record)
    place = {"connect": "tcp://127.0.0.1:1"} if action == "disconnect" else {"bind": "tcp://127.0.0.1:*"}
    with oz.Publisher(**place) as pub:
        pub.bind("tcp://127.0.0.1:*") if action == "disconnect" else pub.connect("tcp://127.0.0.1:1")
        left = "tcp://127.0.0.1:1" if action == "disconnect" else engine_of(pub).attachments.bound[0]
        getattr(pub, action)(left)
    places = ([], [left]) if action == "disconnect" else ([left], [])
    assert calls == [dict(zip(("bound", "connected"), places, strict=True))]


@pytest.mark.skipif(sys.platform == "win32", reason="no process forks")
def test_the_child_of_a_fork_keeps_nothing(pub, sub):
    holding = Untaken([pub.endpoint])
    numbers = [end().own[0] for end in ends._kept]
    child = os.fork()
    if not child:
        left = 0
        for one in numbers:
            try:
                os.fstat(one)
            except OSError:
                continue
            left += 1
        os._exit(left)
    assert numbers
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    holding.close()
