"""Multicast on a network of namespaces. Each scene checks that each message is delivered or reported lost."""

import pytest

from multicast import needs, scenes
from support.network import Network
from support.sizes import size

pytestmark = [needs.pgm, needs.namespaces, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def network():
    with Network(5) as built:
        yield built


def has_delivered(row, minimum):
    """Return whether a subscriber delivered enough, or connected again.

    On a busy machine a publisher may be silent for `stale_after`, and libpgm may get stuck after heavy loss. A
    subscriber that connects again has reported the messages that it lost.
    """
    return row.delivered >= minimum or row.reconnects > 0


@pytest.mark.sized
@pytest.mark.timeout(1_000)
def test_random_loss_is_repaired_or_reported(network):
    rows = scenes.losses(network, count=size(3_000, 100_000))
    assert all(has_delivered(row, 0.9 * row.sent) for row in rows)
    whole = rows[0]
    assert (whole.delivered, whole.lost, whole.malformed, whole.reconnects) == (whole.sent, 0, 0, 0)
    assert whole.lost_packets == 0
    assert all(row.lost_packets > 10 for row in rows[2:])
    assert all(row.repairs > 10 for row in rows[1:])


@pytest.mark.heavy
def test_outage_is_reported_and_delivery_resumes(network):
    short, _, quick, whole = scenes.outages(network)
    assert short.repairs > 100
    # About 1,000 messages arrived before the outage. A subscriber that waits for less time than PGM repairs loses more.
    assert quick.delivered > 1_500
    assert has_delivered(whole, whole.sent)


@pytest.mark.heavy
def test_late_and_restarted_subscribers_report_no_earlier_messages(network):
    late, restarted, publisher = scenes.restarts(network)
    assert late.delivered
    assert restarted.delivered
    assert late.uncounted == restarted.uncounted == 0
    assert has_delivered(publisher, 0.7 * publisher.sent)


def test_close_waits_for_repairs(network):
    for row in scenes.closing(network):
        assert has_delivered(row, 1_000)


def test_subscriber_that_misses_the_beginning_reports_a_loss(network):
    (row,) = scenes.missed_beginning(network)
    # The loss has no count if the publisher began while the subscriber joined.
    assert row.lost or row.uncounted


def test_subscriber_that_misses_the_close_reports_a_gap_of_unknown_size(network):
    for row in scenes.unheard_close(network):
        assert 0 < row.delivered < row.sent
        assert row.uncounted > 0


def test_successor_of_a_killed_publisher_is_received(network):
    (row,) = scenes.killed_publisher(network)
    assert has_delivered(row, 900)
