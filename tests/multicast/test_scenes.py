"""What multicast is put through on a network of namespaces: every scene checks the law, see `playing.check`.

`PYTHONPATH=tests python -m multicast.scenes` prints the tables of docs/multicast.md.
"""

import pytest

from multicast import needs, outages, scenes
from support.network import Network
from support.sizes import SOAK

pytestmark = [needs.pgm, needs.namespaces, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def network():
    with Network(5) as built:
        yield built


def went_well(row, least):
    """Tell whether so much was delivered, or the subscriber says why not.

    On a busy machine a publisher may not be heard for `stale_after`, and after heavy loss libpgm may get
    stuck. A subscriber that connected anew has lost some, and reported them: delivered and reported come to
    what was sent in any case, as `playing.check` sees to.
    """
    return row.delivered >= least or row.reconnects > 0


def delivers_what_plain_does(row):
    """Check that it cost nothing to go by a watchdog, and not just by what libpgm does on its own.

    The plain receiver is the one that the subscriber began with, which goes on when it is given up: see
    `multicast.keeping`. Who was made to connect anew while PGM repaired had 0.77 of it.
    """
    if row.reconnects:
        assert row.delivered > 0.9 * row.raw
    else:
        assert row.delivered == row.raw


def test_where_no_packet_is_lost_every_message_is_delivered(network):
    for row in scenes.no_loss(network):
        assert (row.delivered, row.lost, row.malformed, row.reconnects) == (row.sent, 0, 0, 0)
        assert row.lost_packets == 0


def test_random_loss_is_repaired_or_reported(network):
    rows = scenes.losses(network)
    assert all(went_well(row, 0.9 * row.sent) for row in rows)
    # There was something to repair, on the way to all but the first.
    assert rows[0].lost_packets == 0
    assert all(row.lost_packets > 10 for row in rows[2:])
    assert all(row.repairs > 10 for row in rows[1:])


@pytest.mark.heavy
def test_an_outage_is_reported_and_ends_by_itself(network):
    short, long, quick, whole = outages.outages(network)
    # PGM repaired: all of it on a quiet machine; on a busy one it takes longer, and libpgm gives up.
    assert short.repairs > 100
    # Not even who had more to lose than a window holds.
    delivers_what_plain_does(long)
    # Who does not wait as long as PGM may repair forgoes that, and may have less than a plain one. It came
    # back by itself, so that the last messages were delivered: it had about 1,000 before.
    assert quick.delivered > 1_500
    assert went_well(whole, whole.sent)


@pytest.mark.heavy
@pytest.mark.parametrize("rate", [200, 500])
@pytest.mark.parametrize("seconds", [5, 10, 15, 30])
def test_after_an_outage_the_default_delivers_what_plain_zeromq_does_or_more(network, seconds, rate):
    (row,) = outages.lone_outage(network, seconds, rate)
    print(row)
    assert row.lost_packets > 100
    delivers_what_plain_does(row)


@pytest.mark.heavy
@pytest.mark.parametrize(("rate", "seconds"), [(1, 2), (200, 4), (400, 2)])
def test_an_outage_that_was_planned_for_is_repaired_at_two_who_are_cut_off_at_once(network, rate, seconds):
    for row in outages.planned_outage(network, rate, seconds):
        print(row)
        assert (row.delivered, row.lost, row.reconnects) == (row.sent, 0, 0)


@pytest.mark.heavy
def test_an_outage_of_a_slow_publisher_is_waited_for_however_long_it_was(network):
    (row,) = outages.slow_outage(network)
    assert row.lost_packets > 500
    # It waits however long that was; on a machine that is too busy, libpgm itself gives some up.
    assert row.reconnects == 0
    delivers_what_plain_does(row)


@pytest.mark.heavy
def test_a_publisher_without_processor_is_waited_for(network):
    (row,) = outages.starved_publisher(network)
    assert (row.delivered, row.lost, row.reconnects) == (row.sent, 0, 0)


@pytest.mark.heavy
def test_who_restarts_or_comes_late_goes_on_from_there(network):
    late, restarted, publisher = scenes.restarts(network)
    assert late.delivered
    assert restarted.delivered
    # What came before they did is no loss, and nothing that they are told of.
    assert late.uncounted == restarted.uncounted == 0
    assert went_well(publisher, 0.7 * publisher.sent)


def test_two_publishers_on_one_group_are_told_apart(network):
    for row in scenes.two_publishers(network):
        assert went_well(row, 5_000)


@pytest.mark.heavy
def test_wrong_rates_are_noticed_and_nothing_corrupt_is_delivered(network):
    hundredth, tenth, tenfold = scenes.wrong_rates(network)
    assert hundredth.lost + tenth.lost > 0
    assert went_well(tenfold, 2_000)


def test_a_publisher_that_closes_stays_until_it_was_heard(network):
    for row in scenes.closing(network):
        assert went_well(row, 1_000)


@pytest.mark.heavy
def test_a_fast_publisher_that_closes_leaves_nobody_with_a_loss_that_is_not_told(network):
    # Each row is checked: all is delivered, or counted as lost, or told by a gap without a count.
    for row in scenes.hasty_close(network):
        print(row)
        assert row.delivered > 0


def test_who_does_not_hear_a_publisher_begin_is_told_of_that(network):
    (row,) = scenes.missed_beginning(network)
    # Counted where the publisher took its time, and told without a count where it began while one joined.
    assert row.lost or row.uncounted


def test_who_does_not_hear_a_publisher_close_is_told_of_a_gap_that_nobody_counts(network):
    for row in scenes.unheard_close(network):
        assert 0 < row.delivered < row.sent
        assert row.uncounted > 0


def test_a_publisher_may_be_killed(network):
    (row,) = scenes.killed_publisher(network)
    assert went_well(row, 900)


@pytest.mark.heavy
@pytest.mark.timeout(86_400)
def test_the_law_holds_for_long(network):
    for row in scenes.soak(network, int(SOAK or 30)):
        print(row)
        assert row.delivered > 0.99 * row.sent
