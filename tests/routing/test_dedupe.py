"""A message that is published twice with one id is delivered once to those who ask for that."""

import asyncio
import pickle

import pytest
import zmq

import oz
import oz.asyncio
from support.waiting import DEADLINE


@pytest.fixture
def context():
    with zmq.Context() as one:
        yield one


@pytest.fixture
def pub(context):
    with oz.Publisher("tcp://127.0.0.1:*", on_full="block", context=context) as one:
        yield one


@pytest.fixture
def sub(pub, context):
    with oz.Subscriber(pub.endpoint, filtering="publisher", dedupe=True, context=context) as one:
        yield one


def until_the_end(sub):
    """Receive payloads up to the message that says so."""
    payloads = []
    for message in iter(lambda: sub.receive(DEADLINE), None):
        if message.payload == b"end":
            return payloads
        payloads.append(message.payload)


def test_a_repeat_is_dropped_and_counted(pub, sub):
    sub.subscribe("a.>")
    sub.wait_ready(DEADLINE)
    for _ in range(2):
        for number in range(50):
            pub.publish("a.b", b"%d" % number, message_id=(b"series", number))
        pub.publish("a.c", b"single", message_id=b"one")
        pub.publish("a.d", b"no id")
    pub.publish("a.b", b"end")
    once = [b"%d" % number for number in range(50)]
    assert until_the_end(sub) == [*once, b"single", b"no id", b"no id"]
    assert sub.stats.repeated == 51
    assert sub.stats.received == sub.stats.delivered + sub.stats.repeated


def test_the_id_is_there_to_be_read(pub, context):
    with oz.Subscriber(pub.endpoint, filtering="publisher", context=context) as sub:
        sub.subscribe("a")
        sub.wait_ready(DEADLINE)
        for _ in range(2):
            pub.publish("a", b"x", message_id=(b"s", 7), headers={"h": 1})
        pub.publish("a", b"x", message_id=b"single")
        pub.publish("a", b"x")
        first, second, third, fourth = (sub.receive(DEADLINE) for _ in range(4))
        assert (
            first.message_id == second.message_id == pickle.loads(pickle.dumps(first)).message_id == (b"s", 7)
        )
        assert first.headers == {"h": 1}
        assert (third.message_id, fourth.message_id) == (b"single", None)


def test_a_plain_subscriber_gets_the_frames_alone(pub, context):
    with oz.Subscriber(pub.endpoint, context=context) as sub:
        sub.subscribe("a")
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("a", b"x", message_id=b"id")
        assert sub.receive(DEADLINE).frames == [b"a", b"x"]


def test_subscriptions_on_other_terms_each_get_it_once(pub, sub):
    plain, grouped = sub.subscribe("a"), sub.subscribe("a", group="workers")
    sub.wait_ready(DEADLINE)
    for _ in range(2):
        pub.publish("a", b"x", message_id=b"id")
    pub.publish("a", b"end")
    got = []
    while sum(payload == b"end" for _, payload in got) < 2:
        message = sub.receive(DEADLINE)
        got.append((message.subscriptions, message.payload))
    assert sorted(got, key=repr) == sorted(
        [((one,), payload) for one in (plain, grouped) for payload in (b"x", b"end")], key=repr
    )


def test_another_publisher_that_repeats_it_is_recognised(context, pub, sub):
    sub.subscribe("a")
    sub.wait_ready(DEADLINE)
    pub.publish("a", b"x", message_id=(b"s", 0))
    assert sub.receive(DEADLINE).payload == b"x"
    with oz.Publisher("tcp://127.0.0.1:*", context=context) as again:
        sub.connect(again.endpoint)
        sub.wait_ready(DEADLINE)
        for number in range(2):
            again.publish("a", b"y", message_id=(b"s", number))
        assert sub.receive(DEADLINE).message_id == (b"s", 1)


def test_last_values_are_given_again_to_a_new_subscription(context):
    with (
        oz.Publisher("tcp://127.0.0.1:*", last_value=True, context=context) as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher", dedupe=True, context=context) as sub,
    ):
        sub.subscribe("a")
        sub.wait_ready(DEADLINE)
        pub.publish("a", b"x", message_id=b"id")
        assert sub.receive(DEADLINE).payload == b"x"
        late = sub.subscribe("a", last_value=True)
        message = sub.receive(DEADLINE)
        assert (message.payload, message.subscriptions) == (b"x", (late,))


def test_what_was_handled_in_another_life_can_be_marked(pub, sub):
    sub.subscribe("a")
    sub.mark_seen([(b"s", 0), (b"s", 1), b"single"])
    sub.wait_ready(DEADLINE)
    for message_id in ((b"s", 0), (b"s", 1), (b"s", 2), b"single"):
        pub.publish("a", repr(message_id).encode(), message_id=message_id)
    assert sub.receive(DEADLINE).message_id == (b"s", 2)


def test_marking_without_dedupe_is_refused(pub, context):
    with (
        oz.Subscriber(pub.endpoint, filtering="publisher", context=context) as sub,
        pytest.raises(ValueError, match="dedupe=True"),
    ):
        sub.mark_seen([b"x"])


def test_a_plain_subscriber_cannot_dedupe(context):
    with pytest.raises(ValueError, match='filtering="publisher"'):
        oz.Subscriber(dedupe=True, context=context)


@pytest.mark.parametrize(
    "wrong",
    ["text", b"", b"x" * 65, (b"s", -1), (b"s", 2**63), (b"s",), (b"s", 1.0), ("s", 1), (b"s", True), 7],
)
def test_an_id_of_no_form_is_refused_before_anything_is_sent(pub, wrong):
    with pytest.raises(ValueError, match="message id"):
        pub.publish("a", b"x", message_id=wrong)
    assert pub.stats.published == 0


def test_asyncio_publishers_and_subscribers_do_the_same():
    async def main():
        async with (
            oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub,
            oz.asyncio.Subscriber(pub.endpoint, filtering="publisher", dedupe=True) as sub,
        ):
            sub.subscribe("a")
            await sub.wait_ready(DEADLINE)
            for number in (0, 0, 1):
                await pub.publish("a", b"%d" % number, message_id=(b"s", number))
            return [(await sub.receive(DEADLINE)).payload for _ in range(2)]

    assert asyncio.run(main()) == [b"0", b"1"]
