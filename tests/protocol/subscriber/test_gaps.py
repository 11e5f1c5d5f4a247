"""What comes on a stream is delivered once, and what is missing is told."""

from protocol.subscriber.fed import Feed, add


def test_a_gap_shows_at_the_first_message_that_is_wanted(feed):
    feed.batch(0, "a.0")
    feed.batch(5, "not", "a.6", "a.7")
    assert feed.taken() == [("a.0", 0, 0), ("a.6", 6, 4), ("a.7", 7, 0)]
    assert [gap.count for gap in feed.gaps] == [4]


def test_a_gap_waits_for_a_message_that_is_wanted(feed):
    feed.batch(3, "not")
    feed.control(6)
    feed.batch(6, "a.6")
    assert feed.taken() == [("a.6", 6, 5)]
    assert [gap.count for gap in feed.gaps] == [3, 2]
    assert feed.decoder.stats.lost == 5


def test_a_batch_that_comes_by_a_second_way_is_passed_over(feed):
    feed.batch(0, "a.0", "a.1")
    feed.batch(0, "a.0", "a.1")
    feed.batch(2, "a.2")
    feed.batch(2, "a.2")
    assert feed.taken() == [("a.0", 0, 0), ("a.1", 1, 0), ("a.2", 2, 0)]
    stats = feed.decoder.stats
    assert (stats.received, stats.filtered, stats.contradictions) == (6, 3, 0)


def test_a_callback_that_raises_does_not_stop_delivery(streams, caplog):
    add(streams, "a.*")
    feed = Feed(streams, on_gap=lambda gap: 1 // 0)
    feed.batch(2, "a.2")
    assert feed.taken() == [("a.2", 2, 2)]
    assert "on_gap raised" in caplog.text
