"""Schedules of the simulation: the suite runs 200, `python -m peers.simulation 0 10000` runs 10,000."""

from unittest.mock import patch

import pytest

from oz.node.peers import Peers
from oz.node.requests import Requests
from peers.simulation import run_seed


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_schedules_keep_all_promises(first):
    for seed in range(first, first + 25):
        run_seed(seed)


def keep_both(peers, peer):
    found = peer.connections
    return found[0] if found else None


def forget_retries(requests, node, now):
    return []


def name_nobody(peers, now):
    peers._named_at = now


def introduce_nobody(peers, peer, others):
    pass


REMOVALS = {
    "smaller id wins": (Peers, "_chosen", keep_both),
    "lost holders": (Requests, "peer_lost", forget_retries),
    "introductions": (Peers, "_introduce", introduce_nobody),
    "introductions in turn": (Peers, "_name_peers", name_nobody),
}


@pytest.mark.parametrize("name", REMOVALS)
def test_simulation_fails_without_a_mechanism(name):
    owner, method, removed = REMOVALS[name]
    with patch.object(owner, method, removed):
        for seed in range(100):
            try:
                run_seed(seed)
            except AssertionError:
                return
    pytest.fail(f"100 schedules pass without {name}")
