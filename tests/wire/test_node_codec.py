"""What nodes tell each other reaches all of them, whatever the codecs of their applications are."""

import pytest

from oz.errors import ProtocolError
from oz.wire.codec import MsgpackCodec
from oz.wire.node_codec import MAX_FAILURE_TEXT, MAX_KIND, Asked, Failure, Introduction, NodeCodec, Question
from support.wire_vectors import name_of, rows


class Refusing:
    def encode(self, value):
        raise TypeError("only bananas")

    decode = encode


def test_introductions_pass_by_the_codec_of_the_application():
    packed = NodeCodec(Refusing()).encode(Introduction("a b"))
    found = NodeCodec(MsgpackCodec()).decode(packed)
    assert (type(found), found) == (Introduction, "a b")
    with pytest.raises(TypeError, match="bananas"):
        NodeCodec(Refusing()).encode("a b")


@pytest.mark.parametrize("value", ["a b", b"", b"\xc1", {"a": 1}, None])
def test_values_of_the_application_go_through_its_codec(value):
    codec = NodeCodec(MsgpackCodec())
    assert codec.encode(value) == MsgpackCodec().encode(value)
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize("row", rows("failures"), ids=name_of)
def test_failures_are_read_as_the_vectors_say_whatever_the_codec(row):
    codec, payload = NodeCodec(Refusing()), bytes.fromhex(row["hex"])
    if "value" not in row:
        with pytest.raises(ProtocolError):
            codec.decode(payload)
        return
    found = codec.decode(payload)
    assert (type(found), found._asdict()) == (Failure, row["value"])
    if "later" not in row["name"]:
        assert codec.encode(found) == payload


@pytest.mark.parametrize("row", rows("interest"), ids=name_of)
def test_what_nodes_want_is_read_as_the_vectors_say_whatever_the_codec(row):
    codec, payload = NodeCodec(Refusing()), bytes.fromhex(row["hex"])
    if "value" not in row:
        with pytest.raises(ProtocolError):
            codec.decode(payload)
        return
    found, (number, *chunks) = codec.decode(payload), row["value"].values()
    expected = (
        Asked(number, {bytes.fromhex(name): chunk for name, chunk in chunks[0].items()})
        if chunks
        else Question(number)
    )
    assert (type(found), found) == (type(expected), expected)
    if "later" not in row["name"]:
        assert codec.encode(found) == payload


def test_a_failure_is_cut_and_takes_any_text():
    codec = NodeCodec(Refusing())
    told = codec.decode(codec.encode(Failure("K" * 1000, "\ud800" + "x" * 10_000, "n")))
    assert (len(told.kind), told.node) == (MAX_KIND, "n")
    assert told.text == "\\ud800" + "x" * (MAX_FAILURE_TEXT - 1)
