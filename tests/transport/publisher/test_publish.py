"""The fields of a message are told by name, and only those that publish has."""

import asyncio

import pytest

import oz
import oz.asyncio
from oz.message import Extras
from oz.transport.publisher.publish import by_fields


def test_fields_go_as_one_value_and_none_where_there_are_none():
    publish = by_fields(lambda subject, payload, extras: (subject, payload, extras))
    assert publish("a") == ("a", b"", None)
    assert publish("a", b"p", headers=None, key=None, message_id=None) == ("a", b"p", None)
    assert publish("a", b"p", key="k") == ("a", b"p", Extras(key="k"))


@pytest.mark.parametrize("name", ["bogus", "reply_to"])
def test_a_field_that_publish_has_not_is_refused_by_name(name):
    with (
        oz.Publisher("tcp://127.0.0.1:*") as publisher,
        pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"),
    ):
        publisher.publish("a", **{name: "x"})

    async def publish():
        async with oz.asyncio.Publisher("tcp://127.0.0.1:*") as publisher:
            await publisher.publish("a", **{name: "x"})

    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        asyncio.run(publish())


def test_every_field_that_publish_has_is_one_of_a_message():
    taken = []
    publish = by_fields(lambda subject, payload, extras: taken.append(extras))
    for name in {*Extras._fields} - {"reply_to"}:
        publish("a", **{name: "x"})
    assert len(taken) == len(Extras._fields) - 1
    assert all(len([value for value in one if value]) == 1 for one in taken)
