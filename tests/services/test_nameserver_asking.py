"""Asking a name server who is there."""

import pytest
import zmq

import oz
from oz.services import ask
from oz.wire.announcement import pack_announcement
from oz.wire.discovery import Ask, Roster, Welcome, pack, pack_rosters, unpack_request
from support.announcing import announcement
from support.waiting import DEADLINE, Thread


@pytest.fixture
def context():
    with zmq.Context() as made:
        yield made


@pytest.fixture
def server(context):
    with context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.bind("inproc://server")
        yield router


def say(server, frames):
    """Answer one question; what it was."""
    assert server.poll(DEADLINE * 1000)
    peer, question = server.recv_multipart()
    for frame in frames:
        server.send_multipart([peer, frame])
    return unpack_request(question)


def test_a_roster_in_several_parts_is_put_together(context, server):
    nodes = [announcement(number) for number in range(300)]
    asking = Thread(lambda: ask("inproc://server", "trading", timeout=DEADLINE, context=context))
    frames = [pack(Welcome(b"s" * 16, "ns1", 1.0, 3.5)), *pack_rosters([pack_announcement(n) for n in nodes])]
    assert say(server, frames) == Ask("trading")
    assert asking.outcome() == nodes


def test_what_means_nothing_is_passed_over(context, server):
    asking = Thread(lambda: ask("inproc://server", timeout=DEADLINE, context=context))
    assert say(server, [b"", b"\xff" * 100, pack(Roster((), 0, 0))]) == Ask(None)
    assert asking.outcome() == []


def test_silence_is_an_error_that_names_the_endpoint(context, server):
    with pytest.raises(oz.NameserverUnavailable, match=r"within 0\.1 s; tried inproc://server"):
        ask("inproc://server", timeout=0.1, context=context)


def test_half_a_roster_is_none(context, server):
    nodes = [pack_announcement(announcement(number)) for number in range(200)]
    asking = Thread(lambda: ask("inproc://server", timeout=1, context=context))
    say(server, list(pack_rosters(nodes))[:1])
    with pytest.raises(oz.NameserverUnavailable):
        asking.outcome()
