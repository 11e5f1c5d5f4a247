import csv
import json
from datetime import UTC, datetime

import pyarrow.parquet
import pytest

from oz.journal import GAP, Writer

SECOND = 10**9
NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * SECOND


def row(subject, payload=b"", seconds=0, **columns):
    return {"subject": subject, "payload": payload, "time_ns": NOON + seconds * SECOND, **columns}


@pytest.fixture
def directory(tmp_path):
    """Three sealed segments: six records, two of them gaps, of seven and two messages."""
    where = tmp_path / "recorded"
    with Writer(where) as writer:
        writer.append([row("md.x", b"1"), row("md.y", b"\xff", 1)])
        writer.roll()
        writer.append([row("nats:md.>", b"", 2, kind=GAP, lost=7, origin=b"\x01\x02", sequence=5)])
        writer.roll()
        writer.append(
            [
                row(b"raw.\xff", b"4,\n", 3),
                row("news", b"", 4, headers=b"\x80", reply_to=b"me"),
                row("nats:news", b"", 5, kind=GAP, lost=2),
            ]
        )
    return where


def test_ls_lists_segments_with_offsets_and_sizes(oz, directory):
    lines = [line.split() for line in oz("journal", "ls", str(directory)).stdout.splitlines()]
    assert lines[0] == ["file", "first", "end", "records", "bytes", "state"]
    assert [line[1:4] for line in lines[1:]] == [["0", "2", "2"], ["2", "3", "1"], ["3", "6", "3"]]
    assert lines[1][0].startswith(f"{0:020d}-{2:020d}-")
    with Writer(directory) as writer:
        writer.append([("a", b"")])
        data = json.loads(oz("journal", "ls", str(directory), "--json").stdout)
    assert [item["state"] for item in data] == ["sealed", "sealed", "sealed", "active"]
    assert data[3]["end"] == 7


def test_info_counts_messages_and_losses(oz, directory):
    data = json.loads(oz("journal", "info", str(directory), "--json").stdout)
    assert (data["segments"], data["messages"], data["first_offset"], data["end_offset"]) == (3, 4, 0, 6)
    assert data["first_time"] == "2026-03-01T12:00:00.000000Z"
    assert data["last_time"] == "2026-03-01T12:00:05.000000Z"
    assert (data["lost"], data["gaps_of_unknown_size"], data["missing"]) == (9, 0, 0)
    assert "end offset: 6\n" in oz("journal", "info", str(directory)).stdout


def test_info_of_an_empty_journal_and_of_gaps_of_unknown_size(oz, tmp_path):
    with Writer(tmp_path) as writer:
        result = oz("journal", "info", str(tmp_path))
        assert result.exit_code == 0
        assert "messages: 0\n" in result.stdout
        assert "first time: -\n" in result.stdout
        gap = row("nats:md.>", kind=GAP)
        writer.append([row("md.x"), gap, {**gap, "lost": 3}, gap])
        for _ in ("active", "sealed"):
            data = json.loads(oz("journal", "info", str(tmp_path), "--json").stdout)
            assert (data["lost"], data["gaps_of_unknown_size"]) == (3, 2)
            writer.roll()


def test_verify_exits_1_with_a_line_for_each_finding_and_repair_mends(oz, directory):
    assert oz("journal", "verify", str(directory)).stdout.endswith(": intact\n")
    path = next(directory.glob(f"{0:020d}-*.parquet"))
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    result = oz("journal", "verify", str(directory))
    assert result.exit_code == 1
    assert path.name in result.stdout
    assert "offsets 0 to 1" in result.stdout
    assert json.loads(oz("journal", "verify", str(directory), "--json").stdout)["findings"]
    mended = oz("journal", "repair", str(directory))
    assert mended.exit_code == 0
    assert mended.stdout.count("offsets 0 to 1") == 1
    assert [item.read_bytes() for item in directory.glob("*.damaged")] == [content]
    assert oz("journal", "verify", str(directory)).exit_code == 0


def test_repair_is_refused_while_a_writer_is_open(oz, directory):
    with Writer(directory):
        result = oz("journal", "repair", str(directory))
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert "close that writer first" in line


def test_export_as_jsonl_is_exact(oz, directory):
    rows = [json.loads(line) for line in oz("journal", "export", str(directory)).stdout.splitlines()]
    assert [row["offset"] for row in rows] == list(range(6))
    assert rows[0] == {
        "offset": 0, "time": "2026-03-01T12:00:00.000000Z", "kind": 0, "payload": "1", "subject": "md.x",
    }  # fmt: skip
    assert rows[1]["payload_base64"] == "/w=="
    assert (rows[2]["kind"], rows[2]["lost"], rows[2]["origin"]) == (1, 7, "0102")
    assert rows[3]["subject_base64"] == "cmF3Lv8="
    assert (rows[4]["headers_base64"], rows[4]["reply_to"]) == ("gA==", "me")


def test_export_as_csv(oz, directory, tmp_path):
    file = tmp_path / "out.csv"
    assert oz("journal", "export", str(directory), str(file)).stdout == ""
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["payload"] for row in rows] == ["1", "", "", "4,\n", "", ""]
    assert rows[1]["payload_base64"] == "/w=="


def test_export_as_parquet_keeps_every_column(oz, directory, tmp_path):
    file = tmp_path / "out.parquet"
    assert oz("journal", "export", str(directory), str(file)).exit_code == 0
    table = pyarrow.parquet.read_table(file)
    assert table["offset"].to_pylist() == list(range(6))
    assert table["subject_raw"].to_pylist()[3] == b"raw.\xff"
    assert table["payload"].to_pylist()[1] == b"\xff"


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (("--pattern", "md.*"), [0, 1, 2, 5]),
        (("--pattern", "redis:raw*"), [2, 3, 5]),
        (("--pattern", "m?.x", "--dialect", "redis"), [0, 2, 5]),
        (("--start", "4"), [4, 5]),
        (("--start", "1", "--end", "3"), [1, 2]),
        (("--start", "2026-03-01T12:00:01Z", "--end", "2026-03-01T14:00:03+02:00"), [1, 2]),
        (("--start", "0001-01-01", "--end", "9999-12-31T23:59:59"), [0, 1, 2, 3, 4, 5]),
        (("--pattern", "none"), [2, 5]),
    ],
)
def test_export_selects_a_subject_and_a_range(oz, directory, options, offsets):
    lines = oz("journal", "export", str(directory), *options).stdout.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == offsets


def test_an_export_to_a_directory_that_is_not_there_names_it(oz, directory, tmp_path):
    ended = oz("journal", "export", str(directory), str(tmp_path / "none" / "all.jsonl"))
    assert ended.exit_code == 1
    said = " ".join(ended.stderr.split())
    assert f"there is no directory {tmp_path / 'none'}; create it first" in said
    assert ".tmp" not in said
