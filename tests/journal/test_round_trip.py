import itertools
import math
import tempfile
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.journal import Journal, Kind, Record, Writer
from oz.journal.schema import BATCH_BYTES, BATCH_ROWS

INT64 = st.integers(-(2**63), 2**63 - 1)
SUBJECTS = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.binary(max_size=20))
RECORDS = st.builds(
    Record,
    subject=SUBJECTS,
    payload=st.binary(max_size=50),
    time_ns=INT64,
    origin=st.none() | st.binary(max_size=16),
    sequence=st.none() | INT64,
    reply_to=st.none() | SUBJECTS,
    headers=st.none() | st.binary(max_size=20),
    kind=st.sampled_from([int(kind) for kind in Kind]),
    lost=st.none() | INT64,
    position=st.none() | INT64,
)


def as_read(record, offset):
    return record._replace(offset=offset, subject=text(record.subject), reply_to=text(record.reply_to))


def text(value):
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


@given(st.lists(st.lists(RECORDS, max_size=5), max_size=5))
def test_what_is_appended_is_read_field_by_field_with_dense_offsets(appends):
    with tempfile.TemporaryDirectory() as directory:
        with Writer(directory, sync="never", segment_bytes=3000) as writer:
            ends = [writer.append(records) for records in appends]
            live = list(Journal(directory).read(gaps=True))
        expected = [as_read(record, at) for at, record in enumerate(itertools.chain(*appends))]
        assert ends == list(itertools.accumulate(map(len, appends)))
        assert live == expected
        assert list(Journal(directory).read(gaps=True)) == expected
        assert Journal(directory).verify().ok


@given(st.lists(st.tuples(SUBJECTS, st.binary(max_size=30)), min_size=1, max_size=10))
def test_pairs_are_messages_received_now(pairs):
    with tempfile.TemporaryDirectory() as directory:
        before = time.time_ns()
        with Writer(directory, sync="never") as writer:
            writer.append(pairs)
        after = time.time_ns()
        found = list(Journal(directory).read())
    assert [(record.subject, record.payload) for record in found] == [(text(s), p) for s, p in pairs]
    assert all(before <= record.time_ns <= after and record.is_message for record in found)


def test_pairs_and_records_may_be_mixed_and_come_from_a_generator(journal):
    found = journal(iter([("a", b"1"), Record("b", b"2", time_ns=5), ["c", bytearray(b"3")]])).read()
    assert [(record.subject, record.payload) for record in found] == [("a", b"1"), ("b", b"2"), ("c", b"3")]


def test_a_subject_that_is_not_utf_8_comes_back_as_the_same_bytes(journal):
    [record] = journal([(b"md.\xff\x00", b"")]).read()
    assert record.subject == record.subject_bytes == b"md.\xff\x00"


def test_a_message_subject_that_is_not_utf_8_is_stored_as_its_bytes(journal):
    escaped = "md.\udcff\x00"
    made = journal([(escaped, b""), ("é", b""), Record(escaped, reply_to="r\udcff")])
    records = list(made.read())
    assert [one.subject for one in records] == [b"md.\xff\x00", "é", b"md.\xff\x00"]
    assert [one.subject_bytes for one in records] == [b"md.\xff\x00", "é".encode(), b"md.\xff\x00"]
    assert records[2].reply_to == b"r\xff"
    assert len(list(made.read(oz.compile(escaped, "redis")))) == 2


def test_a_gap_is_a_record_that_only_those_see_who_ask(journal):
    gap = Record.of_gap("nats:md.>", 7, origin=b"p" * 16, sequence=41, time_ns=9)
    one = journal([("md.x", b"1"), gap, Record.of_gap("md.>", None), ("md.y", b"2")])
    assert [record.offset for record in one.read()] == [0, 3]
    _, found, unknown, _ = one.read(gaps=True)
    assert found == gap._replace(offset=1)
    assert (found.kind, found.lost, found.is_message) == (Kind.GAP, 7, False)
    assert unknown.lost is None


def test_a_large_append_becomes_batches_of_bounded_size(tmp_path):
    directory = tmp_path / "journal"
    large = math.ceil(BATCH_BYTES / 3)
    with Writer(directory, sync="never") as writer:
        assert writer.append([("a", b"x")] * (2 * BATCH_ROWS + 5) + [("b", bytes(large))] * 7) == 16396
        with pa.OSFile(str(directory / f"{0:020d}.arrows")) as file, pa.ipc.open_stream(file) as reader:
            batches = list(reader)
    assert all(batch.num_rows <= BATCH_ROWS for batch in batches)
    assert all(batch.column("payload").nbytes < BATCH_BYTES * 1.1 for batch in batches)
    assert len(batches) < 10
    assert sum(1 for _ in Journal(directory).read()) == 16396


def test_a_payload_larger_than_a_batch_survives(journal):
    payload = bytes(range(256)) * (BATCH_BYTES // 128)
    assert [record.payload for record in journal([("a", payload), ("b", b"")]).read()] == [payload, b""]


def test_nothing_appended_changes_nothing(journal):
    one = journal([], [("a", b"")], [])
    assert (one.first_offset, one.end_offset) == (0, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        "ab",
        3,
        ("a",),
        ("a", b"", b""),
        ("a", "text"),
        ("a", None),
        (None, b""),
        (7, b""),
        Record("a", "text"),
        Record("a", headers="text"),
        Record("a", time_ns=time.time()),
        Record("a", time_ns="now"),
        Record("a", sequence=1.0),
        Record("a", kind=None),
        Record(None),
    ],
)
def test_what_is_no_record_is_refused_and_nothing_of_its_append_is_kept(tmp_path, wrong):
    with Writer(tmp_path) as writer:
        writer.append([("kept", b"")])
        with pytest.raises(TypeError):
            writer.append([("a", b"")] * (BATCH_ROWS + 1) + [wrong])
        assert writer.end_offset == 1
        writer.append([("next", b"")])
    assert [(record.offset, record.subject) for record in Journal(tmp_path).read()] == [
        (0, "kept"),
        (1, "next"),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        Record("a", time_ns=2**63),
        Record("\ud800"),
        Record("a", sequence=-(2**64)),
        Record("a", kind=7),
        Record("a", kind=300),
    ],
)
def test_what_cannot_be_stored_is_refused(tmp_path, wrong):
    with Writer(tmp_path) as writer:
        with pytest.raises(ValueError, match=r"cannot hold|kind 7|surrogates"):
            writer.append([("a", b""), wrong])
        assert writer.end_offset == 0


def test_an_error_of_the_iterable_goes_to_the_caller_and_nothing_is_kept(tmp_path):
    def failing():
        yield from [("a", b"")] * 1000
        raise ConnectionResetError("the source is gone")

    with Writer(tmp_path) as writer:
        with pytest.raises(ConnectionResetError):
            writer.append(failing())
        assert writer.append([("b", b"")]) == 1
