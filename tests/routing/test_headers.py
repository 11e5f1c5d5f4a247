"""Headers, payloads of several frames and large ones: whole, in order; plain subscribers get no headers."""

import asyncio
import math
import random
import time
from contextlib import suppress

import msgpack
import pytest
import zmq

import oz.asyncio
from support.routed import Stage, finish
from support.sizes import size
from support.virtual import VirtualStage
from support.waiting import DEADLINE, until

EVERY_KIND = {
    "text": "ünï\0code",
    "": "",
    "bytes": b"\x00\xff",
    "int": 42,
    "least": -(2**63),
    "most": 2**64 - 1,
    "float": 1.5,
    "inf": math.inf,
    "yes": True,
    "none": None,
}


@pytest.fixture
def stage():
    with VirtualStage() as made:
        yield made


@pytest.fixture
def sockets():
    """The same with sockets."""
    with Stage() as made:
        yield made


def test_every_kind_of_value_arrives_as_it_was(stage):
    pub = stage.pub()
    sub = stage.sub(pub)
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    given = dict(EVERY_KIND)
    pub.publish("a.b", b"x", headers=given)
    given["late"] = 1
    message = sub.receive(timeout=DEADLINE)
    assert message.headers == EVERY_KIND
    assert [type(one) for one in message.headers.values()] == [type(one) for one in EVERY_KIND.values()]
    assert (message.payload, message.frames, message.reply_to) == (b"x", [b"a.b", b"x"], None)


@pytest.mark.parametrize("headers", [None, {}])
def test_without_headers_there_are_none(stage, headers):
    pub = stage.pub()
    sub = stage.sub(pub)
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    pub.publish("a.b", b"x", headers=headers)
    message = sub.receive(timeout=DEADLINE)
    assert message.headers == {}
    assert message.reply_to is None


BAD = [
    (["a"], TypeError, "headers are a dict, not list"),
    ([], TypeError, "headers are a dict, not list"),
    ("", TypeError, "headers are a dict, not str"),
    ({1: "x"}, TypeError, "a header is text"),
    ({"x": [1]}, TypeError, "a header is text"),
    ({"x": {}}, TypeError, "a header is text"),
    ({"x": 1j}, TypeError, "a header is text"),
    ({"x": bytearray(b"y")}, TypeError, "a header is text"),
    ({"x": 2**64}, ValueError, "'x' is a number of more than 64 bits"),
    ({"x": -(2**63) - 1}, ValueError, "'x' is a number of more than 64 bits"),
    ({"x": "\ud800"}, ValueError, r"'x'.* not UTF-8|surrogates"),
    ({"\ud800": "x"}, ValueError, r"not UTF-8|surrogates"),
]


@pytest.mark.parametrize(("headers", "error", "says"), BAD, ids=[ascii(one[0]) for one in BAD])
def test_bad_headers_are_refused_and_harm_nobody(stage, headers, error, says):
    pub = stage.pub()
    sub = stage.sub(pub)
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    with pub.batch():
        pub.publish("a.b", b"before", headers={"good": 1})
        with pytest.raises(error, match=says):
            pub.publish("a.b", b"bad", headers=headers)
        pub.publish("a.b", b"after")
    assert [sub.receive(timeout=DEADLINE).payload for _ in range(2)] == [b"before", b"after"]
    assert pub.stats.published == 2


def test_a_key_is_text_or_bytes(stage):
    pub = stage.pub()
    with pytest.raises(TypeError, match="a key is str or bytes, not int: 1"):
        pub.publish("a.b", b"", key=1)


def test_headers_are_checked_also_when_nobody_listens(stage):
    with pytest.raises(TypeError, match="headers are a dict"):
        stage.pub().publish("a.b", b"", headers=["x"])


def test_plain_subscribers_get_subject_and_payload_only(sockets):
    pub = sockets.pub()
    context = sockets.enter_context(zmq.Context())
    plain = sockets.enter_context(context.socket(zmq.SUB))
    plain.subscribe(b"")
    plain.connect(pub.endpoint)
    prefix = sockets.enter_context(oz.Subscriber(pub.endpoint))
    prefix.subscribe("a.*")
    routed = sockets.sub(pub)
    routed.subscribe("a.*")
    routed.wait_ready(timeout=DEADLINE)
    pub.wait_for_subscribers(3, subject="a.b", timeout=DEADLINE)
    sent = [b"", b"x", bytes(70_000), [b"two", b"frames"]]
    for number, payload in enumerate(sent):
        pub.publish("a.b", payload, headers={"n": number}, key="k")
    for number, payload in enumerate(sent):
        frames = [b"a.b", *(payload if isinstance(payload, list) else [payload])]
        assert plain.poll(1_000 * DEADLINE)
        assert plain.recv_multipart() == frames
        one = prefix.receive(timeout=DEADLINE)
        assert (one.frames, one.headers) == (frames, {})
        message = routed.receive(timeout=DEADLINE)
        assert (message.frames, message.headers) == (frames, {"n": number})


def test_headers_are_there_from_the_first_message_on(stage):
    for _ in range(30):
        with Stage() as one:
            pub = one.pub()
            sub = one.sub(pub)
            sub.subscribe("a.*")
            ends = time.monotonic() + DEADLINE
            message = None
            while message is None and time.monotonic() < ends:
                pub.publish("a.b", b"x", headers={"h": 1})
                with suppress(oz.Timeout):
                    message = sub.receive(timeout=0) if sub.poll(0) else None
            assert message.headers == {"h": 1}


def test_a_codec_goes_with_headers_and_batches(stage):
    pub = stage.pub(codec="msgpack")
    sub = stage.sub(pub, codec="msgpack")
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    sent = [{"n": 1}, [1, 2], None, "text", b"bytes", 1.5, ["x" * 70_000], list(range(40_000))]
    for number, value in enumerate(sent * 2):
        pub.publish("a.b", value, headers={"n": number} if number % 3 else None)
    for number, value in enumerate(sent * 2):
        message = sub.receive(timeout=DEADLINE)
        assert message.payload == value
        assert message.headers == ({"n": number} if number % 3 else {})
        assert message.frames == [b"a.b", msgpack.packb(value)]


def test_a_payload_that_does_not_decode_costs_itself_only(stage):
    pub = stage.pub()
    sub = stage.sub(pub, codec="msgpack")
    sub.subscribe("a.*")
    sub.wait_ready(timeout=DEADLINE)
    with pub.batch():
        for payload in (msgpack.packb(1), b"\xc1", msgpack.packb(2)):
            pub.publish("a.b", payload)
    assert [sub.receive(timeout=DEADLINE).payload for _ in range(2)] == [1, 2]
    assert (sub.stats.malformed, sub.stats.lost, sub.stats.delivered) == (1, 0, 2)


def mixed(count):
    """Payloads of every form and size around that of a frame of its own."""
    dice = random.Random(4)
    makers = [
        lambda: dice.randbytes(dice.randrange(50)),
        lambda: dice.randbytes(65_535 + dice.randrange(3)),
        lambda: [dice.randbytes(5)],
        lambda: [dice.randbytes(5), b"", dice.randbytes(66_000)],
        lambda: dice.randbytes(200_000),
        lambda: [bytes(1)] * 20,
    ]
    return [dice.choice(makers)() for _ in range(count)]


@pytest.mark.sized
@pytest.mark.parametrize("shared", [False, True])
def test_payloads_of_all_forms_keep_their_order_for_everybody(stage, shared):
    pub = stage.pub()
    alone = [stage.sub(pub, shared=shared) for _ in range(2)]
    for sub in alone:
        sub.subscribe(["a.>", "*.b"])
    members = [stage.sub(pub) for _ in range(2)]
    for sub in members:
        sub.subscribe("a.>", group="g", policy="sticky")
    for sub in alone + members:
        sub.wait_ready(timeout=DEADLINE)
    sent = [(f"a.{number % 3}", payload, number % 5) for number, payload in enumerate(mixed(size(90, 300)))]
    for number, (subject, payload, has_headers) in enumerate(sent):
        pub.publish(subject, payload, headers={"n": number} if has_headers else None)
    pub.flush()
    expected = [
        ([subject.encode(), *(payload if isinstance(payload, list) else [payload])], {"n": n} if has else {})
        for n, (subject, payload, has) in enumerate(sent)
    ]
    for sub in alone:
        assert [(m.frames, m.headers) for m in (sub.receive(DEADLINE) for _ in sent)] == expected
        assert sub.stats.lost == sub.stats.malformed == 0
    got = {}
    until(
        lambda: sum(len(take_all(sub, got)) for sub in members[:1]) >= 0 and total(members, got) == len(sent)
    )
    for at in range(3):
        name = b"a.%d" % at
        assert [one for sub in members for one in got[sub] if one[0][0] == name] == [
            one for one in expected if one[0][0] == name
        ]


def take_all(sub, got):
    taken = got.setdefault(sub, [])
    while sub.poll(1):
        try:
            message = sub.receive(timeout=0)
        except oz.Timeout:
            break
        taken.append((message.frames, dict(message.headers)))
    return taken


def total(members, got):
    return sum(len(take_all(sub, got)) for sub in members)


def test_asyncio_sends_and_gives_the_same():
    async def scenario():
        async with (
            oz.asyncio.Publisher("tcp://127.0.0.1:*") as pub,
            oz.asyncio.Subscriber(pub.endpoint, filtering="publisher") as sub,
        ):
            sub.subscribe("a.*")
            await sub.wait_ready(timeout=DEADLINE)
            await pub.publish("a.b", b"x", headers=EVERY_KIND, key="k")
            await pub.publish("a.b", bytes(70_000), headers={"h": 1})
            await pub.publish("a.b", [b"y", b"z"])
            got = [await sub.receive(timeout=DEADLINE) for _ in range(3)]
            assert [message.headers for message in got] == [EVERY_KIND, {"h": 1}, {}]
            assert [message.frames[1:] for message in got] == [[b"x"], [bytes(70_000)], [b"y", b"z"]]
            with pytest.raises(TypeError, match="a header is text"):
                await pub.publish("a.b", b"", headers={"x": []})

    asyncio.run(scenario())


def test_a_large_payload_may_be_of_any_kind_of_buffer(stage):
    pub = stage.pub()
    sub, got = stage.member(pub)
    whole = bytes(range(256)) * 300
    for payload in (
        bytearray(whole),
        memoryview(whole),
        zmq.Frame(whole),
        [memoryview(whole), zmq.Frame(b"x")],
    ):
        pub.publish("a.b", payload)
    finish([pub], sub)
    assert [message.frames for message in got] == [[b"a.b", whole]] * 3 + [[b"a.b", whole, b"x"]]
