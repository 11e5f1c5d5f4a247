import os
import sys
import threading

import pyarrow as pa
import pytest

import oz
from oz.journal import Journal, Kind, Record, Writer
from support.inside import segments_of


def test_columns_are_recorded_as_the_same_records_are(tmp_path):
    records = [
        Record(f"a.{at}", b"%d" % at, 1000 + at, bytes([at]) * 16, at, reply_to="me", headers=b"h")
        for at in range(10)
    ]
    names = ("subject", "payload", "time_ns", "origin", "sequence", "reply_to", "headers")
    with Writer(tmp_path) as writer:
        assert writer.append(records) == 10
        assert writer.append_columns({name: [getattr(one, name) for one in records] for name in names}) == 20
    first, second = (list(Journal(tmp_path).read(start=at, end=at + 10)) for at in (0, 10))
    assert [one._replace(offset=None) for one in second] == records
    assert [one._replace(offset=None) for one in first] == records


def test_a_column_is_a_list_an_array_or_one_value_for_all(tmp_path):
    with Writer(tmp_path) as writer:
        writer.append_columns(
            {
                "subject": ["a", b"raw.\xff", "c"],
                "payload": pa.array([b"1", b"2", b"3"], pa.binary()),
                "time_ns": 5,
                "origin": b"o",
                "sequence": pa.array([7, None, 9], pa.int64()),
                "reply_to": ["x", None, b"\xff"],
            }
        )
        writer.append_columns(
            {"subject": pa.array(["lost"]), "payload": [b""], "kind": int(Kind.GAP), "lost": 4}
        )
    found = list(Journal(tmp_path).read(gaps=True))
    assert [one.subject for one in found] == ["a", b"raw.\xff", "c", "lost"]
    assert [one.payload for one in found] == [b"1", b"2", b"3", b""]
    assert [one.time_ns for one in found][:3] == [5] * 3
    assert [one.sequence for one in found] == [7, None, 9, None]
    assert [one.reply_to for one in found] == ["x", None, b"\xff", None]
    assert [(one.kind, one.lost) for one in found][2:] == [(0, None), (1, 4)]


@pytest.mark.parametrize(
    ("columns", "error", "word"),
    [
        ({"subject": ["a"]}, ValueError, "payload"),
        ({"subject": "a", "payload": [b""]}, ValueError, "subject"),
        ({"subject": ["a"], "payload": [b""], "offset": [1]}, ValueError, "offset"),
        ({"subject": ["a"], "payload": [b"", b""]}, ValueError, "lengths"),
        ({"subject": ["a"], "payload": ["text"]}, TypeError, "encode"),
        ({"subject": ["a"], "payload": [None]}, TypeError, "."),
        ({"subject": [1], "payload": [b""]}, TypeError, "text or bytes"),
        ({"subject": pa.array([b"a"]), "payload": [b""]}, TypeError, "string"),
        ({"subject": pa.array([None], pa.string()), "payload": [b""]}, TypeError, "subject"),
        ({"subject": ["a"], "payload": [b""], "sequence": pa.array([1], pa.int8())}, TypeError, "int64"),
        ({"subject": ["a"], "payload": [b""], "time_ns": [None]}, TypeError, "time_ns"),
        ({"subject": ["a"], "payload": [b""], "sequence": [1 << 70]}, ValueError, "sequence"),
        ({"subject": ["a"], "payload": [b""], "time_ns": [1.5]}, TypeError, "whole number"),
        ({"subject": ["a"], "payload": [b""], "time_ns": 1.5}, TypeError, "whole number"),
        ({"subject": ["a"], "payload": [b""], "kind": [3]}, ValueError, "Kind"),
    ],
)
def test_columns_that_make_no_sense_are_refused_and_nothing_is_kept(tmp_path, columns, error, word):
    with Writer(tmp_path) as writer:
        with pytest.raises(error, match=word):
            writer.append_columns(columns)
        assert writer.append([("next", b"")]) == 1
    assert [one.subject for one in Journal(tmp_path).read()] == ["next"]


@pytest.mark.parametrize(("rows", "size"), [(0, 0), (1, 5 << 20), (20_000, 10), (100, 300_000), (3, 3 << 20)])
def test_columns_of_any_length_become_batches_of_bounded_size(tmp_path, rows, size):
    with Writer(tmp_path, seal_on_close=False) as writer:
        writer.append([("first", b"")])
        payloads = [bytes([at % 256]) * size for at in range(rows)]
        assert writer.append_columns({"subject": ["a"] * rows, "payload": payloads}) == rows + 1
    assert [one.payload for one in Journal(tmp_path).read(start=1)] == payloads
    with pa.OSFile(str(tmp_path / f"{0:020d}.arrows")) as file:
        for batch in pa.ipc.open_stream(file):
            assert batch.num_rows == 1 or (
                batch.num_rows <= 8192 and batch.column("payload").nbytes <= 4.1 * 2**20
            )


def test_an_append_does_not_wait_for_a_segment_to_be_sealed(tmp_path, monkeypatch):
    sealing, go_on = threading.Event(), threading.Event()
    real = oz.journal.tail.seal

    def slow(*arguments):
        sealing.set()
        assert go_on.wait(20)
        return real(*arguments)

    monkeypatch.setattr("oz.journal.tail.seal", slow)
    with Writer(tmp_path, segment_bytes=1) as writer:
        for _ in range(2):
            writer.append([("a", b"")])
        assert sealing.wait(20)
        for _ in range(5):
            writer.append([("b", b"")])
        assert len(list(tmp_path.glob("*.arrows"))) == 7
        assert len(list(Journal(tmp_path).read())) == 7
        go_on.set()
    assert len(list(tmp_path.glob("*.arrows"))) == 1
    assert Journal(tmp_path).verify().ok


def test_the_segment_that_grows_is_never_sealed_though_one_after_it_is_there_for_a_moment(
    tmp_path, monkeypatch
):
    """As when the disk has no room for the beginning of the next segment, while another is being sealed."""
    with Writer(tmp_path, segment_bytes=1, retain_bytes=1, seal_on_close=False) as writer:
        writer.append([("a", b"")])
        for _ in range(2):
            following = tmp_path / f"{writer.end_offset:020d}.arrows"
            following.write_bytes(b"half")
            segments_of(writer).make_room()
            following.unlink()
            assert [path.suffix for path in tmp_path.glob("0*")] == [".arrows"]
        writer.append([("b", b"")])
    assert [one.subject for one in Journal(tmp_path).read()] == ["b"]


def test_a_seal_that_fails_is_logged_and_made_up_for(tmp_path, monkeypatch, caplog):
    with monkeypatch.context() as patched:
        patched.setattr("oz.journal.tail.seal", lambda *_: 1 / 0)
        with Writer(tmp_path, segment_bytes=1) as writer:
            for _ in range(3):
                writer.append([("a", os.urandom(10))])
    assert "a segment stays a stream" in caplog.text
    Writer(tmp_path).close()
    assert len(list(tmp_path.glob("*.arrows"))) == 1
    assert Journal(tmp_path).verify().ok


def test_appending_columns_does_nothing_for_each_row(tmp_path):
    columns = {"subject": ["a.b"] * 8192, "payload": [b"x" * 100] * 8192, "time_ns": 5}
    columns |= {"origin": b"o" * 16, "sequence": 7}
    with Writer(tmp_path, sync="never") as writer:
        writer.append_columns(columns)
        assert calls_of(lambda: writer.append_columns(columns)) < 2_000


def calls_of(work):
    """Count the functions of Python that something calls."""
    count = 0

    def counted(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
