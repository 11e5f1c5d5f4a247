"""Journals that each version wrote are read as they were, and go on where they ended."""

import json
import shutil
from pathlib import Path

import pytest

from oz.journal import Journal, Record, Writer

KEPT = [told.with_suffix("") for told in sorted(Path(__file__).parent.glob("*/journal*.jsonl"))]


@pytest.fixture(params=KEPT, ids=lambda path: f"{path.parent.name} {path.name}")
def kept(request, tmp_path):
    """A copy of a journal, and what was in it when it was written."""
    directory = shutil.copytree(request.param, tmp_path / "journal")
    rows = request.param.with_suffix(".jsonl").read_text("ascii").splitlines()
    return directory, [record(json.loads(row)) for row in rows]


def record(fields):
    return Record(
        **{
            name: bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
            for name, value in fields.items()
        }
    )


def read(directory, **options):
    return list(Journal(directory).read(gaps=True, **options))


def test_every_record_is_read_as_it_was_written_down(kept):
    directory, records = kept
    assert read(directory) == records
    assert {one.kind for one in records} == {0, 1, 2}
    journal = Journal(directory)
    assert (journal.first_offset, journal.end_offset) == (0, len(records))
    assert read(directory, start=5, end=12) == records[5:12]
    assert [one.offset for one in journal.read("a.*")] == [
        one.offset for one in records if str(one.subject).startswith("a.")
    ]


def test_its_files_are_found_whole(kept):
    directory, records = kept
    report = Journal(directory).verify()
    assert report.ok, report.findings
    assert report.records == len(records)


def test_a_writer_goes_on_behind_the_last_record_and_changes_none(kept):
    directory, records = kept
    with Writer(directory, segment_bytes=5000) as writer:
        assert writer.end_offset == len(records)
        assert writer.findings == ()
        for _ in range(3):
            writer.append([("a.new", bytes(1000))] * 3)
    assert read(directory, end=len(records)) == records
    assert [one.subject for one in read(directory, start=len(records))] == ["a.new"] * 9
    assert Journal(directory).verify().ok
