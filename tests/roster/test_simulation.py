"""Schedules of the simulation: the suite runs 200, `python -m roster.simulation 0 20000` runs 20,000."""

from math import inf
from unittest.mock import patch

import pytest

from oz.node.roster import KNOWN, Refused, Roster
from roster.simulation import run_seed


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_all_nodes_of_a_bus_are_up_after_the_faults(first):
    for seed in range(first, first + 50):
        run_seed(seed)


def nothing(*arguments):
    pass


def forget_at_once(self, peer):
    is_away = peer.state == KNOWN and not peer.is_linked and not peer.sessions
    return peer.known_at if is_away else inf


def name_nobody(self, now):
    self._named_at = now


def refuse_once(self, endpoint, reason, now):
    self._hang_up(endpoint)
    self._out.append(Refused(endpoint.text, reason))


def keep_both_links(self, peer, endpoint, card, now):
    endpoint.node = peer.node
    peer.link, peer.is_linked = endpoint.text, True
    self._contact(peer, card, now)
    self._settle(peer, now)


REMOVALS = {
    "introductions": ("_introduce", nothing),
    "introductions in turn": ("_name_peers", name_nobody),
    "silence": ("_down", nothing),
    "turns of endpoints": ("_dial", nothing),
    "refusals": ("_refuse", refuse_once),
    "one link for each peer": ("_link", keep_both_links),
    "lost peers stay": ("_forget_at", forget_at_once),
}


@pytest.mark.parametrize("name", REMOVALS)
def test_simulation_fails_without_a_mechanism(name):
    method, removed = REMOVALS[name]
    with patch.object(Roster, method, removed):
        for seed in range(200):
            try:
                run_seed(seed)
            except (AssertionError, RecursionError):
                return
    pytest.fail(f"200 schedules pass without {name}")
