"""Health of a node whose thread or loop is blocked."""

import threading

from oz.node import engine
from oz.options import Delivery
from support.waiting import DEADLINE, Thread, until


def test_node_whose_thread_or_loop_is_blocked_is_not_healthy(make, monkeypatch):
    monkeypatch.setattr(engine, "HEALTHY_SECONDS", 0.5)
    node = make("node")
    # A call through the loop would wait for the handler.
    plain = getattr(node, "wrapped", node)
    go_on = threading.Event()
    node.subscribe("block", lambda message: go_on.wait(DEADLINE) and None, delivery=Delivery(inline=True))
    until(plain.is_healthy)
    # A call of an asyncio node ends after the handler.
    publishing = Thread(lambda: node.publish("block"))
    until(lambda: not plain.is_healthy())
    go_on.set()
    publishing.outcome()
    until(plain.is_healthy)


def test_any_thread_reads_the_metrics_of_a_node(make):
    node = make("node")
    assert "oz_peers" in getattr(node, "wrapped", node).metrics()
