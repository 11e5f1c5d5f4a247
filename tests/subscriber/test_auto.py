"""`filtering="auto"` and plain publishers, over real sockets."""

import pytest
import zmq

from oz.errors import Timeout
from oz.transport.errors import EndpointError
from oz.transport.routers import link_endpoint
from support.ports import free_endpoint
from support.waiting import DEADLINE


def modes(sub):
    return [publisher.mode for publisher in sub.publishers]


def received(sub, publish):
    """Publish until the subscriber receives something."""
    while True:
        publish()
        try:
            return sub.receive(timeout=0.1)
        except Timeout:
            pass


def test_the_link_port_is_closed(make, feed):
    sub = make(feed.endpoint, links={feed.endpoint: link_endpoint(free_endpoint())})
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    assert modes(sub) == ["prefix"]
    assert received(sub, lambda: feed.publish("a.1")).subject == "a.1"
    sub.subscribe("b.*", group="g")
    with pytest.raises(Timeout) as caught:
        sub.wait_ready(timeout=0.1)
    assert feed.endpoint in str(caught.value)
    assert "open the link port" in str(caught.value)
    assert received(sub, lambda: feed.publish("b.1", "a.2")).subject.startswith("a.")


def test_bind_serves_plain_publishers_that_connect(make):
    sub = make(bind="tcp://127.0.0.1:*")
    sub.subscribe("a.*")
    assert not sub.endpoint.endswith("*")
    socket = zmq.Context.instance().socket(zmq.PUB)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(sub.endpoint)
    try:
        assert received(sub, lambda: socket.send_multipart([b"a.1", b"x"])).subject == "a.1"
        sub.unbind(sub.endpoint)
        assert sub.endpoint is None
        with pytest.raises(EndpointError, match="not bound"):
            sub.unbind("tcp://127.0.0.1:9")
    finally:
        socket.close(0)
