"""`filtering="auto"` and plain publishers, over real sockets."""

import threading

import pytest
import zmq

from oz.errors import Timeout
from oz.transport.endpoints import EndpointError
from oz.transport.routers import link_endpoint
from subscriber.publishing import free_endpoint
from support.waiting import until


class PlainPublisher:
    """XPUB of plain pyzmq."""

    def __init__(self, endpoint):
        self.socket = zmq.Context.instance().socket(zmq.XPUB)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.XPUB_VERBOSER, 1)
        until(lambda: self._bind(endpoint))

    def _bind(self, endpoint):
        try:
            self.socket.bind(endpoint)
        except zmq.ZMQError:
            return False
        return True

    def subscriptions(self, count):
        """Wait for a number of subscriptions."""
        return [self.socket.recv() for _ in range(count)]

    def publish(self, subject, *frames):
        self.socket.send_multipart([subject.encode(), *(frames or (b"x",))])

    def close(self):
        self.socket.close(0)


@pytest.fixture
def plain():
    made = []

    def create(endpoint):
        made.append(PlainPublisher(endpoint))
        return made[-1]

    yield create
    for one in made:
        one.close()


def modes(sub):
    return [one.mode for one in sub.publishers]


def settle(sub, mode):
    """Let the subscriber work until its only endpoint has a mode."""
    until(lambda: sub.run(timeout=0.02) is not None and modes(sub) == [mode])


def received(sub, publish):
    """Publish until the subscriber receives something."""
    while True:
        publish()
        try:
            return sub.receive(timeout=0.1)
        except Timeout:
            pass


def test_a_plain_publisher_is_filtered_by_prefix_and_pattern(make, plain):
    endpoint = free_endpoint()
    publisher = plain(endpoint)
    sub = make(endpoint)
    sub.subscribe("a.*.c")
    sub.wait_ready()
    assert modes(sub) == ["prefix"]
    assert publisher.subscriptions(1) == [b"\x01a."]
    publisher.publish("a.b.d")
    publisher.publish("b")
    publisher.publish("a.b.c", b"one", b"two")
    message = sub.receive(timeout=10)
    assert (message.subject, message.payload) == ("a.b.c", b"one")
    assert message.frames == [b"a.b.c", b"one", b"two"]
    assert (message.origin, message.sequence, message.position, message.gap) == (None, None, None, 0)
    assert sub.stats.filtered == 1
    publisher.publish("a.x.c")
    message = sub.receive(timeout=10)
    assert message.frames == [b"a.x.c", b"x"]


def test_prefix_mode_asks_for_no_link(make, publish, plain):
    publisher = publish(has_plain=True)
    sub = make(publisher.endpoint, filtering="prefix")
    sub.subscribe("a")
    sub.wait_ready()
    received(sub, lambda: publisher.publish("a"))
    assert publisher.do(lambda: len(publisher.sessions.by_id)) == 0
    assert modes(sub) == ["prefix"]


def test_an_oz_publisher_that_starts_later(make, publish):
    endpoint = free_endpoint()
    sub = make(endpoint)
    sub.subscribe("a.*")
    settle(sub, "connecting")
    with pytest.raises(Timeout, match="nothing answers"):
        sub.wait_ready(timeout=1)
    publisher = publish(endpoint)
    settle(sub, "link")
    sub.wait_ready()
    publisher.publish("a.1", "a.2")
    assert [sub.receive(timeout=10).subject for _ in range(2)] == ["a.1", "a.2"]
    with pytest.raises(Timeout):
        sub.receive(timeout=0.1)


def test_a_plain_publisher_is_replaced_by_oz_and_back(make, plain, publish):
    endpoint, gaps = free_endpoint(), []
    sub = make(endpoint, on_gap=gaps.append)
    sub.subscribe("a.*")
    first = plain(endpoint)
    sub.wait_ready()
    received(sub, lambda: first.publish("a.plain"))
    first.close()
    publisher = publish(endpoint, has_plain=True)
    settle(sub, "link")
    sub.wait_ready()
    until(lambda: sub.run(timeout=0.02) is not None and (gaps or drain_some(sub)))
    assert [(one.count, one.reason) for one in gaps] == [(None, "moved")]
    drain_some(sub)
    # Both the link and the XPUB of the publisher carry them: each arrives once.
    publisher.publish("a.1", "a.2")
    assert [sub.receive(timeout=10).subject for _ in range(2)] == ["a.1", "a.2"]
    with pytest.raises(Timeout):
        sub.receive(timeout=0.1)
    publisher.close()
    third = plain(endpoint)
    settle(sub, "prefix")
    received(sub, lambda: third.publish("a.3"))


def drain_some(sub):
    try:
        while True:
            sub.receive(timeout=0)
    except Timeout:
        return False


def test_the_link_port_is_closed(make, publish):
    publisher = publish(has_plain=True)
    sub = make(publisher.endpoint, links={publisher.endpoint: link_endpoint(free_endpoint())})
    sub.subscribe("a.*")
    sub.wait_ready()
    assert modes(sub) == ["prefix"]
    assert received(sub, lambda: publisher.publish("a.1")).subject == "a.1"
    sub.subscribe("b.*", group="g")
    with pytest.raises(Timeout) as caught:
        sub.wait_ready(timeout=0.1)
    assert publisher.endpoint in str(caught.value)
    assert "open the link port" in str(caught.value)
    assert received(sub, lambda: publisher.publish("b.1", "a.2")).subject.startswith("a.")


def test_behind_a_plain_proxy(make, plain):
    context = zmq.Context.instance()
    endpoint = free_endpoint()
    front, back = context.socket(zmq.XSUB), context.socket(zmq.XPUB)
    front.bind("inproc://front-of-a-test")
    back.bind(endpoint)
    control = context.socket(zmq.PAIR)
    control.bind("inproc://control-of-a-test")
    end = context.socket(zmq.PAIR)
    end.connect("inproc://control-of-a-test")
    thread = threading.Thread(target=zmq.proxy_steerable, args=(front, back, None, control))
    thread.start()
    source = context.socket(zmq.PUB)
    source.connect("inproc://front-of-a-test")
    try:
        sub = make(endpoint)
        sub.subscribe("a.*")
        sub.wait_ready()
        message = received(sub, lambda: source.send_multipart([b"a.1", b"x"]))
        assert (message.subject, modes(sub)) == ("a.1", ["prefix"])
        sub.close()
    finally:
        end.send(b"TERMINATE")
        thread.join(40)
        for one in (front, back, control, end, source):
            one.close(0)


def test_two_publishers_of_which_one_is_plain(make, plain, publish):
    other, publisher = free_endpoint(), publish()
    foreign = plain(other)
    sub = make([publisher.endpoint, other])
    sub.subscribe("a.*")
    sub.wait_ready()
    assert modes(sub) == ["link", "prefix"]
    publisher.publish("a.1")
    assert sub.receive(timeout=10).subject == "a.1"
    assert received(sub, lambda: foreign.publish("a.2")).subject == "a.2"


def test_a_publisher_that_stalls_serves_groups_by_its_link_only(make, publish):
    publisher = publish(has_plain=True)
    publisher.stall()
    sub, jobs = make(publisher.endpoint), []
    sub.subscribe("job.*", jobs.append, group="workers")
    sub.subscribe("a.*")
    # The TCP connection stands: the plain connection opens after 2 seconds.
    settle(sub, "prefix")
    publisher.resume()
    settle(sub, "link")
    sub.wait_ready()
    publisher.publish("job.1", "a.1", "job.2")
    assert sub.receive(timeout=10).subject == "a.1"
    until(lambda: sub.run(timeout=0.02) is not None and len(jobs) >= 2)
    sub.run(timeout=0.1)
    assert [one.subject for one in jobs] == ["job.1", "job.2"]


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


def test_unsubscribe_removes_the_prefix(make, plain):
    endpoint = free_endpoint()
    publisher = plain(endpoint)
    sub = make(endpoint, filtering="prefix")
    one = sub.subscribe("a.*")
    sub.wait_ready()
    assert publisher.subscriptions(1) == [b"\x01a."]
    one.unsubscribe()
    assert publisher.subscriptions(1) == [b"\x00a."]
