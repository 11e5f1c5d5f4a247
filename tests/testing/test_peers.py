"""Connections of the model tell which they are, as those of libzmq do."""

import zmq

from oz.testing.context import Context
from oz.testing.network import Network
from oz.transport.backend import Peer

ENDPOINT = "tcp://10.0.0.1:7000"


def begin():
    network = Network(1)
    publisher = Context(network, "publisher")
    xpub = publisher.socket(zmq.XPUB)
    xpub.set(zmq.XPUB_MANUAL, 1)
    xpub.bind(ENDPOINT)
    for host, topic in (("one", b"a"), ("other", b"b")):
        sub = Context(network, host).socket(zmq.SUB)
        # As a program does that waits for messages: only then a socket says again what it asks for.
        sub.notify = sub.has_in
        sub.set(zmq.SUBSCRIBE, topic)
        sub.connect(ENDPOINT)
    network.run_until(1.0)
    return network, publisher, xpub


def receive(publisher, xpub, count):
    return dict(publisher.backend.recv_named(xpub, zmq.NOBLOCK) for _ in range(count))


def test_each_connection_is_another_peer_that_stands():
    _, publisher, xpub = begin()
    peers = receive(publisher, xpub, 2)
    one, other = peers[b"\1a"], peers[b"\1b"]
    assert publisher.backend.tells_peers
    assert one.descriptor != other.descriptor
    assert [publisher.backend.inode(peer.descriptor) for peer in (one, other)] == [one.inode, other.inode]


def test_what_a_connection_takes_back_by_ending_is_of_no_peer():
    network, publisher, xpub = begin()
    before = receive(publisher, xpub, 2)[b"\1a"]
    network.cut("one", "publisher")
    network.run_until(2.0)
    assert publisher.backend.inode(before.descriptor) is None
    assert receive(publisher, xpub, 1) == {b"\0a": None}


def test_connection_that_is_half_open_has_ended_for_the_host_that_broke_it_only():
    network, publisher, xpub = begin()
    peer = receive(publisher, xpub, 2)[b"\1a"]
    network.half_open("publisher", "one")
    assert publisher.backend.inode(peer.descriptor) is None
    assert network.is_link(peer.descriptor, "one")


def test_connection_can_be_cut_and_comes_back_as_another():
    network, publisher, xpub = begin()
    peer = receive(publisher, xpub, 2)[b"\1a"]
    publisher.backend.cut(Peer(peer.descriptor, peer.inode))
    network.run_until(3.0)
    after = receive(publisher, xpub, 2)
    assert after[b"\0a"] is None
    assert after[b"\1a"] not in (None, peer)
