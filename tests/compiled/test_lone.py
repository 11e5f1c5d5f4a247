"""Lone messages are taken in by the compiled part as its Python twin does it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiled.lone_frames import A, B, Denying, decoder, frame, shown, standing
from oz.compiled import HOT
from oz.protocol.messages import LoneMessage
from oz.protocol.subscriber import lone as shortening
from oz.protocol.subscriber.contradictions import Doubt
from oz.protocol.subscriber.decoder import BatchDecoder
from oz.protocol.subscriber.sequences import source_of
from oz.protocol.subscriber.streams import Streams
from oz.wire.batch import RICH, SHORT, VERSION

pytestmark = [pytest.mark.skipif(HOT is None, reason="the compiled part does not run"), pytest.mark.sized]


class Codec:
    def encode(self, payload):
        return payload

    def decode(self, payload):
        return payload.decode()


fields = st.fixed_dictionaries(
    {},
    optional={
        "epoch": st.sampled_from([0, 2, 2**32 - 1]),
        "origin": st.just(B),
        "flags": st.sampled_from([RICH, 4, 8]),
        "version": st.sampled_from([VERSION, 3]),
        "position": st.sampled_from([0, 2**63, 2**64 - 1]),
        "count": st.sampled_from([0, 2]),
        "width": st.just(1),
        "rest": st.sampled_from([b"x", b"\xc4\x00"]),
        "key": st.just(b"\x00OS" + b"k" * 16),
        "payload": st.binary(max_size=3) | st.sampled_from([b"y" * 255, b"y" * 256, b"y" * SHORT]),
        "subject": st.sampled_from(
            [b"a.c", b"b", b"c", b"_INBOX.a.b", b"\xff", b"", b"a." + b"s" * 253, b"a." + b"s" * 254]
        ),
    },
)
steps = st.lists(
    st.tuples(st.integers(0, 3) | st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1]), fields)
    | st.tuples(st.just("next"), fields)
    | st.tuples(st.just("next"), st.just({}))
    | st.tuples(st.just("cut"), st.integers(0, 70))
    | st.sampled_from(["access", "in_batches", "loss", "doubt", "again", "waiting", "counts", "far"]),
    max_size=20,
)


def change(one, step):
    (stream,) = one.streams.by_key.values()
    source = source_of(stream.sources, A)
    if step == "access":
        one.access = Denying() if one.access is None else None
    elif step == "in_batches":
        one.in_batches = not one.in_batches
    elif step == "loss":
        source.has_loss_to_show = True
    elif step == "doubt":
        source.doubt = Doubt(1)
    elif step == "counts":
        one.stats.received = 2**63 - 1
    elif step == "far":
        source.expected = 2**63 - 1
    else:
        one.waiting.clear()


def apply(accept, one, step, number, last):
    """Do a step; give what comes of it, and the frame."""
    if isinstance(step, str) and step != "again":
        change(one, step)
        return None, last
    (stream,) = one.streams.by_key.values()
    if step == "again":
        bytes_of = last
    elif step[0] == "cut":
        bytes_of = frame(source_of(stream.sources, A).expected)[: step[1]]
    else:
        sequence = source_of(stream.sources, A).expected if step[0] == "next" else step[0]
        bytes_of = frame(min(sequence, 2**64 - 1), **step[1])
    return accept([bytes_of], number + 2), bytes_of


@given(steps, st.sampled_from([None, Codec()]))
def test_frames_are_taken_in_as_by_the_twin(steps, codec):
    ours, pure = decoder(codec), decoder(codec)
    accept = shortening.shortest(ours)
    assert (type(accept) is HOT.AcceptLone) is (codec is None)
    last = frame()
    for number, step in enumerate(steps):
        got, _ = apply(accept, ours, step, number, last)
        expected, last = apply(pure.accept, pure, step, number, last)
        assert shown(got) == shown(expected)
        assert standing(ours) == standing(pure)


def test_a_frame_that_is_next_in_order_does_not_come_to_the_twin(monkeypatch):
    one = decoder()
    # From then on the route of its subject is known.
    one.accept([frame(0)], 2)
    monkeypatch.setattr(BatchDecoder, "accept", None)
    message = shortening.shortest(one)([frame(1)], 3)
    assert type(message) is LoneMessage
    assert (message.subject, message.payload, message.sequence, message.position) == ("a.b", b"x", 1, 5)


@pytest.mark.parametrize("delivery", [{"overflow": "drop_oldest"}, {"overflow": "conflate"}])
def test_what_a_stream_holds_back_is_for_the_twin(delivery):
    ours, pure = decoder(**delivery), decoder(**delivery)
    for number in range(3):
        assert shortening.shortest(ours)([frame(number)], 2) == pure.accept([frame(number)], 2) is None
    assert standing(ours) == standing(pure)


def test_frames_are_forgotten_as_by_the_twin(monkeypatch):
    monkeypatch.setattr("oz.protocol.subscriber.decoder.FRAMES", 5)
    monkeypatch.setattr(shortening, "FRAMES", 5)
    ours, pure = decoder(), decoder()
    accept = shortening.shortest(ours)
    for number in range(20):
        assert shown(accept([frame(number)], 2)) == shown(pure.accept([frame(number)], 2))
        assert ours.given.recent == pure.given.recent
        assert len(ours.given) == len(pure.given)


def test_a_subclass_and_wrong_arguments_are_for_the_twin():
    class Other(BatchDecoder):
        pass

    assert shortening.shortest(Other(Streams(lambda count: bytes(count)))).__func__ is BatchDecoder.accept
    one = decoder()
    accept = shortening.shortest(one)
    for wrong in [(), ([frame()],), ([frame()], 0, 0)]:
        with pytest.raises(TypeError):
            accept(*wrong)
    # In a tuple, or with more behind it: as the twin has it.
    assert shown(accept((frame(0),), 2)) == shown(decoder().accept((frame(0),), 2))
    assert accept([frame(1), b"more"], 2).payload == b"x"
    with pytest.raises(TypeError, match="received"):
        HOT.AcceptLone(
            twin=print, decoder=one, waiting=(), by_key={}, stats=object(), recent=set(), forget=print,
            key_size=1, longest=1, most=1,
        )  # fmt: skip
    with pytest.raises(TypeError, match="no slot"):
        HOT.know_lone(object, object, object, object, object)
