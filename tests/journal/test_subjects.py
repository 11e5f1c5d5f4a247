"""The subjects that a sealed segment keeps of itself, and what a reader passes by for them."""

import struct
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.journal import Journal, Record, Writer, subjects
from oz.journal.segment import open_segment
from oz.journal.subjects import subjects_in, with_subjects
from oz.journal.walk import ReadAhead

MANY = 100  # more than the manifest names
NEEDLE = "md.7.needle"
PATTERNS = (NEEDLE, "md.*.needle", "regex:md\\.\\d+\\.needle", "nats:md.7.>", b"md.7.needle", "md.99.>", ">")


def haystack(directory, **options):
    """Eight segments with the same hundred subjects, and one more subject in the fifth of them."""
    with Writer(directory, segment_bytes=1, **options) as writer:
        for number in range(8):
            records = [(f"md.{at % 10}.s{at}", b"x" * 100) for at in range(MANY)]
            writer.append(records + [(NEEDLE, b"found")] * (number == 4))
    return Journal(directory)


def decoded(monkeypatch):
    """The segments of which a batch is decoded, from now on."""
    found = []
    real = oz.journal.segment.OpenSegment.decode

    def decode(self, *arguments):
        found.append(self.segment.base)
        return real(self, *arguments)

    monkeypatch.setattr(oz.journal.segment.OpenSegment, "decode", decode)
    return found


def without_subjects(monkeypatch):
    monkeypatch.setattr("oz.journal.sealing.with_subjects", lambda tail, _: tail)


def wanted(pattern):
    texts = [f"md.{at % 10}.s{at}" for at in range(MANY)]
    each = [text for text in texts if oz.compile(pattern).matches(text)]
    return sorted(each * 8 + [NEEDLE] * oz.compile(pattern).matches(NEEDLE))


def test_a_subject_in_one_segment_of_many_is_read_from_that_alone(tmp_path, monkeypatch):
    journal = haystack(tmp_path)
    bases = decoded(monkeypatch)
    for pattern in PATTERNS[:3]:
        assert [record.payload for record in journal.read(pattern)] == [b"found"]
    assert bases == [4 * MANY] * 3
    assert list(journal.read("md.99.>")) == []
    assert len(bases) == 3


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_what_is_passed_by_is_nothing_that_matches(tmp_path, pattern):
    journal = haystack(tmp_path)
    assert sorted(record.subject for record in journal.read(pattern)) == wanted(pattern)
    assert [record.offset for record in journal.read(pattern, start=405)] == [
        record.offset for record in journal.read(pattern) if record.offset >= 405
    ]


def test_a_journal_without_summaries_is_read_the_same(tmp_path, monkeypatch):
    without_subjects(monkeypatch)
    journal = haystack(tmp_path)
    assert not any(kept(journal, segment) for segment, _ in journal.segments())
    assert [record.payload for record in journal.read(NEEDLE)] == [b"found"]
    assert journal.verify().ok


def kept(journal, segment):
    with open_segment(journal.directory, segment, None) as opened:
        found = subjects_in(opened.source)
        return None if found is None else found.to_pylist()


def test_a_segment_with_too_many_subjects_has_no_summary_and_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(subjects, "MOST_BYTES", 1000)
    journal = haystack(tmp_path)
    assert not any(kept(journal, segment) for segment, _ in journal.segments())
    assert [record.payload for record in journal.read(NEEDLE)] == [b"found"]


def test_a_loss_is_told_though_the_segments_subjects_do_not_match(tmp_path):
    records = [(f"md.{at}", b"") for at in range(MANY)] + [Record.of_gap("news.>", 3)]
    with Writer(tmp_path) as writer:
        writer.append(records)
    assert [record.lost for record in Journal(tmp_path).read("news.a", gaps=True)] == [3]
    assert list(Journal(tmp_path).read("news.a")) == []


def test_other_programs_read_a_segment_with_a_summary(tmp_path):
    journal = haystack(tmp_path)
    segment, _ = journal.segments()[4]
    path = tmp_path / segment.name
    assert kept(journal, segment) == sorted(text.encode() for text in {*map(str, wanted(">")[:-1]), NEEDLE})
    with pa.ipc.open_file(path) as file:
        assert file.read_all().num_rows == MANY + 1
    after = len(b"ARROW1\0\0")  # the same bytes, taken for a stream
    assert pa.ipc.open_stream(path.read_bytes()[after:]).read_all().num_rows == MANY + 1


def changed(path, change):
    """Change a file's summary, its checksum made right: the counts and the bytes before it is compressed."""
    data = path.read_bytes()
    (footer,) = struct.unpack_from("<I", data, len(data) - 10)
    at = len(data) - 10 - footer - 24
    count, _, stored, _, magic = struct.unpack_from("<IIII8s", data, at)
    start = at - stored - -stored % 8
    count, body = change(count, zlib.decompress(data[start : start + stored]))
    packed = zlib.compress(body)
    counts = struct.pack("<III", count, len(body), len(packed))
    trailer = counts + struct.pack("<I8s", zlib.crc32(packed, zlib.crc32(counts)), magic)
    path.write_bytes(data[:start] + packed + bytes(-len(packed) % 8) + trailer + data[at + 24 :])


def forget_manifest(directory):
    """Let a writer make it again, from whatever the files are now."""
    (directory / "manifest.json").unlink()
    Writer(directory).close()


LIES = {
    "places beyond the bytes": lambda count, body: (count, body[:4] + b"\xff\xff\xff\x7f" + body[8:]),
    "places that go back": lambda count, body: (count, body[:4] + b"\xff\xff\xff\xff" + body[8:]),
    "more than there are": lambda count, body: (count + 1000, body),
    "a count of four thousand million": lambda count, body: ((1 << 32) - 1, body),
    "no places": lambda count, body: (count, b""),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_summary_that_lies_about_its_bytes_is_none_and_the_segment_is_read(tmp_path, lie):
    journal = haystack(tmp_path)
    segment, _ = journal.segments()[4]
    changed(tmp_path / segment.name, lie)
    forget_manifest(tmp_path)
    assert kept(journal, segment) is None
    assert [record.payload for record in journal.read(NEEDLE)] == [b"found"]
    assert "summary" in str(journal.verify().findings[0])
    journal.repair()
    assert journal.verify().ok
    assert NEEDLE.encode() in kept(journal, segment)


def test_a_changed_byte_in_a_summary_costs_time_only_and_verify_finds_it(tmp_path):
    journal = haystack(tmp_path)
    segment, _ = journal.segments()[4]
    path = tmp_path / segment.name
    data = bytearray(path.read_bytes())
    (footer,) = struct.unpack_from("<I", data, len(data) - 10)
    data[len(data) - 10 - footer - 60] ^= 4
    path.write_bytes(data)
    assert kept(journal, segment) is None
    assert [record.payload for record in journal.read(NEEDLE)] == [b"found"]
    assert not journal.verify().ok


def test_verify_finds_a_summary_that_lacks_a_subject(tmp_path):
    journal = haystack(tmp_path)
    segment, _ = journal.segments()[4]
    changed(tmp_path / segment.name, lambda count, body: (count, body.replace(b"needle", b"noodle")))
    forget_manifest(tmp_path)
    assert "lacks 1" in str(journal.verify().findings[0])
    journal.repair()
    assert [record.payload for record in journal.read(NEEDLE)] == [b"found"]


def test_segments_are_listed_by_what_they_may_hold(tmp_path):
    journal = haystack(tmp_path)
    grows = 8 * MANY + 1  # and may hold anything
    assert [segment.base for segment, _ in journal.segments(NEEDLE)] == [4 * MANY, grows]
    assert len(journal.segments("md.1.>")) == len(journal.segments()) == 9
    assert [segment.base for segment, _ in journal.segments("news.>")] == [grows]


@given(st.sets(st.binary(max_size=20) | st.text(max_size=5).map(str.encode), max_size=50))
def test_subjects_come_back_as_they_were(tmp_path_factory, some):
    path = tmp_path_factory.mktemp("s") / "file"
    footer = b"a footer"
    tail = with_subjects(
        bytearray(b"\xff\xff\xff\xff\0\0\0\0" + footer + struct.pack("<I", len(footer)) + b"ARROW1"),
        list(some),
    )
    path.write_bytes(b"batches " + tail)
    with path.open("rb") as file:
        assert subjects_in(ReadAhead(file.fileno())).to_pylist() == sorted(some)
