"""Values that take much more memory than bytes are refused before they are made."""

import random

import msgpack
import pytest

import oz
from oz.wire import batch
from oz.wire.codec import FREE, _count
from oz.wire.keys import stream_key
from support import scripts
from support.sizes import in_suite

KEY = stream_key(b"i" * 16)
HEAD = batch.head_start(KEY, batch.MESSAGES, b"o" * 16, 1)


def parse(body, count=1):
    frame = HEAD + batch.head_end(0, count) + body
    return batch.parse_body(frame, len(KEY) + batch.HEAD_SIZE, count)


LARGE = {
    "empty arrays": b"\x92\xc4\x01a\xdd\x01\x31\x2d\x00" + b"\x90" * 20_000_000,
    "more than the head says": b"\xdd\x01\x31\x2d\x00" + b"\x90" * 20_000_000,
    "empty maps": b"\x92\xc4\x01a\x92\xc4\x00\x81\xa1a\xdd\x01\x31\x2d\x00" + b"\x80" * 20_000_000,
    "pairs of pairs": b"\x92\xc4\x01a" + b"\x92\x90" * 5_000_000,
    "short texts": b"\x92\xc4\x01a\xdd\x00\x4c\x4b\x40" + b"\xa2ab" * 5_000_000,
    "lengths that are no more than said": b"\x92\xc4\x01a"
    + (b"\xdd\x01\x00\x00\x00" * 1_000)
    + bytes(20_000_000),
}

PROGRAM = """
import resource, sys
sys.path.insert(0, {path!r})
from test_bounds import LARGE, parse
import oz
body = LARGE[{kind!r}]
LARGE.clear()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    parse(body)
except oz.ProtocolError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("kind", in_suite(list(LARGE)[:2], list(LARGE)[2:]))
def test_twenty_megabytes_become_no_gigabyte(kind):
    path = str(__file__.rpartition("/")[0])
    grew = int(scripts.run("-c", PROGRAM.format(path=path, kind=kind)))
    # The frame itself is copied once, to put head and body together.
    assert grew < 40_000, "KiB more than before"


@pytest.mark.parametrize(
    "body",
    [
        [b"a", b"x" * 500_000],
        [b"a", [b"x" * 500_000, {"headers": {f"name {at}": at for at in range(10_000)}, "id": [b"i", 7]}]],
        [
            b"a",
            [[b"x"] * 60_000 + [b"y" * 300_000], {"headers": {"a": None, "b": 1.5, "c": "text", "d": b""}}],
        ],
        [b"subject", b""] * 60_000,
        [b"subject", [b"", {"reply_to": "a.b", "headers": {"one": 1, "two": True}, "id": b"i"}]] * 20_000,
    ],
)
def test_what_a_publisher_sends_is_read(body):
    packed = msgpack.packb(body)
    assert len(packed) > FREE
    assert parse(packed, len(body) // 2) == body


def test_control_records_are_bounded_too():
    head = batch.head_start(KEY, batch.CONTROL, b"o" * 16, 1) + batch.head_end(0, 0)
    many = batch.pack_control(
        live=list(range(batch.MOST_ANSWERED)),
        refused=dict.fromkeys(range(batch.MOST_ANSWERED), "x" * 100),
        paths=1,
    )
    assert len(many) > FREE
    assert batch.parse_control(head + many, len(head))["paths"] == 1
    for body in (
        batch.pack_control(live=list(range(batch.MOST_ANSWERED + 1))),
        batch.pack_control(live=[], refused=dict.fromkeys(range(batch.MOST_ANSWERED + 1), "")),
        batch.pack_control(**dict.fromkeys("abcd", [2**40] * batch.MOST_ANSWERED)),
        b"\x81\xa1a\xdd\x00\x10\x00\x00" + b"\x90" * 1_048_576,
        b"\x81\xa1a\xdd\x00\x02\x00\x00" + bytes(131_072),
    ):
        with pytest.raises(oz.ProtocolError):
            batch.parse_control(head + body, len(head))


def test_what_is_counted_is_what_msgpack_reads():
    drawn = random.Random(3)

    def value(depth):
        kinds = [
            None,
            True,
            -1,
            127,
            1 << 40,
            -(1 << 40),
            1.5,
            b"x" * drawn.choice((0, 300, 70_000)),
            "é" * 40,
        ]
        if depth and drawn.random() < 0.5:
            inside = [value(depth - 1) for _ in range(drawn.choice((0, 3, 20)))]
            return inside if drawn.random() < 0.5 else {str(at): one for at, one in enumerate(inside)}
        return drawn.choice([*kinds, msgpack.ExtType(5, b"x" * drawn.choice((1, 2, 3, 4, 8, 16, 300)))])

    def weigh(one):
        if isinstance(one, dict):
            inside = [weigh(each) for each in one.values()]
            return 1 + sum(at for at, _ in inside), 1 + len(one) + sum(at for _, at in inside)
        if isinstance(one, list):
            inside = [weigh(each) for each in one]
            return 1 + sum(at for at, _ in inside), 1 + sum(at for _, at in inside)
        return 0, 1

    for _ in range(300):
        made = value(4)
        packed = memoryview(msgpack.packb(made))
        containers, items = weigh(made)
        _count(packed, containers, items)
        with pytest.raises(ValueError, match="too many"):
            _count(packed, containers, items - 1)
        if containers:
            with pytest.raises(ValueError, match="too many"):
                _count(packed, containers - 1, items)


def test_what_is_cut_short_is_refused():
    packed = msgpack.packb([b"a", [b"x" * 300_000, {"headers": {"a": 1}, "id": b"i"}]])
    for end in (*range(FREE + 1, len(packed), 5_000), len(packed) - 1):
        with pytest.raises(oz.ProtocolError):
            parse(packed[:end])
