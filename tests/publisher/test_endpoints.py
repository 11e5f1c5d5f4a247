"""Endpoints of a publisher and the link endpoints beside them."""

import logging
import re
import socket

import pytest
import zmq

from oz.publisher.links import LinkListener
from oz.transport.errors import EndpointError
from support.waiting import DEADLINE, until


def port_of(endpoint):
    return int(endpoint.rpartition(":")[2])


@pytest.fixture
def pair():
    """Ports of which the second is the link port of the first; both are free."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
        link = port + 10_000 if port <= 55_535 else port - 10_000
        try:
            socket.create_server(("127.0.0.1", link)).close()
        except OSError:
            continue
        return port, link


def test_a_port_whose_link_port_is_taken_is_not_picked(make, join, monkeypatch):
    tried = []
    bind = LinkListener.bind

    def refuse_three(listener, endpoint):
        tried.append(endpoint)
        if len(tried) <= 3:
            raise zmq.ZMQError(zmq.EADDRINUSE)
        return bind(listener, endpoint)

    monkeypatch.setattr(LinkListener, "bind", refuse_three)
    publisher = make()
    assert publisher.link_endpoints == (tried[3],)
    assert len(publisher.endpoints) == 1


def test_a_taken_link_port_leaves_plain_subscribers_until_it_is_free(make, join, pair, caplog):
    port, link = pair
    with socket.create_server(("127.0.0.1", link)), caplog.at_level(logging.WARNING, "oz"):
        publisher = make(f"tcp://127.0.0.1:{port}")
        assert publisher.link_endpoints == ()
        assert str(link) in caplog.text
        check_plain(publisher)
    # The port is free now.
    until(lambda: publisher.link_endpoints)
    peer = join(publisher, "b")
    publisher.publish("b", b"x")
    assert peer.receive(1) == [b"x"]


def check_plain(publisher):
    context = zmq.Context()
    with context.socket(zmq.SUB) as plain:
        plain.connect(publisher.endpoint)
        plain.subscribe(b"")
        publisher.wait_for_subscribers("a", timeout=DEADLINE)
        publisher.publish("a", b"x")
        assert plain.poll(20_000)
    context.term()


def test_a_taken_port_of_explicit_links_is_an_error(make, pair):
    port, link = pair
    with socket.create_server(("127.0.0.1", link)), pytest.raises(EndpointError, match=str(link)) as caught:
        make(f"tcp://127.0.0.1:{port}", links=f"tcp://127.0.0.1:{link}")
    assert caught.value.errno == zmq.EADDRINUSE
    # The publisher that failed holds no port.
    make(f"tcp://127.0.0.1:{port}")


def test_explicit_links(make, join, pair):
    publisher = make(links="tcp://127.0.0.1:*")
    assert re.fullmatch(r"tcp://127\.0\.0\.1:[0-9]+", publisher.link_endpoints[0])
    peer = join(publisher, "a")
    publisher.publish("a", b"x")
    assert peer.receive(1) == [b"x"]


def test_a_taken_port_is_an_error(make, join):
    publisher = make()
    with pytest.raises(EndpointError) as caught:
        make(publisher.endpoint)
    assert caught.value.errno == zmq.EADDRINUSE


def test_several_endpoints(make, join):
    publisher = make(["tcp://127.0.0.1:*", "tcp://127.0.0.1:*"])
    assert len(set(publisher.endpoints)) == len(set(publisher.link_endpoints)) == 2
    assert publisher.endpoint == publisher.endpoints[-1]
    peers = [join(endpoint, "a") for endpoint in publisher.link_endpoints]
    publisher.publish("a", b"x")
    assert [peer.receive(1) for peer in peers] == [[b"x"], [b"x"]]


def test_unbind_frees_both_ports(make, join):
    publisher = make()
    endpoint, link = publisher.endpoint, publisher.link_endpoints[0]
    publisher.unbind(endpoint)
    assert (publisher.endpoint, publisher.endpoints, publisher.link_endpoints) == (None, (), ())
    until(lambda: _can_bind(link))
    publisher.bind(endpoint)
    assert publisher.link_endpoints == (link,)
    with pytest.raises(EndpointError, match="not bound"):
        publisher.unbind("tcp://127.0.0.1:1")
    with pytest.raises(EndpointError, match="not connected"):
        publisher.disconnect("tcp://127.0.0.1:1")


def _can_bind(endpoint):
    try:
        socket.create_server(("127.0.0.1", port_of(endpoint))).close()
    except OSError:
        return False
    return True


def test_an_ipc_path_that_is_too_long_for_links_leaves_plain_subscribers(make, tmp_path, caplog):
    path = str(tmp_path / "x")
    path += "x" * (104 - len(path))
    with caplog.at_level(logging.WARNING, "oz"):
        publisher = make(f"ipc://{path}")
    assert publisher.link_endpoints == ()
    assert "no links" in caplog.text
