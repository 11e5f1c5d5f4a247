import itertools
import os
from math import inf

from oz.protocol.subscriber.declarations import GREETING
from oz.protocol.subscriber.sequences import source_of
from oz.protocol.subscriber.streams import Streams
from oz.wire.keys import DECLARATION, STREAM, parse_declaration
from protocol.subscriber.fed import NS, A, B, Feed, add, answer


def kinds(keys):
    return [key[:3] for key in keys]


def test_declarations_are_asked_for_before_the_key_that_answers_come_on(streams):
    assert kinds(add(streams, "a.*")[1].wanted) == [DECLARATION, STREAM]
    assert kinds(add(streams, "b.*")[1].wanted) == [DECLARATION]


def test_subscriptions_on_other_terms_have_a_stream_of_their_own(streams):
    add(streams, "a")
    add(streams, "a", group="g")
    add(streams, "a", overflow="conflate", limit=5)
    add(streams, "b", group="g")
    assert len(streams.by_key) == 3


def test_a_publisher_has_answered_when_it_has_answered_everything(streams):
    add(streams, "a")
    assert not streams.has_answered(A)
    answer(streams, A)
    assert streams.has_answered(A)
    assert not streams.has_answered(B)
    add(streams, "b", group="g")
    assert not streams.has_answered(A)
    answer(streams, A)
    assert streams.has_answered(A)


def test_nothing_is_answered_while_something_is_gathered(streams):
    for number in range(40):
        add(streams, f"n.{number}")
    answer(streams, A)
    assert streams.is_collecting
    assert not streams.has_answered(A)
    streams.flush()
    answer(streams, A)
    assert streams.has_answered(A)


def test_what_one_publisher_left_unanswered_is_declared_again(streams):
    add(streams, "a")
    answer(streams, A)
    assert not streams.renew(100).wanted
    next(iter(streams.by_key.values())).sources[B] = source_of({}, B)
    source_of(next(iter(streams.by_key.values())).sources, B).heard_at = NS
    streams.note_news()
    assert not streams.renew(100.2).wanted
    changes = streams.renew(101)
    assert kinds(changes.wanted) == [DECLARATION]
    assert len(changes.dropped) == 1


def test_while_publishers_come_all_the_time_nothing_is_declared_again():
    streams = Streams(os.urandom, greet_every=1_000.0)
    add(streams, "a")
    for number in range(100):
        # Each answers after 0.4 s, and by then the next one is there.
        newest = next(iter(streams.by_key.values())).sources
        source_of(newest, bytes([number]) * 16).heard_at = round(number * 0.4 * NS) + NS
        streams.note_news()
        assert not streams.renew(100 + number * 0.4).wanted
        answer(streams, bytes([number]) * 16, at=1 + number * 0.4)


def test_what_was_refused_is_not_declared_again(streams):
    add(streams, "a")
    answer(streams, A)
    (source,) = next(iter(streams.by_key.values())).sources.values()
    source.answered, source.refused = frozenset(), {1: "no"}
    assert streams.publishers.refusals() == ["no"]
    for now in (1, 2, 3):
        assert not streams.renew(now).wanted


def test_each_stream_greets_in_case_nobody_knows_it(streams):
    add(streams, "a")
    add(streams, "a", group="g")
    streams.renew(0)
    changes = streams.renew(GREETING)
    assert kinds(changes.wanted) == [DECLARATION] * 2
    assert {parse_declaration(key).delivery.group for key in changes.wanted} == {"", "g"}


def test_after_a_goodbye_nobody_is_greeted(streams):
    add(streams, "a")
    streams.renew(0)
    streams.leave()
    assert not streams.renew(2 * GREETING).wanted


def test_the_last_subscription_on_some_terms_takes_every_key_back(streams):
    asked = set()
    for turn in range(20):
        one, changes = add(streams, "a", "b", is_shared=bool(turn % 2))
        asked |= set(changes.wanted)
        changes = streams.remove(one)
        assert changes.wanted[0][:3] == DECLARATION
        assert parse_declaration(changes.wanted[0]).is_closing
        asked |= set(changes.wanted)
        asked -= set(changes.dropped)
        assert not asked
    assert not streams.by_key
    assert not streams.interests


def test_a_goodbye_is_answered_by_all_who_knew_the_stream(streams):
    add(streams, "a")
    answer(streams, A)
    answer(streams, B)
    (stream,) = streams.by_key.values()
    goodbye = parse_declaration(streams.leave().wanted[0])
    assert not streams.has_left()
    stream.sources[A].answered = frozenset([goodbye.chunk])
    assert not streams.has_left()
    stream.sources[B].answered = frozenset([goodbye.chunk])
    assert streams.has_left()


def test_an_answer_of_a_former_life_does_not_count(streams, feed):
    feed.control(0, epoch=2, live=[1], refused={}, paths=1)
    assert streams.has_answered(A)
    feed.control(0, epoch=1, live=[], refused={}, paths=1)
    assert streams.has_answered(A)


def test_a_stream_that_was_forgotten_is_declared_again(streams, feed):
    feed.control(0, live=[1], refused={}, paths=1)
    feed.control(0, epoch=2)
    assert [gap.count for gap in feed.gaps] == [None]
    assert not streams.has_answered(A)
    streams.renew(0)
    assert kinds(streams.renew(1).wanted) == [DECLARATION]


def test_it_says_when_something_is_to_be_renewed(streams):
    assert streams.next_deadline() is None
    add(streams, "a")
    answer(streams, A)
    streams.renew(100.0)
    # All is answered: the next thing is to greet.
    assert streams.next_deadline() == 100.0 + GREETING
    add(streams, "b")
    # A look takes the time; what is unanswered then is renewed when its patience is over.
    streams.renew(streams.next_deadline())
    at = streams.next_deadline()
    assert 100.0 < at < 100.0 + GREETING
    assert DECLARATION in kinds(streams.renew(at).wanted)
    streams.leave()
    assert streams.next_deadline() is None


def test_heartbeat_is_no_news_and_all_that_may_leave_something_unanswered_is(streams):
    add(streams, "a")
    feed = Feed(streams)
    feed.control(0, live=[1])
    times = itertools.count(100.0)

    def is_news(what):
        for interest in streams.interests.values():
            for source in interest.stream.sources.values():
                source.answered = frozenset(interest.declarations.chunks)
        streams.renew(next(times))
        assert streams.due_at > -inf
        what()
        return streams.due_at == -inf

    assert not is_news(lambda: feed.control(0, at=2))
    assert not is_news(lambda: feed.batch(0, "a"))
    assert is_news(lambda: feed.control(1, at=2, live=[1]))
    assert is_news(lambda: feed.control(0, at=2, epoch=2))
    assert is_news(lambda: feed.control(0, at=10, epoch=2))
    assert is_news(lambda: feed.batch(0, "a", epoch=3))
    assert is_news(lambda: feed.control(1, at=10, epoch=3, bye=True))
    assert is_news(lambda: streams.forget(A))
    assert is_news(lambda: add(streams, "b"))


def test_nobody_looks_for_what_is_unanswered_without_news(streams):
    add(streams, "a")
    answer(streams, A)
    streams.renew(100.0)
    source_of(next(iter(streams.by_key.values())).sources, B).heard_at = NS
    for now in (101.0, 102.0, 103.0):
        assert not streams.renew(now).wanted
    streams.note_news()
    assert not streams.renew(104.0).wanted
    assert kinds(streams.renew(105.0).wanted) == [DECLARATION]


def test_it_greets_as_often_as_it_is_told():
    streams = Streams(os.urandom, greet_every=60.0)
    add(streams, "a")
    answer(streams, A)
    streams.renew(0.0)
    assert streams.next_deadline() == 60.0
    streams.note_news()
    assert not streams.renew(59.9).wanted
    assert kinds(streams.renew(60.0).wanted) == [DECLARATION]


def test_an_answer_that_a_drain_waits_for_is_asked_for_again_soon(streams):
    add(streams, "a")
    answer(streams, A)
    streams.renew(0.0)
    late, _ = add(streams, "b")
    answer(streams, A)
    streams.renew(1.0)
    _, asked = streams.part(late)
    streams.renew(2.0)
    (again,) = streams.renew(streams.next_deadline()).wanted
    assert parse_declaration(again).chunk > parse_declaration(asked.wanted[0]).chunk
    at = streams.next_deadline()
    assert 2.0 < at < 2.0 + GREETING / 2
    for source in streams.stream(late).sources.values():
        source.answered |= {parse_declaration(again).chunk}
    assert streams.has_drained(late)
    streams.note_news()
    assert not streams.renew(at).wanted
    # From here on it greets as ever.
    assert streams.next_deadline() > at + GREETING / 2


def test_who_is_heard_on_another_stream_still_has_to_answer_on_this_one(streams):
    add(streams, "a")
    answer(streams, A)
    late, _ = add(streams, "b", group="workers")
    streams.part(late)
    assert not streams.has_drained(late)
    stream = streams.stream(late)
    source_of(stream.sources, A)
    stream.end(A)
    assert streams.has_drained(late)
