"""`publish_many` in a loop: what is no pair."""

import pytest

import oz
import oz.asyncio
from support.cases import each
from support.loops import in_a_loop

NO_PAIRS = ("ab", b"ab", {"a.b": 1, "a.c": 2}, ("a.b",), ("a.b", 1, {"trace": "7"}), None)


async def one_by_one(pairs):
    for pair in pairs:
        yield pair


@each("make", [list, one_by_one])
@each("no_pair", NO_PAIRS)
def test_what_is_no_pair_of_subject_and_payload_is_named(make, no_pair):
    @in_a_loop
    async def test():
        async with oz.asyncio.Publisher("tcp://127.0.0.1:*", codec="msgpack") as pub:
            with pytest.raises(TypeError, match="takes pairs of subject and payload, not ") as raised:
                await pub.publish_many(make([("a.b", 1), no_pair, ("a.b", 2)]))
            assert repr(no_pair) in str(raised.value)
            assert pub.stats.published == 1
            assert await pub.publish_many(make([["a.b", 1], ("a.b", 2)])) == 2

    test()
