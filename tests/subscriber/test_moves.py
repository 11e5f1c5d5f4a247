"""A move from a plain connection to a link, frame by frame: the publisher is a script."""

import pytest
import zmq

from oz.errors import Timeout
from oz.transport.routers import link_endpoint, listening_router
from oz.wire import links
from oz.wire.links import Answer, Hello, Welcome
from support.ports import free_endpoint
from support.waiting import DEADLINE, until

EPOCH = b"e" * 16


class ScriptedPublisher:
    """PUB at an endpoint and, once `open_links` is called, a ROUTER at its link endpoint.

    Attributes:
        declared: revisions of the declarations that arrived.
    """

    def __init__(self):
        self.endpoint = free_endpoint()
        context = zmq.Context.instance()
        self._plain = context.socket(zmq.XPUB)
        self._plain.bind(self.endpoint)
        self._router = None
        self._route = None
        self.declared = []

    def open_links(self):
        self._router = listening_router(zmq.Context.instance(), message_bytes=1 << 20, window=16)
        self._router.bind(link_endpoint(self.endpoint))

    def read(self):
        while self._router.poll(0):
            route, frame = self._router.recv_multipart()
            if not frame:
                continue
            control = links.decode_control(frame)
            if isinstance(control, Hello):
                self._route = route
                welcome = Welcome(b"o" * 16, EPOCH, control.attempt, 0, 0, 16, 1 << 20, 1 << 20)
                self._send(links.encode_welcome(welcome))
            elif isinstance(control, links.Declare):
                self.declared.append(control.revision)

    def _send(self, frame):
        self._router.send_multipart([self._route, frame])

    def answer(self, position):
        self._send(links.encode_answer(Answer(self.declared[-1], [], position)))

    def batch(self, sequence, position, subject):
        body = links.encode_body([subject.encode(), b"link", None])
        self._send(links.join(links.encode_head(0, 1, sequence, 1, 0, position), body))

    def plain(self, subject):
        self._plain.send_multipart([subject.encode(), b"plain"])

    def close(self):
        self._plain.close(0)
        if self._router is not None:
            self._router.close(0)


@pytest.fixture
def script():
    publisher = ScriptedPublisher()
    yield publisher
    publisher.close()


def attend(sub, script, condition):
    """Run the engine of the subscriber and the script of the publisher until a condition holds."""

    def check():
        sub._engine.attend()
        script.read()
        return condition()

    until(check)


def all_received(sub):
    found = []
    while True:
        try:
            message = sub.receive(timeout=0.2)
        except Timeout:
            return found
        found.append((message.subject, message.payload))


@pytest.fixture
def served(make, script):
    """Return a subscriber that the plain connection of the script serves."""
    gaps = []
    sub = make(script.endpoint, on_gap=gaps.append)
    sub.gaps = gaps
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    return sub


def test_only_messages_behind_the_position_of_the_second_answer_are_delivered(served, script):
    sub = served

    def is_delivered():
        script.plain("a.1")
        sub._engine.attend()
        return sub.stats.delivered

    until(is_delivered)
    script.open_links()
    attend(sub, script, lambda: sub.publishers[0].origin and script.declared)
    script.batch(0, 4, "a.2")
    script.answer(5)
    first = script.declared[-1]
    attend(sub, script, lambda: script.declared[-1] > first)
    # The plain connection is closed: no message of it arrives after the second declaration.
    assert sub._engine.places[script.endpoint].plain is None
    script.batch(1, 5, "a.3")
    script.answer(7)
    # The publisher sends a backlog after the answer.
    script.batch(2, 6, "a.4")
    script.batch(3, 7, "a.5")
    attend(sub, script, lambda: sub.stats.repeated == 3)
    found = all_received(sub)
    assert set(found[:-1]) == {("a.1", b"plain")}
    assert found[-1] == ("a.5", b"link")
    assert [(gap.count, gap.reason) for gap in sub.gaps] == [(None, "moved")]


def test_a_plain_publisher_gets_no_subscription_before_its_link_was_asked(make, script):
    script.open_links()
    sub = make(script.endpoint)
    sub.subscribe("a.*")
    attend(sub, script, lambda: script.declared)
    assert not script._plain.poll(0)
