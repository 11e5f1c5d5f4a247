"""`oz spark archive`: what it says, and how it ends."""

import json
from contextlib import contextmanager
from importlib import import_module

import pytest

from spark import archive_lakes

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from click.testing import CliRunner

from oz.cli import main


@pytest.fixture
def run(spark, monkeypatch, tmp_path):
    """Run the command in this process, on the session that there is."""

    @contextmanager
    def engine(_master, _conf):
        yield spark

    monkeypatch.setattr(import_module("oz.cli.spark.archive"), "engine", engine)
    archive_lakes.write_journal(
        tmp_path / "journal", [archive_lakes.numbered(0, 98) + archive_lakes.with_gaps(1)]
    )
    lake = str(tmp_path / "lake")
    return lambda *arguments: CliRunner().invoke(
        main, ["spark", "archive", str(tmp_path / "journal"), lake, *arguments], prog_name="oz"
    )


def test_it_says_how_it_goes_and_what_it_did(run):
    ended = run("--unsealed")
    assert ended.exit_code == 0, ended.output
    assert ended.stderr.splitlines() == [
        "oz spark archive: 0 of 100 records, offset 0 on",
        "oz spark archive: 100 of 100 records, done",
    ]
    lines = dict(line.split(None, 1) for line in ended.stdout.splitlines())
    assert lines["records"] == "100, of which 2 are no messages"
    assert lines["offsets"] == "0 to 100 are in the lake"
    again = json.loads(run("--unsealed", "--compact", "--json").stdout)
    assert (again["rows"], again["end_offset"], again["days"], again["merged"]) == (0, 100, [], 0)


def test_errors_are_one_line(run, tmp_path):
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "notes.txt").touch()
    ended = run()
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "holds 'notes.txt' and no manifest of a lake" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert run("--separator", "").exit_code == 2
    assert run("--file-bytes", "0").exit_code == 2
