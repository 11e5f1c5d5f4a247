"""Who may take back what: keys, declarations and goodbyes of connections that are there, or have closed."""

from __future__ import annotations

from oz.protocol.publisher.accounts import Peer
from oz.wire.keys import stream_key
from protocol.publisher.queued import HONEST, HOSTILE, NAME, Publisher, key


def test_nobody_takes_back_a_declaration_of_another():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    assert pub.go(HOSTILE, key(1, "a"), stream_key(NAME)) == [((), ()), ((), ())]
    pub.router.expire(100.0)
    assert pub.wants(b"a")
    pub.go(HONEST, key(1, "a"))
    pub.router.expire(200.0)
    assert not pub.wants(b"a")


def test_nobody_takes_back_a_plain_subscription_of_another():
    pub = Publisher()
    pub.come(HONEST, b"a")
    pub.go(HOSTILE, b"a")
    assert pub.wants(b"a.b")
    pub.go(HONEST, b"a")
    assert not pub.wants(b"a.b")


def test_a_goodbye_is_not_believed_of_a_connection_that_does_not_listen():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(HOSTILE, key(2, leaving=True))
    assert pub.wants(b"a")
    assert not pub.router.streams[stream_key(NAME)].is_closing


def test_a_goodbye_ends_what_only_its_own_connection_declared():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(HOSTILE, stream_key(NAME), key(2, "b"), key(3, leaving=True))
    assert pub.wants(b"a")
    assert not pub.wants(b"b")
    # The stream is answered, with the goodbye among what stands.
    stream = pub.router.streams[stream_key(NAME)]
    assert list(stream.chunks) == [1, 3]
    assert stream in pub.router.to_answer


def test_a_goodbye_counts_as_little_when_its_connection_has_stopped_listening_since():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    for frame in (b"\1" + stream_key(NAME), b"\1" + key(2, leaving=True), b"\0" + stream_key(NAME)):
        pub.queue.take(frame, HOSTILE, 0.0)
    pub.work()
    assert not pub.router.streams[stream_key(NAME)].is_closing
    assert pub.wants(b"a")


def test_a_goodbye_of_the_only_connection_ends_the_stream():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME), key(2, leaving=True))
    assert pub.router.streams[stream_key(NAME)].is_closing
    assert not pub.wants(b"a")


def test_a_goodbye_before_its_stream_counts_once_the_connection_listens():
    """A subscriber that leaves as it meets a publisher: ZeroMQ asks in the order of bytes, `D` before `S`."""
    pub = Publisher()
    pub.come(HONEST, key(2, leaving=True))
    assert not pub.router.streams
    pub.come(HONEST, stream_key(NAME))
    stream = pub.router.streams[stream_key(NAME)]
    assert (stream.is_closing, stream.live(), stream in pub.router.to_answer) == (True, [2], True)


def test_a_goodbye_before_its_stream_ends_nothing_of_another():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(HOSTILE, key(2, leaving=True), stream_key(NAME))
    assert not pub.router.streams[stream_key(NAME)].is_closing
    assert pub.wants(b"a")


def test_a_goodbye_that_was_taken_back_before_its_stream_comes_is_none():
    pub = Publisher()
    pub.come(HONEST, key(2, leaving=True))
    pub.go(HONEST, key(2, leaving=True))
    pub.come(HONEST, key(3, "a"), stream_key(NAME))
    assert pub.wants(b"a")
    assert not pub.router.streams[stream_key(NAME)].is_closing


def test_goodbyes_before_their_streams_take_little_and_end_with_their_connections():
    pub = Publisher()
    for number in range(1_000):
        name = number.to_bytes(16, "big")
        pub.come(HOSTILE, key(1, name=name, leaving=True), key(2, name=name, leaving=True) + bytes(1_000))
        pub.come(HOSTILE, key(3, name=name, leaving=True))
    assert pub.queue.accounts[HOSTILE].goodbyes == 256
    assert pub.queue.has_doubts
    pub.alive.remove(HOSTILE)
    pub.queue.sweep(10.0)
    assert pub.queue.accounts[HOSTILE].goodbyes == 0
    assert not pub.queue.has_doubts


def test_a_goodbye_is_believed_of_a_connection_that_has_closed_behind_it():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(HONEST._replace(inode=None), key(2, leaving=True))
    assert pub.router.streams[stream_key(NAME)].is_closing


def test_goodbyes_over_all_connections_of_a_stream_end_it():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(HOSTILE, key(1, "a"), stream_key(NAME), key(2, leaving=True), key(3, leaving=True))
    stream = pub.router.streams[stream_key(NAME)]
    assert (stream.is_closing, pub.wants(b"a")) == (False, True)
    pub.come(HONEST, key(2, leaving=True))
    assert (stream.is_closing, pub.wants(b"a")) == (True, False)


def test_a_goodbye_of_a_connection_that_has_closed_ends_nothing_of_another():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(Peer(9, None), stream_key(NAME))
    pub.come(Peer(10, None), stream_key(NAME))
    # Of which of them that was, nobody knows.
    pub.go(None, stream_key(NAME))
    pub.come(Peer(9, None), key(2, leaving=True))
    assert not pub.router.streams[stream_key(NAME)].is_closing
    assert pub.wants(b"a")


def test_a_goodbye_is_not_believed_of_a_connection_that_has_closed_and_did_not_listen():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(Peer(9, None), key(2, leaving=True))
    assert list(pub.router.streams[stream_key(NAME)].chunks) == [1]


def test_a_goodbye_over_tcp_ends_nothing_of_who_is_inside_the_process():
    pub = Publisher()
    pub.come(None, key(1, "a"), stream_key(NAME))
    pub.come(Peer(9, None), stream_key(NAME), key(2, leaving=True))
    pub.come(HOSTILE, stream_key(NAME), key(2, leaving=True))
    assert not pub.router.streams[stream_key(NAME)].is_closing
    pub.come(None, key(2, leaving=True))
    assert pub.router.streams[stream_key(NAME)].is_closing


def test_what_a_connection_that_has_closed_asked_for_it_may_take_back():
    pub = Publisher()
    closed = Peer(9, None)
    declared = key(1, "n", name=b"c" * 16)
    for one in (b"a", stream_key(b"c" * 16), declared):
        pub.come(closed, one)
        pub.go(closed, one, one)
    assert not pub.wants(b"a")
    pub.router.expire(100.0)
    assert not pub.router.streams
    # It was asked for by others too, who keep it.
    pub.come(HONEST, b"b")
    pub.come(closed, b"b")
    pub.go(closed, b"b", b"b")
    pub.go(Peer(10, None), b"b")
    assert pub.wants(b"b")
    pub.go(HONEST, b"b")
    assert not pub.wants(b"b")


def test_the_end_of_a_connection_that_had_closed_is_not_mixed_up_with_what_comes_later():
    pub = Publisher()
    closed = Peer(9, None)
    pub.come(HONEST, b"a")
    pub.come(closed, b"a")
    pub.go(None, b"a")
    pub.come(closed, b"a")
    pub.go(closed, b"a")
    assert pub.wants(b"a")
    pub.go(HONEST, b"a")
    assert not pub.wants(b"a")


def test_what_a_connection_that_has_closed_was_refused_it_may_take_back():
    pub = Publisher(plain_size=4)
    closed = Peer(9, None)
    pub.come(None, b"long.")
    pub.come(closed, b"long.")
    assert pub.stats.refused == 1
    pub.go(closed, b"long.", b"long.")
    assert pub.wants(b"long.a")
    # Nobody was refused it that is still there: so this is the end of who was not.
    pub.go(None, b"long.")
    assert not pub.wants(b"long.a")


def test_one_that_gets_the_descriptor_of_a_closed_connection_takes_nothing_back_of_others():
    pub = Publisher()
    pub.come(HONEST, b"a")
    for descriptor in (9, 10):
        pub.come(Peer(descriptor, None), b"a")
    pub.go(None, b"a")
    pub.go(Peer(9, None), b"a", b"a")
    pub.go(None, b"a")
    pub.go(Peer(9, None), b"a")
    assert pub.wants(b"a")


def test_what_a_connection_that_has_closed_takes_back_counts_only_if_it_held_it():
    pub = Publisher()
    pub.come(HONEST, b"a")
    pub.go(Peer(HOSTILE.descriptor, None), b"a")
    assert pub.wants(b"a")
    pub.go(Peer(HONEST.descriptor, None), b"a")
    assert not pub.wants(b"a")


def test_what_a_verbose_proxy_passes_on_again_is_answered_again():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.router.to_answer.clear()
    assert pub.come(HONEST, stream_key(NAME)) == [((stream_key(NAME),), ())]
    assert len(pub.router.to_answer) == 1


def test_a_stream_is_told_what_the_end_of_one_of_its_connections_took_back():
    pub = Publisher()
    pub.come(HONEST, key(1, "a"), stream_key(NAME))
    pub.come(HOSTILE, stream_key(NAME))
    pub.router.to_answer.clear()
    pub.alive.discard(HONEST)
    pub.go(None, key(1, "a"), stream_key(NAME))
    (stream,) = pub.router.to_answer
    assert not stream.live()
