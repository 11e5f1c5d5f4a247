"""Messages for a handler alone."""

import asyncio
import pickle

import pytest

import oz
import oz.testing


def test_message_records_the_replies_of_plain_and_async_handlers():
    message = oz.testing.message("svc.price", b"tea", headers={"unit": "kg"})

    def price(message):
        message.reply(message.payload + b" costs 42", headers={"per": message.headers["unit"]})

    async def say_more(message):
        await message.reply({"price": 42})

    price(message)
    asyncio.run(say_more(message))
    assert [reply.payload for reply in message.replies] == [b"tea costs 42", {"price": 42}]
    assert message.replies[0].headers == {"per": "kg"}
    assert message.replies[0].subject == message.reply_to
    assert not message.replies[0].replies


def test_message_is_what_was_said():
    message = oz.testing.message(
        b"time.us.east",
        b"12:00",
        id=(b"clock", 3),
        origin=b"0123456789abcdef",
        sequence=7,
        gap=2,
        time_ns=5,
    )
    assert isinstance(message, oz.Message)
    assert (message.subject, message.subject_bytes) == ("time.us.east", b"time.us.east")
    assert (message.payload, message.frames) == (b"12:00", [b"time.us.east", b"12:00"])
    assert (message.id, message.origin, message.sequence) == ((b"clock", 3), b"0123456789abcdef", 7)
    assert (message.gap, message.time_ns, dict(message.headers)) == (2, 5, {})
    assert repr(message) == "<oz.Message 'time.us.east' b'12:00'>"


def test_message_that_is_no_request_takes_no_reply():
    message = oz.testing.message("time.us", reply_to=None)
    with pytest.raises(oz.ReplyError):
        message.reply(b"thanks")
    assert message.replies == []


def test_copy_of_a_message_keeps_what_came():
    copy = pickle.loads(pickle.dumps(oz.testing.message("a.b", b"c", sequence=4)))
    assert (copy.subject, copy.payload, copy.sequence) == ("a.b", b"c", 4)


@pytest.mark.parametrize("wrong", [{"origin": b"short"}, {"sequence": -1}, {"gap": -1}, {"time_ns": -1}])
def test_message_refuses_what_no_message_has(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        oz.testing.message("a", **wrong)
    with pytest.raises(oz.SubjectError):
        oz.testing.message("")
