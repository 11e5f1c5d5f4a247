import datetime
import json
from contextlib import suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.wire.codec import (
    JsonCodec,
    MsgpackCodec,
    find_codec,
)
from support.cases import each

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
values = st.recursive(
    scalars | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values)
def test_a_value_is_decoded_as_it_was_encoded(value):
    codec = MsgpackCodec()
    assert codec.decode(codec.encode(value)) == value


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_raise_an_exception(payload):
    with suppress(ValueError, TypeError, OverflowError):
        MsgpackCodec().decode(payload)


@each("payload", [b"", b"\xc1", b"\x92\x01", b"\x01\x01", b"\xd9\x02\xff\xfe"])
def test_an_incomplete_or_second_value_is_refused(payload):
    with pytest.raises(ValueError):  # noqa: PT011 - msgpack gives some of them no text
        MsgpackCodec().decode(payload)


def test_a_deep_or_huge_claim_is_refused_without_taking_the_memory_for_it():
    for payload in (b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"):
        with pytest.raises((ValueError, RecursionError)):
            MsgpackCodec().decode(payload)


def test_a_value_without_a_form_in_msgpack_is_a_type_error():
    for value in (object(), datetime.date(2026, 1, 1), {1, 2}):
        with pytest.raises(TypeError):
            MsgpackCodec().encode(value)


def test_a_codec_is_found_by_name_or_taken_as_it_is():
    own = MsgpackCodec()
    assert find_codec(None) is None
    assert find_codec(own) is own
    assert find_codec("msgpack").encode({"a": 1}) == msgpack.packb({"a": 1})


def test_an_unknown_codec_is_refused_with_the_known_names():
    with pytest.raises(ValueError, match="msgpack, json"):
        find_codec("yaml")
    with pytest.raises(TypeError, match="encode and decode"):
        find_codec(object())


texts = st.text(st.characters(codec=None, exclude_categories=()))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_a_value_is_decoded_from_json_as_it_was_encoded(value):
    codec = JsonCodec()
    assert codec.decode(codec.encode(value)) == value
    assert json.loads(codec.encode(value)) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_raise_an_exception(payload):
    with suppress(ValueError):
        JsonCodec().decode(payload)


def test_a_value_without_a_form_in_json_is_refused():
    for value in (object(), b"bytes", {1, 2}):
        with pytest.raises(TypeError, match="JSON has None"):
            JsonCodec().encode(value)
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            JsonCodec().encode(value)
    for payload in (b"", b"NaN", b"-Infinity", b"{", b"1 2", b"\xff"):
        with pytest.raises(ValueError):  # noqa: PT011 - of many kinds
            JsonCodec().decode(payload)


def test_json_is_utf8_and_short():
    assert find_codec("json").encode({"a": ["ü", 1]}) == '{"a":["ü",1]}'.encode()
