"""Records of every form become the same columns, and come back as they were."""

import datetime as dt
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oz.journal.format import COLUMNS, SCHEMA, TYPES
from oz.journal.records import (
    BATCH_BYTES,
    BATCH_ROWS,
    make_batches,
    pack_headers,
    read_records,
    unpack_headers,
)

NOW = 1_700_000_000_000_000_000


def rows(records, first=0):
    batches = [batch for batch, _ in make_batches(records, first, NOW)]
    return pa.Table.from_batches(batches, SCHEMA).to_pylist()


def back(records):
    return [record for batch, _ in make_batches(records, 0, NOW) for record in read_records(batch)]


PAIRS = [("a.b", b"1"), ("c", b"")]
SAME = {
    "pairs": PAIRS,
    "an iterator of pairs": iter(PAIRS),
    "mappings": [{"subject": "a.b", "payload": b"1"}, {"subject": "c", "payload": b""}],
    "columns": {"subject": ["a.b", "c"], "payload": [b"1", b""], "time_ns": NOW},
    "a table": pa.table({"subject": ["a.b", "c"], "payload": pa.array([b"1", b""])}),
    "a record batch": pa.record_batch({"payload": pa.array([b"1", b""]), "subject": pa.array(["a.b", "c"])}),
    "pairs and mappings": [PAIRS[0], {"subject": b"c", "payload": b""}],
    "a table of other types": pa.table(
        {
            "subject": pa.array(["a.b", "c"], pa.large_string()).dictionary_encode(),
            "payload": pa.array([b"1", b""], pa.large_binary()),
            "kind": pa.array([0, 0], pa.int64()),
        }
    ),
    "records that were read": back(PAIRS),
}


@pytest.mark.parametrize("form", SAME)
def test_every_form_of_records_gives_the_same_columns(form):
    records = SAME[form]
    assert rows(records) == rows(PAIRS)


REFUSED = {
    "a payload of text": [("a", "text")],
    "a payload of None": [("a", None)],
    "a subject of None": [(None, b"")],
    "three values": [("a", b"", b"")],
    "a number": [5],
    "one pair in place of a list": b"ab",
    "no payload column": {"subject": ["a"]},
    "columns of different lengths": {"subject": ["a", "b"], "payload": [b""]},
    "no column is a list": {"subject": "a", "payload": b""},
    "an unknown column": [{"subject": "a", "payload": b"", "replyto": "b"}],
    "an unknown kind": [{"subject": "a", "payload": b"", "kind": 7}],
    "a sequence of text": [{"subject": "a", "payload": b"", "sequence": "7"}],
    "a sequence that is too large": [{"subject": "a", "payload": b"", "sequence": 1 << 63}],
    "a boolean sequence": [{"subject": "a", "payload": b"", "sequence": True}],
    "a time of float": [{"subject": "a", "payload": b"", "time": 1.5}],
    "both times": {"subject": ["a"], "payload": [b""], "time": dt.datetime.now(dt.UTC), "time_ns": 1},
    "a lone surrogate": [("\ud800", b"")],
    "null in an Arrow payload": pa.table({"subject": ["a"], "payload": pa.array([None], pa.binary())}),
}


@pytest.mark.parametrize("form", REFUSED)
def test_records_that_do_not_fit_are_refused(form):
    with pytest.raises((TypeError, ValueError), match="reply_to" if form == "an unknown column" else None):
        rows(REFUSED[form])


bytes_or_none = st.none() | st.binary(max_size=20)
numbers = st.none() | st.integers(-(2**63), 2**63 - 1)
records = st.fixed_dictionaries(
    {
        "subject": st.text(st.characters(exclude_categories=["Cs"])) | st.binary(max_size=10),
        "payload": st.binary(max_size=30),
        "time_ns": st.integers(0, 2**62),
        "reply_to": bytes_or_none,
        "origin": bytes_or_none,
        "sequence": numbers,
        "position": numbers,
        "headers": st.dictionaries(
            st.text(max_size=5), st.integers().filter(lambda n: abs(n) < 2**63), max_size=2
        ),
    }
)


@given(st.lists(records, min_size=1, max_size=5))
def test_records_come_back_as_they_were(given_records):
    for given_record, record in zip(given_records, back(given_records), strict=True):
        subject = given_record["subject"]
        assert record.subject_bytes == (subject if isinstance(subject, bytes) else subject.encode())
        assert record.payload == given_record["payload"]
        assert record.time_ns == given_record["time_ns"] // 1000 * 1000
        for name in ("origin", "sequence", "position"):
            assert getattr(record, name) == given_record[name]
        reply_to = given_record["reply_to"]
        assert (record.reply_to or "").encode(errors="surrogateescape") == (reply_to or b"")
        expected = {
            name: value
            for name, value in given_record["headers"].items()
            if name not in ("oz-id", "oz-frames")
        }
        assert record.headers == expected
        again = pickle.loads(pickle.dumps(record))
        assert all(
            getattr(again, name) == getattr(record, name)
            for name in ("offset", "subject", "headers", "frames")
        )


@given(st.lists(st.integers(0, 6 << 20), max_size=4))
def test_batches_are_bounded(sizes):
    payload = bytes(6 << 20)
    given_records = [("a", payload[:size]) for size in sizes] + [("b", b"")] * 20_000
    offset = 10
    for batch, first in make_batches(given_records, offset, NOW):
        assert first == offset
        offset += batch.num_rows
        assert batch.num_rows <= BATCH_ROWS
        assert batch.num_rows == 1 or batch["payload"].nbytes <= BATCH_BYTES + 4 * BATCH_ROWS + 64
    assert offset == 10 + len(given_records)


@given(st.binary(max_size=30))
def test_headers_of_any_bytes_are_read(packed):
    headers, frames, message_id = unpack_headers(packed)
    assert all(type(name) is str for name in headers)
    assert all(type(frame) is bytes for frame in frames)
    assert message_id is None or isinstance(message_id, (bytes, tuple))


def test_frames_and_ids_pass_through_the_headers():
    packed = pack_headers({"a": 1}, [b"2", b"3"], (b"series", 4))
    assert unpack_headers(packed) == ({"a": 1}, [b"2", b"3"], (b"series", 4))
    [record] = back([{"subject": "s", "payload": b"1", "headers": packed}])
    assert record.frames == [b"s", b"1", b"2", b"3"]
    assert record.id == (b"series", 4)
    assert rows([record]) == rows([{"subject": "s", "payload": b"1", "headers": packed, "time_ns": NOW}])


def test_the_types_of_columns_are_those_of_the_schema():
    [(batch, _)] = make_batches(PAIRS, 0, NOW)
    assert batch.schema == SCHEMA
    assert {name: batch[name].type for name in COLUMNS} == TYPES
