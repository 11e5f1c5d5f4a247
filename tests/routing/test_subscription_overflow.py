"""What a subscription keeps when messages come faster than they are taken: `overflow` and `max_pending`."""

import asyncio

import pytest
import zmq

import oz.asyncio
from support.inside import engine_of, receive_path_of
from support.routed import Stage, here, taken_until
from support.sizes import size
from support.waiting import DEADLINE, Thread, until

COUNT = size(6_000, 20_000)

SUBJECTS = 10
SENT = 2_000


@pytest.fixture
def stage():
    with Stage() as made:
        yield made


@pytest.fixture
def tight(stage):
    """Make a publisher and a subscriber with room for few messages between them."""
    context = stage.enter_context(zmq.Context())

    def make(on_full="drop", high_water_mark=2, max_batch=4, **options):
        pub = oz.Publisher(
            "inproc://tight",
            context=context,
            high_water_mark=high_water_mark,
            max_batch=max_batch,
            on_full=on_full,
        )
        stage.callback(pub.close, 0)
        sub = stage.sub(pub, context=context, high_water_mark=high_water_mark)
        sub.subscribe("a.*", **options)
        sub.wait_ready(timeout=DEADLINE)
        return pub, sub

    return make


@pytest.fixture(params=["kept here", "held back by the publisher"])
def slow(request, tight):
    """The same, where all that is sent arrives, or where next to nothing does until it is read."""
    room = 100_000 if request.param == "kept here" else 2
    return lambda **options: tight(high_water_mark=room, **options)


def publish(pub, sent=SENT, subjects=SUBJECTS, **options):
    for number in range(sent):
        pub.publish(f"a.{number % subjects}", b"%d" % number, **options)
    pub.flush()


def numbers(messages):
    return [int(message.payload) for message in messages]


def newest_of(messages):
    return {message.subject: int(message.payload) for message in messages}


def counted(sub, pub, sent):
    """Take messages until all that was sent is accounted for; one more is sent."""
    return taken_until(lambda got: len(got) + sub.stats.lost + sub.stats.dropped >= sent, sub, pub)


@pytest.mark.parametrize("on_full", ["drop", "block", "error"])
def test_latest_gives_the_newest_of_each_subject_in_the_end_and_never_blocks(slow, on_full):
    pub, sub = slow(overflow="conflate", on_full=on_full)
    publish(pub)
    newest = {f"a.{at}": SENT - SUBJECTS + at for at in range(SUBJECTS)}
    got = taken_until(lambda got: newest_of(got) == newest, sub, pub)
    assert newest_of(got) == newest
    for at in range(SUBJECTS):
        one = numbers(message for message in got if message.subject == f"a.{at}")
        assert one == sorted(set(one))
    assert len(got) < SENT / 2
    assert sub.stats.delivered == len(got) + 1
    assert (sub.stats.lost, pub.stats.missed, pub.stats.dropped) == (0, 0, 0)


def test_latest_that_is_kept_here_counts_what_it_dropped(tight):
    pub, sub = tight(high_water_mark=100_000, overflow="conflate")
    publish(pub)
    until(lambda: receive_path_of(sub).unpack(sub) or sub.stats.received == SENT)
    assert numbers(here(sub)) == list(range(SENT - SUBJECTS, SENT))
    assert (sub.stats.received, sub.stats.delivered, sub.stats.dropped) == (SENT, SUBJECTS, SENT - SUBJECTS)


@pytest.mark.parametrize("headers", [None, {"h": 1}])
def test_latest_may_have_headers_and_be_large(tight, headers):
    pub, sub = tight(overflow="conflate", on_full="error")
    for number in range(200):
        payload = b"%d" % number if number % 3 else b"%d".ljust(70_000) % number
        pub.publish(f"a.{number % 5}", payload, headers=headers)
    newest = {f"a.{n}": 195 + n for n in range(5)}
    got = taken_until(lambda got: newest_of(got) == newest, sub, pub)
    assert newest_of(got) == newest
    assert all(message.headers == (headers or {}) for message in got)
    assert (sub.stats.lost, pub.stats.missed) == (0, 0)


def test_latest_beyond_its_bound_of_subjects_is_counted(slow):
    pub, sub = slow(overflow="conflate", max_pending=20)
    publish(pub, 1_000, subjects=1_000)
    got = counted(sub, pub, 1_000)
    assert len(got) <= 60
    assert len(got) + sub.stats.lost + sub.stats.dropped == 1_000
    assert sub.stats.lost == pub.stats.missed


@pytest.mark.parametrize("on_full", ["drop", "block", "error"])
@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest"])
def test_what_is_dropped_is_counted_and_nobody_is_blocked(slow, overflow, on_full):
    pub, sub = slow(overflow=overflow, max_pending=50, on_full=on_full)
    publish(pub)
    got = numbers(counted(sub, pub, SENT))
    assert got == sorted(set(got))
    stats = sub.stats
    assert stats.lost == pub.stats.missed
    assert stats.delivered == len(got) + 1
    assert stats.delivered + stats.dropped + stats.lost == SENT + 1 == pub.stats.published == pub.stats.sent
    if overflow == "drop_oldest":
        assert got[-50:] == list(range(SENT - 50, SENT))
    else:
        # What finds room is counted in batches, and on a machine that stands still each may have one message.
        first = got[:4]
        assert first == list(range(len(first)))
    assert 1 <= len(got) <= 150


def test_drop_oldest_keeps_order_and_count_whatever_the_size(tight):
    pub, sub = tight(overflow="drop_oldest", max_pending=20, on_full="error")
    for number in range(200):
        pub.publish(
            "a.b", b"%d" % number if number % 3 else (b"%d" % number).ljust(70_000), headers={"n": number}
        )
    got = [message.headers["n"] for message in counted(sub, pub, 200)]
    assert got == sorted(set(got))
    assert got[-20:] == list(range(180, 200))
    assert len(got) + sub.stats.lost + sub.stats.dropped == 200
    assert sub.stats.lost == pub.stats.missed


@pytest.mark.sized
@pytest.mark.parametrize("overflow", ["conflate", "drop_oldest", "drop_newest"])
def test_it_all_adds_up_under_traffic_that_is_read_now_and_then(tight, overflow):
    pub, sub = tight(overflow=overflow, max_pending=20)
    publishing = Thread(lambda: publish(pub, COUNT))
    got = []
    while publishing.is_alive():
        got += here(sub, 0.01)
    publishing.outcome()
    newest = {f"a.{at}": COUNT - SUBJECTS + at for at in range(SUBJECTS)}

    def is_all(rest):
        if overflow == "conflate":
            return newest_of(got + rest) == newest
        return len(got + rest) + sub.stats.dropped + sub.stats.lost >= COUNT

    got += taken_until(is_all, sub, pub)
    assert sub.stats.lost == pub.stats.missed
    for at in range(SUBJECTS):
        one = numbers(message for message in got if message.subject == f"a.{at}")
        assert one == sorted(set(one))
        if overflow == "conflate":
            assert one[-1] == COUNT - SUBJECTS + at
    if overflow != "conflate":
        assert len(got) + sub.stats.dropped + sub.stats.lost == COUNT


def test_others_of_the_same_subscriber_get_everything(stage):
    pub = stage.pub()
    sub, every, newest = stage.sub(pub), [], []
    sub.subscribe("a.*", handler=every.append)
    sub.subscribe("a.*", handler=newest.append, overflow="conflate")
    sub.wait_ready(timeout=DEADLINE)
    publish(pub)
    until(lambda: sub.run(timeout=0.05) >= 0 and len(every) == SENT)
    last = {f"a.{at}": b"%d" % (SENT - SUBJECTS + at) for at in range(SUBJECTS)}
    until(lambda: sub.run(timeout=0.05) >= 0 and {one.subject: one.payload for one in newest} == last)
    assert numbers(every) == list(range(SENT))
    assert len(newest) < SENT


def test_an_unsubscribed_one_gives_nothing_of_what_it_kept(tight):
    pub, sub = tight(high_water_mark=1_000, overflow="drop_oldest")
    publish(pub, 10)
    assert int(sub.receive(timeout=DEADLINE).payload) == 0
    sub.unsubscribe(engine_of(sub).declarer.streams.buffered[0].table.find((oz.compile("a.*"),)))
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    publish(pub, 1)
    assert int(sub.receive(timeout=DEADLINE).payload) == 0
    assert here(sub) == []


@pytest.mark.parametrize("overflow", ["conflate", "drop_oldest"])
def test_draining_gives_what_the_publisher_still_holds(tight, overflow):
    pub, sub = tight(overflow=overflow)
    publish(pub, 200)
    sub.drain(timeout=DEADLINE)
    got = list(sub)
    assert {message.subject: int(message.payload) for message in got} == {
        f"a.{n}": 190 + n for n in range(10)
    }
    assert not sub.poll(0)
    with pytest.raises(oz.ClosedError):
        sub.receive(timeout=0)


@pytest.mark.parametrize(
    ("overflow", "first"), [("conflate", SENT - SUBJECTS), ("drop_oldest", SENT - 50), ("drop_newest", 0)]
)
def test_asyncio_keeps_the_same(stage, overflow, first):
    async def scenario(pub):
        async with oz.asyncio.Subscriber(pub.endpoint, filtering="publisher") as sub:
            sub.subscribe("a.*", overflow=overflow, max_pending=50)
            await sub.wait_ready(timeout=DEADLINE)
            publish(pub)
            while sub.stats.received < SENT:
                receive_path_of(sub).unpack(sub)
                await asyncio.sleep(0.001)
            count = 10 if overflow == "conflate" else 50
            got = [await sub.receive(timeout=DEADLINE) for _ in range(count)]
            assert numbers(got) == list(range(first, first + count))
            with pytest.raises(oz.Timeout):
                await sub.receive(timeout=0)
            assert sub.stats.dropped == SENT - count

    asyncio.run(scenario(stage.pub()))


@pytest.mark.parametrize("overflow", ["conflate", "drop_oldest"])
def test_a_goodbye_is_not_answered_before_what_is_held_has_gone(tight, overflow):
    pub, sub = tight(overflow=overflow)
    publish(pub, 200)
    with engine_of(pub).guard:
        engine_of(sub).declarer.begin_drain()
        (stream,) = engine_of(pub).router.streams.values()
        assert stream.send_buffer

        def has_left():
            receive_path_of(sub).unpack(sub)
            engine_of(pub).listen()
            return engine_of(sub).declarer.has_left()

        until(has_left)
        assert stream.is_closing
        assert not stream.send_buffer
