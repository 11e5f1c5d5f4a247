"""Which connections are ended when file descriptors are short, and what is watched."""

import os
import threading

import pytest
import zmq

import oz
from oz.transport.descriptor_watch import AcceptedConnection, DescriptorWatch, headroom, newest_of_largest
from support.waiting import DEADLINE, until


def connections(*sources):
    return [AcceptedConnection(at, at, at, source, 1) for at, source in enumerate(sources)]


@pytest.fixture
def watching():
    """Gives the threads that begin to watch descriptors; that of an earlier test may not have ended yet."""

    def all_watching():
        return {one for one in threading.enumerate() if one.name == "oz-descriptors"}

    others = all_watching()
    return lambda: all_watching() - others


def numbers(chosen):
    return [one.descriptor for one in chosen]


def test_the_newest_of_the_address_with_most_is_ended_first():
    assert numbers(newest_of_largest(connections("a", "b", "b", "b", "a", "b"), 2)) == [5, 3]


def test_addresses_with_as_many_lose_in_turn():
    chosen = newest_of_largest(connections("a", "b", "a", "b", "c"), 3)
    assert numbers(chosen) == [2, 3, 0]


def test_no_more_are_ended_than_there_are():
    assert len(newest_of_largest(connections("a", "b"), 5)) == 2
    assert newest_of_largest([], 5) == []


@pytest.mark.parametrize(("limit", "free"), [(64, 16), (256, 32), (1_024, 64), (1 << 30, 64)])
def test_an_eighth_of_the_descriptors_stays_free(limit, free):
    assert headroom(limit) == free


@pytest.fixture
def watch(monkeypatch):
    """A watch that finds as many descriptors in use as a test says."""
    watch = DescriptorWatch()
    monkeypatch.setattr("oz.transport.descriptor_watch.most_descriptors", lambda: 1_024)
    return watch


def short_of_one(_limit):
    return 1_024 - headroom(1_024) + 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a connection is no file there")
@pytest.mark.parametrize("place", ["tcp://127.0.0.1:*", "ipc://@oz-watch-{}", "ipc://{}"])
def test_only_what_was_accepted_where_it_watches_is_ended(watch, monkeypatch, tmp_path, place, watching):
    # The subscriber and its other publisher have sockets of the same process, which nobody ends.
    bound = place.format(os.getpid() if "@" in place else tmp_path / "s")
    with (
        zmq.Context() as context,
        context.socket(zmq.PUB) as pub,
        context.socket(zmq.PUB) as unwatched,
        context.socket(zmq.SUB) as sub,
    ):
        sub.subscribe(b"")
        for one, where in ((pub, bound), (unwatched, "tcp://127.0.0.1:*")):
            one.linger = sub.linger = 0
            one.bind(where)
            sub.connect(one.get(zmq.LAST_ENDPOINT).rstrip(b"\0").decode())
        for one in (pub, unwatched):
            until(lambda one=one: one.send(b"x") or sub.poll(10))
            while sub.poll(10):
                sub.recv()
        monkeypatch.setattr("oz.transport.descriptor_watch.count_used", short_of_one)
        watch.add(pub, pub.get(zmq.LAST_ENDPOINT).rstrip(b"\0").decode())
        until(lambda: watch.cut)
        pub.close()
        until(lambda: not watching())
        unwatched.send(b"still there")
        assert sub.poll(1_000 * DEADLINE)
        assert sub.recv() == b"still there"


def test_the_thread_ends_when_nothing_is_bound_any_more(watch, watching):
    with zmq.Context() as context:
        with context.socket(zmq.PUB) as pub:
            pub.bind("tcp://127.0.0.1:*")
            watch.add(pub, pub.get(zmq.LAST_ENDPOINT).rstrip(b"\0").decode())
            (thread,) = watching()
        thread.join(DEADLINE)
        assert not thread.is_alive()


def test_what_is_bound_inside_the_process_needs_no_watch(watch, watching):
    with zmq.Context() as context, context.socket(zmq.PUB) as pub:
        watch.add(pub, "inproc://here")
        assert not watching()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks")
def test_a_child_that_was_forked_watches_what_it_binds():
    with oz.Publisher("tcp://127.0.0.1:*"):
        child = os.fork()
        if child == 0:
            with oz.Publisher("tcp://127.0.0.1:*"):
                is_there = any(one.name == "oz-descriptors" for one in threading.enumerate())
            os._exit(0 if is_there else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
