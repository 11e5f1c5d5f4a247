"""The newest message of each subject first, then live traffic, none twice and none left out."""

import asyncio

import pytest
import zmq

import oz.asyncio
from oz.protocol.publisher import last_value_cache
from support.inside import engine_of
from support.ports import lasting_endpoint
from support.routed import Stage, finish, here, mark, taken_until
from support.sizes import size
from support.waiting import DEADLINE, Thread, until

ROUNDS = size(10, 400)


@pytest.fixture
def stage():
    with Stage() as made:
        yield made


@pytest.fixture
def pub(stage):
    return stage.pub(lasting_endpoint(), last_value=True)


def publish(pub, count, subjects=10, **options):
    for number in range(count):
        pub.publish(f"a.{number % subjects}", b"%d" % number, **options)


def pairs(messages):
    return [(message.subject, int(message.payload)) for message in messages]


@pytest.mark.parametrize("shared", [False, True])
def test_the_newest_of_each_subject_that_matches_come_first(stage, pub, shared):
    publish(pub, 100)
    pub.publish("b.x", b"-1")
    sub = stage.sub(pub, shared=shared)
    sub.subscribe("a.*", last_value=True)
    sub.wait_ready(timeout=DEADLINE)
    publish(pub, 5)
    expected = [(f"a.{number}", 90 + number) for number in range(10)] + [(f"a.{n}", n) for n in range(5)]
    pub.publish("a.0", b"-2")
    assert pairs(sub.receive(timeout=DEADLINE) for _ in range(16)) == [*expected, ("a.0", -2)]
    assert sub.stats.lost == 0


def test_headers_frames_and_large_payloads_are_kept_too(stage, pub):
    sent = [b"x", bytes(70_000), [b"two", b"frames"], [b"y", bytes(66_000)]]
    for number, payload in enumerate(sent):
        for has_headers in (False, True):
            headers = {"n": number} if has_headers else None
            pub.publish(f"a.{number}.{has_headers}", payload, headers=headers, key="k")
    sub = stage.sub(pub)
    sub.subscribe("a.>", last_value=True)
    for number, payload in enumerate(sent):
        for has_headers in (False, True):
            message = sub.receive(timeout=DEADLINE)
            assert message.subject == f"a.{number}.{has_headers}"
            assert message.frames[1:] == (payload if isinstance(payload, list) else [payload])
            assert message.headers == ({"n": number} if has_headers else {})


def test_only_the_subscription_that_asked_gets_them(stage, pub):
    publish(pub, 10)
    sub = stage.sub(pub)
    asked, did_not = [], []
    sub.subscribe("a.*", handler=did_not.append)
    sub.subscribe("a.>", handler=asked.append, last_value=True)
    mark(sub)
    publish(pub, 3)
    finish([pub], sub)
    assert pairs(did_not) == [(f"a.{n}", n) for n in range(3)]
    assert pairs(asked) == [(f"a.{n}", n) for n in range(10)] + [(f"a.{n}", n) for n in range(3)]


@pytest.mark.parametrize("second", ["a.*", "a.>", "*.1"])
def test_each_subscription_that_asks_is_given_its_own(stage, pub, second):
    publish(pub, 3)
    sub = stage.sub(pub)
    first_got, second_got = [], []
    sub.subscribe("a.*", handler=first_got.append, last_value=True)
    mark(sub)
    sub.subscribe(second, handler=second_got.append, last_value=True)
    sub.wait_ready(timeout=DEADLINE)
    finish([pub], sub)
    everything = [(f"a.{n}", n) for n in range(3)]
    assert pairs(first_got) == everything
    assert pairs(second_got) == ([("a.1", 1)] if second == "*.1" else everything)


def test_one_that_subscribes_again_is_given_them_again(stage, pub):
    publish(pub, 3)
    sub = stage.sub(pub)
    for _ in range(3):
        subscription = sub.subscribe("a.*", last_value=True)
        assert pairs(sub.receive(timeout=DEADLINE) for _ in range(3)) == [(f"a.{n}", n) for n in range(3)]
        subscription.unsubscribe()
        assert here(sub) == []


def test_members_of_a_group_are_given_them_and_share_the_rest(stage, pub):
    publish(pub, 10)
    members = [stage.member(pub, group="g", last_value=True) for _ in range(2)]
    publish(pub, 10)
    finish([pub], *(sub for sub, _ in members))
    for _, got in members:
        assert pairs(got)[:10] == [(f"a.{n}", n) for n in range(10)]
    live = sorted(pair for _, got in members for pair in pairs(got)[10:])
    assert live == [(f"a.{n}", n) for n in range(10)]


@pytest.mark.parametrize("overflow", ["conflate", "drop_oldest", "drop_newest"])
def test_it_goes_with_a_keep(stage, pub, overflow):
    publish(pub, 10)
    sub = stage.sub(pub)
    sub.subscribe("a.*", last_value=True, overflow=overflow)
    sub.wait_ready(timeout=DEADLINE)
    assert pairs(taken_until(lambda got: len(got) >= 10, sub, pub)) == [(f"a.{n}", n) for n in range(10)]


def test_a_publisher_that_keeps_none_gives_none(stage):
    pub = stage.pub()
    publish(pub, 10)
    sub = stage.sub(pub)
    sub.subscribe("a.*", last_value=True)
    sub.wait_ready(timeout=DEADLINE)
    pub.publish("a.0", b"99")
    assert pairs([sub.receive(timeout=DEADLINE)]) == [("a.0", 99)]


def test_there_is_a_bound_beyond_which_the_oldest_go(stage, pub, monkeypatch):
    monkeypatch.setattr(last_value_cache, "LIMIT", 100)
    publish(pub, 1_000, subjects=1_000)
    pub.publish("a.950", b"950")
    sub = stage.sub(pub)
    sub.subscribe("a.*", last_value=True)
    got = pairs(taken_until(lambda got: got and got[-1].subject == "a.950", sub, pub))
    assert 90 <= len(got) <= 100
    assert [number for _, number in got[:-1]] == [n for n in range(1_001 - len(got) - 1, 1_000) if n != 950][
        -len(got) + 1 :
    ]
    assert got[-1] == ("a.950", 950)


def test_many_come_in_several_batches(stage, pub):
    publish(pub, 3_000, subjects=3_000)
    sub = stage.sub(pub)
    sub.subscribe("a.*", last_value=True)
    assert pairs(sub.receive(timeout=DEADLINE) for _ in range(3_000)) == [(f"a.{n}", n) for n in range(3_000)]


@pytest.mark.parametrize("shared", [False, True])
def test_whoever_joins_under_traffic_gets_every_subject_whole(stage, pub, shared):
    """The last value and all that follows it: a hole or a message given twice would show in the numbers."""
    publish(pub, 10)
    is_over = []

    def keep_publishing():
        number = 10
        while not is_over:
            pub.publish(f"a.{number % 10}", b"%d" % number)
            number += 1

    publishing = [Thread(keep_publishing)]
    other = stage.sub(pub, shared=shared)
    other.subscribe("a.*", overflow=None if shared else "conflate")
    try:
        for _ in range(ROUNDS):
            with oz.Subscriber(pub.endpoint, filtering="publisher", shared=shared) as sub:
                sub.subscribe("a.*", last_value=True)
                got = [sub.receive(timeout=DEADLINE) for _ in range(500)]
            for at in range(10):
                one = [number for subject, number in pairs(got) if subject == f"a.{at}"]
                assert one == list(range(one[0], one[0] + 10 * len(one), 10))
            # Last values are served in slices: what is published meanwhile may come between them.
            assert {subject for subject, _ in pairs(got)} == {f"a.{at}" for at in range(10)}
    finally:
        is_over.append(True)
        publishing[0].outcome()


def test_after_a_reconnect_nothing_comes_twice(stage, pub):
    publish(pub, 10)
    sub = stage.sub(pub)
    sub.subscribe("a.*", last_value=True)
    sub.wait_ready(timeout=DEADLINE)
    assert pairs(sub.receive(timeout=DEADLINE) for _ in range(10)) == [(f"a.{n}", n) for n in range(10)]
    endpoint = pub.endpoint
    pub.unbind(endpoint)
    until(
        lambda: (
            not engine_of(pub).router.streams
            or all(one.vanished_at for one in engine_of(pub).router.streams.values())
        )
    )
    publish(pub, 3)
    pub.bind(endpoint)
    until(lambda: not any(one.vanished_at for one in engine_of(pub).router.streams.values()) or sub.poll(10))
    until(
        lambda: here(sub) == [] and not any(one.vanished_at for one in engine_of(pub).router.streams.values())
    )
    pub.publish("a.1", b"99")
    assert pairs([sub.receive(timeout=DEADLINE)]) == [("a.1", 99)]
    assert sub.stats.lost == 3


def test_a_restarted_publisher_gives_those_that_it_has(stage):
    with Stage() as first:
        pub = first.pub(lasting_endpoint(), last_value=True)
        publish(pub, 3)
        sub = stage.sub(pub)
        sub.subscribe("a.*", last_value=True)
        assert pairs(sub.receive(timeout=DEADLINE) for _ in range(3)) == [(f"a.{n}", n) for n in range(3)]
        endpoint = pub.endpoint
    again = stage.enter_context(oz.Publisher(last_value=True))
    again.publish("a.7", b"7")
    again.bind(endpoint)
    assert pairs([sub.receive(timeout=DEADLINE)]) == [("a.7", 7)]
    again.publish("a.7", b"8")
    again.publish("a.7", b"9")
    assert pairs(sub.receive(timeout=DEADLINE) for _ in range(2)) == [("a.7", 8), ("a.7", 9)]


def test_asyncio_gives_the_same():
    async def scenario():
        async with oz.asyncio.Publisher("tcp://127.0.0.1:*", last_value=True) as pub:
            for number in range(100):
                await pub.publish(f"a.{number % 10}", b"%d" % number, headers={"n": number})
            is_over = []

            async def keep_publishing():
                number = 100
                while not is_over:
                    await pub.publish(f"a.{number % 10}", b"%d" % number, headers={"n": number})
                    number += 1
                    if number % 7 == 0:
                        await asyncio.sleep(0)

            publishing = asyncio.ensure_future(keep_publishing())
            for _ in range(5):
                async with oz.asyncio.Subscriber(pub.endpoint, filtering="publisher") as sub:
                    sub.subscribe("a.*", last_value=True)
                    got = [await sub.receive(timeout=DEADLINE) for _ in range(200)]
                for at in range(10):
                    one = [number for subject, number in pairs(got) if subject == f"a.{at}"]
                    assert one == list(range(one[0], one[0] + 10 * len(one), 10))
                assert all(message.headers["n"] == int(message.payload) for message in got)
            is_over.append(True)
            await publishing

    asyncio.run(scenario())


@pytest.fixture
def tight(stage):
    """Make a publisher and a subscriber with room for few messages between them."""
    context = stage.enter_context(zmq.Context())
    options = {"context": context, "high_water_mark": 2}
    pub = oz.Publisher("inproc://tight", last_value=True, max_batch=1, on_full="error", **options)
    stage.callback(pub.close, 0)
    return pub, stage.sub(pub, **options)


@pytest.mark.parametrize("overflow", ["conflate", "drop_oldest", "drop_newest"])
def test_last_values_that_find_no_room_hold_nobody_up(tight, overflow):
    pub, sub = tight
    publish(pub, 3_000, subjects=3_000)
    sub.subscribe("a.*", last_value=True, overflow=overflow)
    until(lambda: engine_of(pub).dispatch.full)
    for number in range(100):
        pub.publish("a.5", b"%d" % number)
    subjects = {f"a.{number}" for number in range(3_000)}

    def is_all(got):
        has_newest = overflow == "drop_newest" or dict(pairs(got)).get("a.5") == 99
        return has_newest and {message.subject for message in got} == subjects

    got = pairs(taken_until(is_all, sub, pub))
    if overflow != "drop_newest":
        assert dict(got)["a.5"] == 99
    assert {subject for subject, _ in got} == subjects


def test_one_that_asks_while_others_are_held_back_takes_nothing_from_them(tight):
    pub, sub = tight
    old, new = [], []
    sub.subscribe("a.*", overflow="drop_oldest", max_pending=50, handler=old.append)
    sub.wait_ready(timeout=DEADLINE)
    publish(pub, 200, subjects=10)
    assert engine_of(pub).dispatch.full
    sub.subscribe("a.*", overflow="drop_oldest", max_pending=50, handler=new.append, last_value=True)
    until(
        lambda: (
            len(engine_of(pub).router.acceptance.to_serve)
            or any(len(one.chunks) == 2 for one in engine_of(pub).router.streams.values())
        )
    )

    def are_counted():
        sub.run(timeout=0.1)
        return len(new) >= 10 and sub.stats.delivered + sub.stats.lost + sub.stats.dropped >= 200 + 10

    until(are_counted)
    sub.run(timeout=0.1)
    # They wait in one line, with the same delivery options: the ten may cost ten of the fifty.
    assert [number for _, number in pairs(old)][-40:] == list(range(160, 200))
    assert pairs(new)[-10:] == [(f"a.{at}", 190 + at) for at in range(10)]
    assert sub.stats.delivered + sub.stats.lost + sub.stats.dropped == 200 + 10
