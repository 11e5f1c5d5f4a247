"""Subjects that are not UTF-8: text by `surrogateescape`, which goes back the same way."""

import asyncio
import pickle

import pytest

import oz
from support.waiting import DEADLINE

BYTE_DIALECTS = ["redis", "raims.sub", "raims.glob", "zmq"]
RAW, TEXT = b"\xff.a\xc3", "\udcff.a\udcc3"


@pytest.fixture(params=["prefix", "publisher"])
def there(request, pair):
    """Make a pair in a dialect whose subscriber wants one subject."""

    def make(dialect, wanted=RAW, **sub):
        two = pair(dialect=dialect, sub={"filtering": request.param, **sub})
        two.sub.subscribe(oz.compile(wanted, dialect))
        two.pub.wait_for_subscribers(1, subject=RAW, timeout=DEADLINE)
        return two

    return make


@pytest.mark.parametrize("dialect", BYTE_DIALECTS)
def test_a_subject_that_is_not_utf_8_comes_as_text_and_goes_back_as_it_was(there, dialect):
    two = there(dialect)
    two.pub.publish(RAW, b"1")
    message = two.sub.receive(timeout=DEADLINE)
    assert (message.subject, message.subject_bytes, message.frames) == (TEXT, RAW, [RAW, b"1"])
    assert two.pub.interest(message.subject)
    two.pub.publish(message.subject, b"2", key=message.subject)
    assert two.sub.receive(timeout=DEADLINE).frames == [RAW, b"2"]
    copied = pickle.loads(pickle.dumps(message))
    assert (copied.subject, copied.subject_bytes, copied.frames) == (TEXT, RAW, [RAW, b"1"])


def test_a_pattern_may_be_given_as_the_text_that_came(there):
    two = there("redis", TEXT)
    for payload in (b"1", b"2", b"3"):
        two.pub.publish(RAW, payload, headers={"n": 1})
    assert [two.sub.receive(timeout=DEADLINE).subject for _ in range(3)] == [TEXT] * 3


def test_batches_hold_it_as_text_where_they_are_of_plain_messages(there):
    two = there("redis")
    for payload in (b"1", b"2"):
        two.pub.publish(RAW, payload)
    messages = []
    while len(messages) < 2:
        for batch in two.sub.receive_batches(timeout=DEADLINE):
            messages += [batch] if isinstance(batch, oz.Message) else batch.messages()
    assert [(one.subject, one.frames[0]) for one in messages] == [(TEXT, RAW)] * 2


def test_the_socket_for_asyncio_gives_it_too():
    async def run():
        async with (
            oz.asyncio.Publisher("tcp://127.0.0.1:*", dialect="redis") as pub,
            oz.asyncio.Subscriber(pub.endpoint, dialect="redis") as sub,
        ):
            sub.subscribe(TEXT)
            await pub.wait_for_subscribers(1, timeout=DEADLINE)
            await pub.publish(RAW, b"1")
            message = await sub.receive(timeout=DEADLINE)
            await pub.publish(message.subject, b"2")
            return message.subject, (await sub.receive(timeout=DEADLINE)).frames

    assert asyncio.run(run()) == (TEXT, [RAW, b"2"])


def test_text_with_a_surrogate_that_stands_for_no_byte_is_refused(pair):
    two = pair(dialect="redis")
    with pytest.raises(oz.SubjectError, match="surrogate"):
        two.pub.publish("\ud800")
    with pytest.raises(ValueError, match="UTF-8"):
        two.pub.publish("a", key="\ud800")
