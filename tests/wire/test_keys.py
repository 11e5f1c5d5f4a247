import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.wire.declared import DIALECT_NUMBERS
from oz.wire.keys import (
    CHUNK_SIZE,
    MAX_GROUP,
    MAX_KEY,
    MAX_PATTERN,
    OVERFLOWS,
    OWN,
    POLICIES,
    Declaration,
    Declared,
    DeliveryOptions,
    parse_declaration,
    parse_pattern,
    parse_stream,
    pattern_key,
    stream_key,
)
from support.cases import each
from support.wire_vectors import rows, text_of

ROWS = rows("keys")
GOOD = [row for row in ROWS if "value" in row]
BAD = [row for row in ROWS if "error" in row]
PARSE = {"stream": parse_stream, "pattern": parse_pattern, "declaration": parse_declaration}


def declared(value):
    return Declared(DIALECT_NUMBERS[value["dialect"]], text_of(value, "text"))


def value_of(row):
    """What a row says that its key means, as the code has it."""
    value = row["value"]
    if row["kind"] == "stream":
        return bytes.fromhex(value["stream"])
    if row["kind"] == "pattern":
        return declared(value)
    delivery = DeliveryOptions(
        value["is_shared"], value["group"], value["policy"], value["overflow"], value["limit"]
    )
    patterns = tuple(declared(one) for one in value["patterns"])
    stream = bytes.fromhex(value["stream"])
    return Declaration(
        stream, value["chunk"], delivery, value["wants_last_value"], value["is_closing"], patterns
    )


def encode(kind, value):
    if kind == "declaration":
        return value.encode()
    return stream_key(value) if kind == "stream" else pattern_key(value)


@each("row", GOOD)
def test_a_key_means_what_its_vector_says(row):
    assert PARSE[row["kind"]](bytes.fromhex(row["hex"])) == value_of(row)


@each("row", GOOD)
def test_a_value_is_written_as_its_vector_says(row):
    assert encode(row["kind"], value_of(row)).hex() == row["hex"]


@each("row", BAD)
def test_a_malformed_key_is_a_protocol_error(row):
    with pytest.raises(oz.ProtocolError) as caught:
        PARSE[row["kind"]](bytes.fromhex(row["hex"]))
    assert len(str(caught.value)) < 200


def test_the_vectors_have_each_dialect_policy_and_keep():
    values = [row["value"] for row in GOOD]
    patterns = [*values, *(one for value in values for one in value.get("patterns", ()))]
    assert {one["dialect"] for one in patterns if "dialect" in one} == set(DIALECT_NUMBERS)
    assert {value["policy"] for value in values if "policy" in value} == set(POLICIES)
    assert {value["overflow"] for value in values if "overflow" in value} == set(OVERFLOWS)
    assert len({row["name"] for row in ROWS}) == len(ROWS)


# round trips -----------------------------------------------------------------------------------------

streams = st.binary(min_size=16, max_size=16)
patterns = st.builds(Declared, st.integers(0, 255), st.binary(max_size=200))
groups = st.text(min_size=1, max_size=60).filter(lambda name: len(name.encode()) <= MAX_GROUP)
held = st.tuples(
    st.sampled_from([overflow for overflow in OVERFLOWS if overflow is not None]), st.integers(0, 2**32 - 1)
)
overflows = st.just((None, 0)) | held


@st.composite
def declarations(draw):
    overflow, limit = draw(overflows)
    group = draw(st.just("") | groups)
    delivery = DeliveryOptions(
        False, group, draw(st.sampled_from(POLICIES)) if group else "round_robin", overflow, limit
    )
    if draw(st.booleans()):
        delivery = DeliveryOptions(is_shared=True)
    is_closing = draw(st.booleans())
    wanted = () if is_closing else tuple(draw(st.lists(patterns, max_size=8)))
    return Declaration(
        draw(streams), draw(st.integers(0, 2**32 - 1)), delivery, draw(st.booleans()), is_closing, wanted
    )


@given(declarations())
def test_a_declaration_comes_back_as_it_was(declaration):
    key = declaration.encode()
    assert key.startswith(OWN)
    assert parse_declaration(key) == declaration


@given(declarations())
def test_no_part_of_a_key_but_whole_patterns_passes_for_a_key(declaration):
    key = declaration.encode()
    for size in range(len(key)):
        try:
            found = parse_declaration(key[:size])
        except oz.ProtocolError:
            continue
        assert found.patterns == declaration.patterns[: len(found.patterns)]
        assert found.encode() == key[:size]


@given(st.binary(max_size=60))
def test_what_is_read_is_written_the_same_way(rest):
    key = b"\x001D" + rest
    try:
        declaration = parse_declaration(key)
    except oz.ProtocolError:
        return
    assert declaration.encode() == key


@given(patterns)
def test_a_shared_pattern_comes_back_as_it_was(pattern):
    assert parse_pattern(pattern_key(pattern)) == pattern


@given(streams)
def test_a_stream_comes_back_as_it_was(stream):
    assert parse_stream(stream_key(stream)) == stream


# bounds ----------------------------------------------------------------------------------------------


def test_the_largest_chunk_that_is_made_is_a_key_that_is_taken():
    delivery = DeliveryOptions(group="g" * MAX_GROUP, overflow="conflate", limit=1)
    patterns = (Declared(1, b"x" * (CHUNK_SIZE - 3)), Declared(1, b"y" * MAX_PATTERN))
    key = Declaration(b"s" * 16, 1, delivery, patterns=patterns).encode()
    assert len(key) <= MAX_KEY
    assert parse_declaration(key).patterns == patterns


@each("parse", PARSE.values())
def test_a_huge_key_is_refused_before_it_is_taken_apart(parse):
    key = b"\x001P" + b"\x01\0\0" * 1_000_000
    tracemalloc.start()
    with pytest.raises(oz.ProtocolError):
        parse(key)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
