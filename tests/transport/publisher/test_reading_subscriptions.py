"""How a publisher reads subscriptions: libzmq looks at connections that have ended if it takes its time."""

from __future__ import annotations

import zmq

import oz
from oz.transport.publisher import attending
from support.waiting import DEADLINE, until


def recorded(monkeypatch, name, calls):
    """Have the calls of a function noted down."""
    call = getattr(attending, name)

    def note(*arguments):
        calls.append(name)
        return call(*arguments)

    monkeypatch.setattr(attending, name, note)


def test_a_publisher_reads_all_subscriptions_before_a_connection_can_end(monkeypatch):
    calls = []
    with zmq.Context() as context, oz.Publisher("inproc://x", context=context) as pub:
        # Meanwhile its thread waits.
        with pub._engine.guard, context.socket(zmq.SUB) as sub:
            for number in range(20):
                sub.subscribe(b"%d" % number)
            sub.connect("inproc://x")
            recorded(monkeypatch, "backend_get", calls)
            recorded(monkeypatch, "backend_recv", calls)
            pub._engine.listen()
            monkeypatch.undo()
            assert pub.interest("19")
        # Asking for events in between would end connections whose subscriptions are not read yet.
        assert calls == ["backend_get"] + 21 * ["backend_recv"]
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
