"""Peers of a bus that keep no rules, beside a node, one of asyncio, or a forwarder to another bus.

The heavy run has each attack against each kind of victim. The suite has a few, against each kind: beside
them its other tests have the attacks against sockets and single nodes.
"""

import pytest

from hostile.attacked import attacker
from hostile.buses import KINDS, bus_with
from support.sizes import size
from support.waiting import until

ROUNDS = size(1, 30)


def each_against_each(attacks):
    """Give attacks and victims; those that are not named beside an attack are for the heavy run."""
    return [
        pytest.param(kind, attack, marks=() if kind in kinds else pytest.mark.heavy)
        for attack, kinds in attacks.items()
        for kind in KINDS
    ]


FORGED = {"cannot be": {}, "can be": {"asyncio"}, "goodbyes": {}}


@pytest.mark.sized
@pytest.mark.parametrize(("kind", "what"), each_against_each(FORGED))
def test_who_hears_a_node_hears_it_whoever_else_uses_its_name(kind, what):
    with bus_with(kind) as bus:
        # Who is heard first is believed first.
        bus.goes_on_in_a_run(10)
        with attacker("forging_node.py", bus.directory, "honest", what):

            def is_noticed():
                bus.publish()
                return bus.victim.told()["contradictions"] >= 50

            until(is_noticed)
            # What can be is believed for a moment.
            bus.goes_on_in_a_run(100)
            bus.all_arrives(ROUNDS)


DONE = {
    "subscribing.py declare_without_end ENDPOINT": {"forwarder"},
    "subscribing.py listen_on_many_streams ENDPOINT": {},
    "subscribing.py subscribe_to_long_prefixes ENDPOINT": {},
    "subscribing.py declare_empty_chunks ENDPOINT": {},
    "subscribing.py read_no_batches ENDPOINT": {},
    "costing.py ENDPOINT dear": {},
    "costing.py ENDPOINT heavy": {},
    "claiming.py ENDPOINT": {},
    "saying_goodbye.py DIRECTORY honest ENDPOINT": {"node"},
    "forging_node.py DIRECTORY honest names": {},
    "answering.py DIRECTORY VICTIM a": {},
}


@pytest.mark.sized
@pytest.mark.parametrize(("kind", "attack"), each_against_each(DONE))
def test_a_bus_goes_on_whatever_a_stranger_does_to_one_of_its_peers(kind, attack):
    with bus_with(kind) as bus:
        words = {"ENDPOINT": bus.victim.said["endpoint"], "DIRECTORY": bus.directory, "VICTIM": kind}
        with attacker(*(words.get(one, one) for one in attack.split())):
            bus.all_arrives(ROUNDS)
