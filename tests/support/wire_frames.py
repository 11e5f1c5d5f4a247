"""Frames as they travel, and ways to spoil them."""

import random
import struct

import msgpack
from oz.wire.batch import CONTROL, LAST_VALUES, MESSAGES, RICH, VERSION

from oz.wire.declared import DIALECT_NUMBERS
from oz.wire.keys import (
    DECLARATION,
    PATTERN,
    STREAM,
    Declaration,
    Declared,
    DeliveryOptions,
    pattern_key,
    stream_key,
)

NAME = b"\xaa" * 14
ORIGIN = bytes(range(0xA0, 0xB0))
HEAD = struct.Struct(">BB16sIQQIB")

BOMBS = (
    b"\x91" * 1020,
    b"\x91" * 5000,
    b"\x81\x01" * 700,
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xdc\xff\xff",
    b"\xd6\xff\x00\x00\x00\x01",  # a time
    b"\xc7\x0c\xff" + b"\xff" * 12,  # a time that is none
    b"\xd4\x05\x00",
    b"\xc9\xff\xff\xff\xff\x01",
    b"\xcf" + b"\xff" * 8,
    b"\xd3\x80" + bytes(7),
    b"\xcb\x7f\xf8" + bytes(6),
    b"\xc1",
    b"\xa2\xff\xfe",
    b"\xc0",
    b"\x80",
    b"\x90",
)
"""Pieces of MessagePack that claim too much, nest too deep, or are of types that batches have not."""

HOSTILE = (
    "(((((((((((((",
    "(a+)+$",
    "(?R)",
    "[",
    "a{99999999999}",
    r"\L<words>",
    "(?<=a+)b",
    "*",
    "a.>.b",
    "",
    "\0",
    "[]-a]",
    "a?" * 200,
    "(?:" * 300,
    "|".join(f"a{number}" for number in range(200)),
)
"""Patterns that do not compile in one dialect or another, or cost much."""


def head(flags=MESSAGES, epoch=1, sequence=0, count=0, origin=ORIGIN, version=VERSION, position=0):
    return HEAD.pack(version, flags, origin, epoch, sequence, position, count, 0)


def batch(key, messages, flags=MESSAGES, chunk=None, **where):
    """One frame: the key, the head, and messages as pairs."""
    body = msgpack.packb([part for message in messages for part in message])
    number = b"" if chunk is None else struct.pack(">I", chunk)
    return key + head(flags, count=len(messages), **where) + number + body


def control(key, body=None, **where):
    return key + head(CONTROL, **where) + (b"" if body is None else msgpack.packb(body))


def batches(keys):
    """Whole messages such as a publisher sends, on each of some keys."""
    for key in keys:
        yield [batch(key, [(b"a.b", b"one")])]
        yield [batch(key, [(b"a.b", b"one"), (b"a.c", b"two"), (b"x", b"")], sequence=7, epoch=2)]
        yield [batch(key, [(b"a.%d" % number, b"x" * number) for number in range(40)], sequence=2**40)]
        yield [batch(key, [(b"\xff\xfe", b"not text"), (b"a.b", b"text")])]
        rich = [(b"a.b", [b"p", {"headers": {"n": 1, "t": "x"}, "reply_to": "r"}]), (b"a.c", b"p")]
        yield [batch(key, rich, RICH, sequence=1)]
        yield [batch(key, [(b"a.b", [[b"one", b"two"], {}])], RICH)]
        yield [batch(key, [(b"a.b", None)], RICH), b"L" * 70_000]
        yield [batch(key, [(b"a.b", [None, {"headers": {}}])], RICH), b"L" * 70_000]
        yield [batch(key, [(b"a.b", b"last")], LAST_VALUES, chunk=1)]
        yield [batch(key, [(b"a.b", [b"last", {}])], LAST_VALUES | RICH, chunk=2**32 - 1)]
        yield [control(key)]
        yield [control(key, sequence=2**64 - 1, epoch=2**32 - 1)]
        yield [control(key, {"live": [1, 2], "refused": {3: "why"}, "paths": 1})]
        yield [control(key, {"live": [], "refused": {}, "paths": 0, "more": [1]})]


ALL_DELIVERY_OPTIONS = (
    DeliveryOptions(),
    DeliveryOptions(is_shared=True),
    DeliveryOptions(group="g"),
    DeliveryOptions(group="h", policy="sticky"),
    DeliveryOptions(group="g", policy="failover", overflow="conflate", limit=3),
    DeliveryOptions(overflow="conflate", limit=10),
    DeliveryOptions(overflow="drop_oldest", limit=2**32 - 1),
    DeliveryOptions(overflow="drop_newest", limit=1),
)


def declared(dialect, text):
    return Declared(DIALECT_NUMBERS[dialect], text)


def keys():
    """Keys such as subscribers send, and some whose patterns do not compile."""
    patterns = (declared("nats", b"a.>"), declared("regex", b"^a.(b|c)"), declared("redis", b"a*[\xff]"))
    flagged = (declared("regex flags", b"\0\0\0\x02a+"), declared("rv lenient", b"a.*b"), Declared(99, b"a"))
    for number, delivery in enumerate(ALL_DELIVERY_OPTIONS):
        stream = NAME + struct.pack(">H", number)
        yield stream_key(stream)
        yield Declaration(stream, 1, delivery, patterns=patterns).encode()
        yield Declaration(stream, 2, delivery, wants_last_value=True, patterns=flagged).encode()
        yield Declaration(stream, 3, delivery, patterns=patterns * 2).encode()
        yield Declaration(stream, 4, delivery).encode()
        yield Declaration(stream, 5, delivery, is_closing=True).encode()
    for pattern in (*patterns, *flagged):
        yield pattern_key(pattern)
    for text in HOSTILE:
        for dialect in ("nats", "rv", "redis", "regex", "mqtt", "raims.glob"):
            one = declared(dialect, text.encode())
            yield Declaration(NAME + b"\xff\xff", 9, patterns=(one,)).encode()
            yield pattern_key(one)
    yield from (b"", b"a.", b"\0", b"\x001", b"\x001X", STREAM, PATTERN, DECLARATION)


def spoil(rng: random.Random, frame: bytes, others: list[bytes], overflow: int = 0) -> bytes:
    """Change a frame in one to three places, behind the bytes that are to be kept."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randint(min(overflow, len(frame)), len(frame))
        frame = _WAYS[rng.randrange(len(_WAYS))](rng, frame, at, others)
    return frame


def _flip(rng, frame, at, others):
    return frame[:at] + bytes((frame[at] ^ 1 << rng.randrange(8),)) + frame[at + 1 :] if frame[at:] else frame


def _set(rng, frame, at, others):
    return frame[:at] + bytes((rng.choice((0, 1, 0x31, 0x7F, 0x80, 0xC0, 0xFF)),)) + frame[at + 1 :]


def _enlarge(rng, frame, at, others):
    size = rng.choice((2, 4, 8))
    return frame[:at] + rng.choice((b"\xff", b"\x7f", b"\0")) * size + frame[at + size :]


def _cut(rng, frame, at, others):
    return frame[:at]


def _drop(rng, frame, at, others):
    return frame[:at] + frame[at + rng.randint(1, 9) :]


def _insert(rng, frame, at, others):
    return frame[:at] + rng.randbytes(rng.randint(1, 9)) + frame[at:]


def _repeat(rng, frame, at, others):
    return frame[:at] + frame[at : at + rng.randint(1, 40)] * 2 + frame[at:]


def _splice(rng, frame, at, others):
    other = rng.choice(others)
    return frame[:at] + other[rng.randint(0, len(other)) :]


def _bomb(rng, frame, at, others):
    return frame[:at] + rng.choice(BOMBS) + frame[at + rng.choice((0, 0, 1, 5)) :]


_WAYS = (_flip, _flip, _set, _enlarge, _cut, _drop, _insert, _repeat, _splice, _bomb)
