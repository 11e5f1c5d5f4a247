"""Peers of a bus that keep no rules, beside nodes, one of asyncio and a forwarder to another bus."""

import shutil
import tempfile
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

import oz
from hostile.attacked import SLOW, attacker, victim
from support.inside import engine_of
from support.sizes import size
from support.waiting import DEADLINE, until

COUNT = size(100, 3_000)
SAID = 20
NODES = ("node", "asyncio")


@pytest.fixture(scope="module")
def bus():
    """Two buses with a forwarder between them: two victims on the first, and an honest node on each."""
    made = tempfile.mkdtemp(prefix="oz-", dir="/tmp")
    directory = f"{made}/bus"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, made, ignore_errors=True)
        victims = {kind: stack.enter_context(victim(kind, directory)) for kind in (*NODES, "forwarder")}
        honest = stack.enter_context(oz.Node("honest", bus="a", directory=directory))
        far = stack.enter_context(oz.Node("far", bus="b", directory=directory))
        got = []
        far.subscribe("a.b", handler=lambda message: got.append(message.payload))
        said = {kind: [] for kind in (*NODES, "forwarder")}
        for kind, heard in said.items():
            honest.subscribe(
                f"{SLOW}.{kind}", handler=lambda message, heard=heard: heard.append(message.payload)
            )
        honest.wait_for_peers({*NODES, "forwarder"}, timeout=DEADLINE)
        far.wait_for_peers({"forwarder"}, timeout=DEADLINE)
        honest.wait_ready(DEADLINE)
        # Peers are ready before the forwarder: it asks for nothing until it has looked for other forwarders.
        until(lambda: asked_for(honest, "a.b") == len(victims))
        until(lambda: [asked_for(far, f"svc.{kind}") for kind in NODES] == [1, 1])
        until(lambda: asked_for(far, f"{SLOW}.forwarder") == 1)
        yield SimpleNamespace(
            directory=directory,
            victims=victims,
            honest=honest,
            far=far,
            got=got,
            said=said,
            sent=iter(range(10**9)),
        )


def asked_for(node, subject):
    """Count the peers whose interest in a subject has come to a node."""
    return engine_of(node).sockets.main.engine.sender.routes.count(subject)


def publish(bus):
    number = next(bus.sent)
    bus.honest.publish("a.b", number)
    time.sleep(0.001)
    return number


def everybody_gets_what_is_published(bus, count):
    """Publish, and have requests answered, also from the other bus; all of it arrives, in order.

    The victims publish too, what is dear to match for who asks so.
    """
    numbers = [publish(bus) for _ in range(count)]

    def outcomes():
        heard = {kind: bus.victims[kind].told()["got"] for kind in NODES} | {"far": list(bus.got)}
        return heard if all(one[-1:] == numbers[-1:] for one in heard.values()) else None

    for kind, got in until(outcomes).items():
        assert [one for one in got if one >= numbers[0]] == numbers, kind
        assert got == sorted(set(got)), kind
    for number in numbers[:SAID]:
        for kind in NODES:
            bus.honest.publish(f"say.{kind}", number)
        bus.far.publish(f"{SLOW}.forwarder", number)
    until(lambda: all(heard[-1:] == numbers[SAID - 1 : SAID] for heard in bus.said.values()))
    assert {kind: heard[-SAID:] for kind, heard in bus.said.items()} == dict.fromkeys(
        bus.said, numbers[:SAID]
    )
    for number in range(20):
        for asks in (bus.honest, bus.far):
            for kind in NODES:
                assert asks.request(f"svc.{kind}", number, timeout=DEADLINE).payload == number
    bus.victims["forwarder"].told()
    assert {bus.victims[kind].told()["failed"] for kind in NODES} == {0}


@pytest.mark.parametrize("what", ["cannot be", "can be", "goodbyes"])
def test_nodes_hear_a_node_whose_name_another_one_uses(bus, what):
    before = {kind: one.told()["contradictions"] for kind, one in bus.victims.items()}
    with attacker("forging_node.py", bus.directory, "honest", what):

        def is_noticed():
            publish(bus)
            return all(one.told()["contradictions"] >= before[kind] + 50 for kind, one in bus.victims.items())

        until(is_noticed)
        everybody_gets_what_is_published(bus, COUNT)


ATTACKS = {
    "subscribing.py declare_without_end ENDPOINT": {"node", "asyncio", "forwarder"},
    "subscribing.py listen_on_many_streams ENDPOINT": {"forwarder"},
    "costing.py ENDPOINT dear": {"asyncio", "forwarder"},
    "costing.py ENDPOINT heavy": {"node"},
    "claiming.py ENDPOINT": {"asyncio"},
    "idling.py ENDPOINT 400 SUB 127.0.0.2": {"node"},
    "saying_goodbye.py DIRECTORY honest ENDPOINT": {"node"},
}
"""What a stranger does, and to whom in the suite; the heavy run does it to all."""


@pytest.mark.parametrize(
    ("kind", "attack"),
    [
        pytest.param(kind, attack, marks=() if kind in kinds else pytest.mark.heavy)
        for attack, kinds in ATTACKS.items()
        for kind in (*NODES, "forwarder")
    ],
)
def test_a_bus_goes_on_whatever_a_stranger_does_to_one_of_its_publishers(bus, kind, attack):
    words = {"ENDPOINT": bus.victims[kind].said["endpoint"], "DIRECTORY": bus.directory}
    with attacker(*(words.get(one, one) for one in attack.split())):
        everybody_gets_what_is_published(bus, COUNT)


def test_a_bus_goes_on_beside_a_node_that_uses_a_new_name_for_all_it_says(bus):
    with attacker("forging_node.py", bus.directory, "honest", "names"):
        everybody_gets_what_is_published(bus, COUNT)


@pytest.mark.parametrize("kind", [*NODES, "forwarder"])
def test_a_bus_goes_on_beside_replies_to_nobody(bus, kind):
    with attacker("answering.py", bus.directory, kind, "a"):
        everybody_gets_what_is_published(bus, COUNT)
