import csv
import json
import subprocess
import sys
from datetime import UTC, datetime

import pyarrow.parquet
import pytest

from oz.journal import Record, Writer

SECOND = 10**9
NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * SECOND


@pytest.fixture
def directory(tmp_path):
    """Two sealed segments and a stream: six records, one of them a loss of seven messages."""
    where = tmp_path / "recorded"
    with Writer(where, segment_bytes=1, seal_on_close=False) as writer:
        writer.append([Record("md.x", b"1", NOON), Record("md.y", b"\xff", NOON + SECOND)])
        writer.append(
            [Record.of_gap("nats:md.>", 7, origin=b"\x01\x02", sequence=5, time_ns=NOON + 2 * SECOND)]
        )
        writer.append(
            [
                Record(b"raw.\xff", b"4,\n", NOON + 3 * SECOND),
                Record("news", b"", NOON + 4 * SECOND, headers=b"h", reply_to="me"),
                Record.of_gap("news", 2, time_ns=NOON + 5 * SECOND),
            ]
        )
    return where


def test_ls_lists_segments_with_offsets_times_and_subjects(oz, directory):
    lines = oz("journal", "ls", str(directory)).stdout.splitlines()
    assert lines[0].split() == ["segment", "first", "end", "bytes", "from", "to", "lost", "subjects"]
    first = lines[1].split()
    assert first[:3] == [f"{0:020d}.arrow", "0", "2"]
    assert first[4:] == ["2026-03-01T12:00:00.000000Z", "2026-03-01T12:00:01.000000Z", "0", "md.x", "md.y"]
    assert lines[3].split()[:3] == [f"{3:020d}.arrows", "3", "-"]
    data = json.loads(oz("journal", "ls", str(directory), "--json").stdout)
    assert [row["end"] for row in data] == [2, 3, None]
    assert data[0]["subjects"] == ["md.x", "md.y"]


def test_ls_lists_only_segments_that_may_hold_a_subject(oz, directory):
    data = json.loads(oz("journal", "ls", str(directory), "--json", "--subject", "md.y").stdout)
    assert [row["first"] for row in data] == [0, 3]  # the last grows


def test_info_counts_records_and_what_is_lost(oz, directory):
    data = json.loads(oz("journal", "info", str(directory), "--json").stdout)
    assert (data["segments"], data["records"], data["first_offset"], data["end_offset"]) == (3, 6, 0, 6)
    assert (data["first_time"], data["last_time"]) == (
        "2026-03-01T12:00:00.000000Z",
        "2026-03-01T12:00:05.000000Z",
    )
    assert data["lost"] == 9
    assert "end offset: 6\n" in oz("journal", "info", str(directory)).stdout


@pytest.mark.parametrize("is_sealed", [True, False])
def test_info_counts_gaps_of_which_nobody_knows_the_size(oz, tmp_path, is_sealed):
    writer = Writer(tmp_path)
    unknown = Record.of_gap("nats:md.>", lost=None)
    writer.append([("md.x", b"1"), unknown, Record.of_gap("nats:md.>", lost=3), unknown])
    if is_sealed:
        writer.close()
        writer = Writer(tmp_path)
        writer.append([("md.x", b"2")])
    data = json.loads(oz("journal", "info", str(tmp_path), "--json").stdout)
    assert (data["lost"], data["gaps_of_unknown_size"]) == (3, 2)
    assert "gaps of unknown size: 2\n" in oz("journal", "info", str(tmp_path)).stdout
    writer.close()


def test_info_of_an_empty_journal(oz, tmp_path):
    Writer(tmp_path).close()
    result = oz("journal", "info", str(tmp_path))
    assert result.exit_code == 0
    assert "records: 0\n" in result.stdout
    assert "first time: -\n" in result.stdout


def test_verify_exits_1_with_a_line_for_each_finding_and_repair_mends(oz, directory):
    assert oz("journal", "verify", str(directory)).stdout.endswith("all is well\n")
    path = directory / f"{0:020d}.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    result = oz("journal", "verify", str(directory))
    assert result.exit_code == 1
    assert f"{0:020d}.arrow at byte " in result.stdout
    assert "the records from offset 0 to 1 are missing" in result.stdout
    assert json.loads(oz("journal", "verify", str(directory), "--json").stdout)["findings"]
    assert oz("journal", "repair", str(directory)).exit_code == 0
    assert path.with_name(path.name + ".damaged").read_bytes() == content
    assert oz("journal", "verify", str(directory)).exit_code == 0


def test_repair_is_refused_while_somebody_writes(oz, directory):
    with Writer(directory):
        result = oz("journal", "repair", str(directory))
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert "a writer is at work" in line


def test_seal_leaves_nothing_that_other_programs_do_not_see(oz, directory):
    assert len(list(directory.glob("*.arrow"))) == 2
    assert oz("journal", "seal", str(directory)).stdout == "all 6 offsets are in sealed segments\n"
    assert sorted(path.name for path in directory.glob("*.arrow")) == [f"{at:020d}.arrow" for at in (0, 2, 3)]
    assert oz("journal", "seal", str(directory)).exit_code == 0
    with Writer(directory):
        assert "a writer is at work" in oz("journal", "seal", str(directory)).stderr
    none = oz("journal", "seal", str(directory / "none"))
    assert (none.exit_code, (directory / "none").exists()) == (1, False)


def test_export_as_jsonl_is_exact(oz, directory):
    rows = [json.loads(line) for line in oz("journal", "export", str(directory)).stdout.splitlines()]
    assert [row["offset"] for row in rows] == list(range(6))
    assert rows[0] == {"offset": 0, "time_ns": NOON, "kind": 0, "payload": "1", "subject": "md.x"}
    assert rows[1]["payload_base64"] == "/w=="
    assert (rows[2]["kind"], rows[2]["lost"], rows[2]["origin"]) == (1, 7, "0102")
    assert rows[3]["subject_base64"] == "cmF3Lv8="
    assert (rows[4]["headers"], rows[4]["reply_to"]) == ("h", "me")


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
        (("--subject", "md.*"), [0, 1, 2]),
        (("--subject", "redis:raw*"), [3]),
        (("--subject", "m?.x", "--dialect", "redis"), [0, 2]),
        (("--from", "4"), [4, 5]),
        (("--from", "1", "--to", "3"), [1, 2]),
        (("--from", "2026-03-01T12:00:01Z", "--to", "2026-03-01T14:00:03+02:00"), [1, 2]),
        (("--from", "0001-01-01", "--to", "9999-12-31T23:59:59"), [0, 1, 2, 3, 4, 5]),
        (("--subject", "none"), []),
    ],
)
def test_export_takes_a_subject_and_a_range(oz, directory, options, offsets):
    lines = oz("journal", "export", str(directory), *options).stdout.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == offsets


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--from", "yesterday"), "2026-03-01"),
        (("--to", "-1"), "'-1' is neither"),
        (("--subject", "a..b"), "a..b"),
        (("--format", "parquet"), "FILE"),
        (("out.xlsx",), "parquet"),
    ],
)
def test_wrong_usage_of_export_exits_2(oz, directory, arguments, word):
    result = oz("journal", "export", str(directory), *arguments)
    assert result.exit_code == 2
    assert word in result.stderr


@pytest.mark.parametrize("command", ["ls", "info", "verify", "repair", "export"])
def test_a_directory_without_a_journal_is_said_in_one_line(oz, tmp_path, command):
    result = oz("journal", command, str(tmp_path / "none"))
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert "there is no journal here" in line


def test_a_reader_of_stdout_that_goes_away_ends_it_quietly(oz_start, directory):
    running = oz_start("journal", "export", str(directory), stdout=subprocess.PIPE)
    running.process.stdout.close()
    assert running.process.wait(60) == 0


@pytest.mark.heavy
def test_without_pyarrow_the_line_to_install_is_said(directory):
    script = "import sys; sys.modules['pyarrow'] = None; sys.argv[0] = 'oz'; from oz.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", script, "journal", "info", str(directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 1
    [line] = ran.stderr.splitlines()
    assert "oz.journal needs pyarrow" in line
    assert "pip install '.[journal]'" in line


def test_help_has_examples_and_lists_the_commands(oz):
    text = oz("journal", "--help").stdout
    assert all(f"\n  {command} " in text for command in ("ls", "info", "verify", "repair", "export"))
    assert "Examples:" in text
    assert "Examples:" in oz("journal", "export", "--help").stdout


def test_info_counts_what_was_damaged(oz, directory):
    (directory / f"{0:020d}.arrow").unlink()
    assert oz("journal", "repair", str(directory)).exit_code == 0
    data = json.loads(oz("journal", "info", str(directory), "--json").stdout)
    assert (data["damaged"], data["lost"], data["gaps_of_unknown_size"]) == (2, 9, 0)
    assert "damaged: 2\n" in oz("journal", "info", str(directory)).stdout


def test_repair_says_each_finding_once(directory):
    (directory / f"{0:020d}.arrow").unlink()
    command = [sys.executable, "-m", "oz", "journal", "repair", str(directory)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == ""
    assert ended.stdout.count("is gone: the records from offset 0 to 1 are lost") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("journal", "info", ""),
        ("journal", "export", ""),
        ("journal", "export", "{journal}", ""),
        ("journal", "archive", "{journal}", ""),
        ("record", "a.>", "--journal", ""),
        ("replay", ""),
        ("spark", "archive", "{journal}", ""),
        ("spark", "report", ""),
        ("keys", "new", "me", "--directory", ""),
        ("forwarder", "--config", ""),
    ],
    ids=" ".join,
)
def test_an_empty_name_of_a_file_is_refused(oz, directory, tmp_path, monkeypatch, arguments):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    ended = oz(*(one.format(journal=directory) for one in arguments))
    assert ended.exit_code == 2
    assert "it is empty: is a variable of the shell not set?" in " ".join(ended.stderr.split())
    assert not list(here.iterdir())


def test_an_export_to_a_name_without_a_format_names_it_and_the_option(oz, directory, tmp_path):
    ended = oz("journal", "export", str(directory), str(tmp_path / "all.txt"))
    assert ended.exit_code == 2
    assert "all.txt' does not tell the format: give --format" in " ".join(ended.stderr.split())


def test_an_export_to_a_directory_that_is_not_there_names_it(oz, directory, tmp_path):
    ended = oz("journal", "export", str(directory), str(tmp_path / "none" / "all.csv"))
    assert ended.exit_code == 1
    said = " ".join(ended.stderr.split())
    assert f"there is no directory {tmp_path / 'none'}; make it first" in said
    assert ".tmp" not in said
