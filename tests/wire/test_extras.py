"""Fields of a message beside its payload: one table has their places and their types."""

import inspect

import msgpack
import pytest

import oz
import oz.asyncio
from oz.message import Extras, Forwarded
from oz.wire.extras import (
    FIELDS,
    check_extras,
    decode_extras,
    encode_extras,
)
from support.cases import each

FULL = Extras({"h": 1}, "r", (b"s", 7), b"k")


def test_the_table_has_every_field_in_order():
    assert tuple(field.name for field in FIELDS) == Extras._fields


OF_FORWARDERS = ("forwarded", "to_all", "redelivered")
"""Fields that programs neither publish nor receive by themselves."""


def test_a_message_shows_every_field_that_travels():
    names = {"message_id": "id"}
    shown = [
        names.get(field.name, field.name)
        for field in FIELDS
        if field.key is not None and field.name not in OF_FORWARDERS
    ]
    assert all(hasattr(oz.Message, name) for name in shown)


@each("kind", [oz.Publisher, oz.Node, oz.asyncio.Publisher, oz.asyncio.Node])
def test_every_field_except_reply_to_is_an_argument_of_publish(kind):
    _, _, _, *options = inspect.signature(kind.publish).parameters
    # Nodes name the id `message_id`.
    fields = {"message_id" if option == "id" else option for option in options}
    assert {*fields, "reply_to", *OF_FORWARDERS} == set(Extras._fields)


def test_sent_fields_are_decoded_and_the_key_stays_at_the_publisher():
    sent = msgpack.unpackb(msgpack.packb(check_extras(FULL)))
    assert sent == {"headers": {"h": 1}, "reply_to": "r", "id": [b"s", 7]}
    assert decode_extras(sent) == FULL._replace(key=None)
    assert encode_extras(FULL) == check_extras(FULL)
    assert encode_extras(Extras()) == check_extras(Extras()) == {}


def test_sent_headers_are_a_copy():
    headers = {"h": 1}
    found = check_extras(Extras(headers=headers))
    headers["h"] = []
    assert found == {"headers": {"h": 1}}


@each(
    "extras",
    [
        [], None, {"headers": None}, {"headers": {b"a": 1}}, {"headers": {"a": {}}}, {"reply_to": 1},
        {"id": None}, {"id": b""}, {"id": [b"s"]}, {"id": [b"s", -1]}
    ],
)  # fmt: skip
def test_extras_that_are_not(extras):
    with pytest.raises(oz.ProtocolError):
        decode_extras(extras)


@each(
    ("given", "error", "text"),
    [
        (Extras(headers=[]), TypeError, "headers are a dict, not list"),
        (Extras(headers=""), TypeError, "headers are a dict, not str"),
        (Extras(headers={"h": []}), TypeError, "a header is text"),
        (Extras(headers={"h": bytearray(b"y")}), TypeError, "a header is text"),
        (Extras(headers={1: 1}), TypeError, "a header is text"),
        (Extras(headers={"h": 1 << 64}), ValueError, "'h' is a number of more than 64 bits"),
        (Extras(headers={"h": -(1 << 63) - 1}), ValueError, "'h' is a number of more than 64 bits"),
        (Extras(headers={"\ud800": 1}), ValueError, "not UTF-8|surrogates"),
        (Extras(headers={"h": "\ud800"}), ValueError, "'h'.* not UTF-8|surrogates"),
        (Extras(message_id="x"), ValueError, "a message id"),
        (Extras(message_id=b""), ValueError, "a message id"),
        (Extras(message_id=bytes(65)), ValueError, "a message id"),
        (Extras(message_id=(b"s", -1)), ValueError, "a message id|number"),
        (Extras(message_id=(b"s", 2**64)), ValueError, "a message id|number"),
        (Extras(key=1), TypeError, "a key is str or bytes, not int: 1"),
        (Extras(key="\ud800"), ValueError, "a key is text"),
    ],
)
def test_wrong_fields_of_publish_are_refused(given, error, text):
    with pytest.raises(error, match=text):
        check_extras(given)


def test_the_key_stays_and_the_way_past_forwarders_is_not_taken_over():
    assert check_extras(Extras(headers={"oz-via": b"12345678"}, key="k")) == {}
    assert check_extras(Extras(headers={"oz-via": b"12345678", "ü": "ß"})) == {"headers": {"ü": "ß"}}


@each(
    "extras",
    [
        {"forwarded": 3},
        {"forwarded": [b"o" * 16, 1]},
        {"forwarded": [b"o" * 15, 1, b""]},
        {"forwarded": [b"o" * 16, -1, b""]},
        {"forwarded": [b"o" * 16, 1 << 64, b""]},
        {"forwarded": [b"o" * 16, True, b""]},
        {"forwarded": [b"o" * 16, 1, b"x"]},
        {"forwarded": [b"o" * 16, 1, "xxxxxx"]},
        {"forwarded": [b"o" * 16, 1, b"x" * 6 * 100]},
        {"to_all": 1},
        {"to_all": False},
    ],
)
def test_malformed_extras_of_forwarders_are_refused(extras):
    with pytest.raises(oz.ProtocolError):
        decode_extras(extras)


def test_extras_of_forwarders_travel():
    sent = Extras(forwarded=Forwarded(b"o" * 16, 7, b"x" * 12))
    assert decode_extras(msgpack.unpackb(msgpack.packb(encode_extras(sent)))) == sent
