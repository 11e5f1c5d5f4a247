"""File names, marks and checkpoints: the pure parts of the format."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.journal import JournalError, Writer, ranges
from oz.journal.format import Head, Mark, parse_name, sealed_name, sort_segments, stream_name

offsets = st.integers(0, 2**63 - 1)
ids = st.binary(min_size=8, max_size=8).map(bytes.hex)


@given(offsets, offsets, st.integers(0, 2**32 - 1), ids)
def test_names_are_parsed_as_they_were_made(first, end, crc, segment):
    sealed, stream = parse_name(sealed_name(first, end, crc)), parse_name(stream_name(first, segment))
    assert (sealed.first, sealed.end, sealed.crc, sealed.is_sealed) == (first, end, crc, True)
    assert (stream.first, stream.end, stream.segment, stream.is_sealed) == (first, None, segment, False)


@pytest.mark.parametrize("suffix", [".tmp", ".damaged", "x"])
def test_other_names_are_no_segments(suffix):
    assert parse_name(sealed_name(0, 1, 2) + suffix) is None
    assert parse_name(stream_name(0, "0" * 16) + suffix) is None


def test_segments_are_sorted_and_a_sealed_form_hides_its_stream():
    names = [
        stream_name(20, "b" * 16),
        sealed_name(0, 10, 1),
        stream_name(10, "a" * 16),
        sealed_name(10, 20, 2),
        "x",
    ]
    assert [file.name for file in sort_segments(names)] == [names[1], names[3], names[0]]


@given(ids | st.just(""), offsets, offsets, offsets)
def test_a_mark_comes_back(segment, first, size, end):
    mark = Mark(segment, first, size, end)
    assert len(mark.to_bytes()) == 44
    assert Mark.from_bytes(mark.to_bytes()) == mark


@given(st.integers(0, 8 * 44 - 1))
def test_a_mark_with_a_flipped_bit_is_none(bit):
    data = bytearray(Mark("0123456789abcdef", 1, 2, 3).to_bytes())
    data[bit // 8] ^= 1 << bit % 8
    assert Mark.from_bytes(bytes(data)) is None


@given(ids, ids, ids | st.just(""), offsets)
def test_a_head_comes_back(journal, segment, previous, first):
    head = Head(journal, segment, previous, first)
    encoded = {key.encode(): value.encode() for key, value in head.metadata().items()}
    assert Head.from_metadata(encoded) == head
    with pytest.raises(ValueError, match="version 2"):
        Head.from_metadata({**encoded, b"oz.version": b"2"})
    with pytest.raises(ValueError, match=r"oz\.journal"):
        Head.from_metadata({key: value for key, value in encoded.items() if key != b"oz.journal"})


def append(directory, *groups, **options):
    with Writer(directory, **options) as writer:
        for size in groups:
            writer.append([("a.b", b"x" * 10)] * size)
            writer.roll()


def test_a_checkpoint_is_valid_after_sealing_and_after_a_restart(tmp_path):
    with Writer(tmp_path) as writer:
        writer.append([("a", b"")] * 5)
        saved = ranges.checkpoint(tmp_path)
        assert saved.offset == 5
        assert ranges.resume(tmp_path, saved) is None
    assert ranges.resume(tmp_path, saved) is None
    append(tmp_path, 5)
    assert ranges.resume(tmp_path, saved) is None
    assert ranges.checkpoint(tmp_path, 5) == saved


def test_a_checkpoint_of_a_replaced_journal_is_an_error(tmp_path):
    append(tmp_path / "one", 5, 5)
    append(tmp_path / "two", 5, 5)
    saved = ranges.checkpoint(tmp_path / "one")
    with pytest.raises(JournalError, match=r"replaced or restored"):
        ranges.resume(tmp_path / "two", saved)
    with pytest.raises(JournalError, match=r"ends at offset 10"):
        ranges.resume(tmp_path / "two", saved._replace(offset=11))


def test_retention_before_a_checkpoint_is_a_gap(tmp_path):
    append(tmp_path, 5)
    saved = ranges.checkpoint(tmp_path)
    append(tmp_path, 5, 5, 5, retain_bytes=1)
    gap = ranges.resume(tmp_path, saved)
    assert (gap.first, gap.end, gap.reason) == (5, 15, "retention")
    assert ranges.plan(tmp_path, 5, 20).missing == (gap,)
    with pytest.raises(JournalError, match="from offset 5 to 14 before they were read"):
        list(ranges.read_range(tmp_path, 5, 20, removed="raise"))


def test_a_plan_covers_a_range_exactly(tmp_path):
    append(tmp_path, 5, 5)
    with Writer(tmp_path) as writer:
        writer.append([("c", b"")] * 5)
        plan = ranges.plan(tmp_path, 2, 13)
        assert [(part.first, part.end, part.is_whole) for part in plan.sealed] == [
            (2, 5, False),
            (5, 10, True),
        ]
        assert (plan.active, plan.missing) == ((10, 13), ())
        found = [batch["offset"].to_pylist() for batch in ranges.read_range(tmp_path, 2, 13)]
        assert list(itertools.chain(*found)) == list(range(2, 13))
        assert ranges.plan(tmp_path, 0, 15, "nothing.*").sealed == ()
        assert ranges.range_end(tmp_path, 0, 15, max_records=4) == 4
        assert 1 <= ranges.range_end(tmp_path, 0, 15, max_bytes=1) < 15
