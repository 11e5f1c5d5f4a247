"""How a publisher reads subscriptions: libzmq looks at connections that have ended if it takes its time."""

from __future__ import annotations

import zmq

import oz
from oz.transport import backend
from oz.transport.backend import PYZMQ
from support.backends import call_instead
from support.inside import engine_of
from support.waiting import DEADLINE, until


def recorded(name, calls):
    """Return a function of sockets whose calls are noted down."""
    call = getattr(PYZMQ, name)

    def note(*arguments):
        calls.append(name)
        return call(*arguments)

    return note


def test_a_publisher_reads_all_subscriptions_before_a_connection_can_end(monkeypatch):
    calls = []
    # It asks libzmq itself, past pyzmq, where that can be found; the order is the same.
    monkeypatch.setattr(backend, "GETSOCKOPT", None)
    call_instead(monkeypatch, get=recorded("get", calls), recv_named=recorded("recv_named", calls))
    with zmq.Context() as context, oz.Publisher("inproc://x", context=context) as pub:
        # Meanwhile its thread waits.
        with engine_of(pub).guard, context.socket(zmq.SUB) as sub:
            for number in range(20):
                sub.subscribe(b"%d" % number)
            sub.connect("inproc://x")
            calls.clear()
            engine_of(pub).listen()
            seen = list(calls)
            assert pub.interest("19")
        # Asking for events in between would end connections whose subscriptions are not read yet.
        assert seen == ["get"] + 21 * ["recv_named"]
        until(lambda: not pub.interest("19"))


def test_what_a_subscriber_asked_for_that_has_gone_at_once_is_forgotten():
    with zmq.Context() as context, oz.Publisher("inproc://x", context=context) as pub:
        for _ in range(200):
            with context.socket(zmq.SUB) as sub:
                sub.linger = 0
                sub.subscribe(b"a")
                sub.connect("inproc://x")
        with oz.Subscriber("inproc://x", context=context) as sub:
            sub.subscribe("b")
            pub.wait_for_subscribers(subject="b", timeout=DEADLINE)
            until(lambda: not pub.interest("a"))
            pub.publish("b", b"")
            assert sub.receive(timeout=DEADLINE).subject == "b"
