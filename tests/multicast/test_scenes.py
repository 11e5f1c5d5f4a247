"""What multicast is put through on a network of namespaces: every scene checks the law, see `playing.check`.

`python tests/multicast/scenes.py` prints the tables of docs/multicast.md.
"""

import os

import needs
import pytest
import scenes
from network import Network

pytestmark = [needs.pgm, needs.namespaces, pytest.mark.timeout(170)]


@pytest.fixture(scope="module")
def network():
    with Network(5) as built:
        yield built


def test_random_loss_is_repaired_or_reported(network):
    rows = scenes.losses(network)
    assert rows[0].lost == 0
    # There was something to repair, on the way to all but the first.
    assert rows[0].lost_packets == 0
    assert all(row.lost_packets > 10 and row.repairs > 10 for row in rows[1:])


def test_an_outage_is_reported_and_ends_by_itself(network):
    short, patient, long, whole = scenes.outages(network)
    assert short.reconnects >= 1
    assert long.reconnects >= 1
    assert long.lost > 5_000
    # It came back well before the end, so that the last messages were delivered.
    assert long.delivered > 2_000
    # PGM repaired it, or nearly.
    assert patient.lost < 1_000
    assert whole.lost == 0


def test_who_restarts_or_comes_late_goes_on_from_there(network):
    late, restarted, publisher = scenes.restarts(network)
    assert late.delivered
    assert restarted.delivered
    assert publisher.delivered > 7_000


def test_two_publishers_on_one_group_are_told_apart(network):
    for row in scenes.two_publishers(network):
        assert row.delivered > 5_000


def test_wrong_rates_are_noticed_and_nothing_corrupt_is_delivered(network):
    hundredth, tenth, tenfold = scenes.wrong_rates(network)
    assert hundredth.lost + tenth.lost > 0
    assert tenfold.delivered > 2_000


def test_a_publisher_that_closes_stays_until_it_was_heard(network):
    for row in scenes.closing(network):
        assert row.delivered > 1_000


def test_a_publisher_may_be_killed(network):
    (row,) = scenes.killed_publisher(network)
    assert row.delivered > 900


@pytest.mark.skipif("OZ_SOAK" not in os.environ, reason="OZ_SOAK=seconds runs it: 1% loss for so long")
@pytest.mark.timeout(86_400)
def test_the_law_holds_for_long(network):
    for row in scenes.soak(network, int(os.environ["OZ_SOAK"])):
        print(row)
        assert row.delivered > 0.99 * row.sent
