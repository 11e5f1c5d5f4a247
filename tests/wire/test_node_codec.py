"""What nodes tell each other reaches all of them, whatever the codecs of their applications are."""

import pytest

from oz.wire.codec import MsgpackCodec
from oz.wire.node_codec import Introduction, NodeCodec


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
