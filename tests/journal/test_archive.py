"""Exports and copies of a journal on other file systems: `file://`, and a server of S3's interface."""

import importlib.util
import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow import fs

import oz
import support
from oz.cli import main
from oz.journal import Journal, Record, Writer
from oz.journal.places import place_of
from support import scripts

MISSING = [
    name for name in ("moto", "boto3", "flask", "flask_cors") if importlib.util.find_spec(name) is None
]
SERVER = Path(support.__file__).with_name("s3_server.py")


@pytest.fixture
def oz_command():
    """Run a command in this process."""
    return lambda *arguments: CliRunner().invoke(main, arguments, prog_name="oz")


@pytest.fixture(scope="module")
def bucket():
    """A bucket's URI and the query that leads to its server."""
    if MISSING or not hasattr(fs, "S3FileSystem"):
        pytest.skip(
            f"needs: pip install '.[test-s3]' ({', '.join(MISSING) or 'a pyarrow with S3'} is missing)"
        )
    with scripts.started(SERVER, "lakes") as server, pytest.MonkeyPatch.context() as patch:
        port = server.stdout.readline().strip()
        assert port, server.communicate(timeout=30)[1]
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield "s3://lakes", f"?endpoint_override=http://127.0.0.1:{port}&region=us-east-1"


@pytest.fixture(params=["path", "file", "s3"])
def folder(request, tmp_path):
    """Makes the URI of something in a folder of the test's own."""
    if request.param == "s3":
        uri, query = request.getfixturevalue("bucket")
        return lambda name="": f"{uri}/{tmp_path.name}/{name}".rstrip("/") + query
    start = "" if request.param == "path" else "file://"
    (tmp_path / "out").mkdir()
    return lambda name="": f"{start}{tmp_path}/out/{name}".rstrip("/")


def fill(directory, first=0, count=3, **options):
    """Segments of ten records, sealed."""
    with Writer(directory, segment_bytes=1, **options) as writer:
        for start in range(first, first + 10 * count, 10):
            rows = [(f"md.{at}", b"%d" % at) for at in range(start, start + 9)]
            writer.append([*rows, Record.of_gap("md.>", 2)])
    return Journal(directory)


def offsets(lake):
    place = place_of(lake)
    tables = [pq.read_table(place.within(name).path, filesystem=place.system) for name in place.files()]
    return sorted(at for table in tables for at in table["offset"].to_pylist())


def test_each_sealed_segment_is_copied_once(tmp_path, folder):
    journal, lake = fill(tmp_path / "journal"), folder("lake")
    done = journal.archive(lake)
    assert done.written == tuple(f"{at:020d}-{at + 10:020d}.parquet" for at in (0, 10, 20))
    assert (done.present, done.end_offset, done.missing) == (0, 30, ())
    assert offsets(lake) == list(range(30))
    assert journal.archive(lake).written == ()
    fill(tmp_path / "journal", 30, 2)
    done = journal.archive(lake)
    assert (len(done.written), done.present, done.end_offset) == (2, 3, 50)
    assert offsets(lake) == list(range(50))


def test_a_copy_has_all_columns_losses_included(tmp_path, folder):
    journal, lake = fill(tmp_path / "journal", count=1), folder("lake")
    (name,) = journal.archive(lake).written
    place = place_of(lake).within(name)
    table = pq.read_table(place.path, filesystem=place.system)
    assert table.replace_schema_metadata() == journal.table(gaps=True).replace_schema_metadata()


def test_what_retention_removed_before_it_was_copied_is_said(tmp_path, folder):
    journal, lake = fill(tmp_path / "journal"), folder("lake")
    journal.archive(lake)
    fill(tmp_path / "journal", 30, 4, retain_bytes=1)
    fill(tmp_path / "journal", 70, 1)
    done = journal.archive(lake)
    first = journal.first_offset
    assert first > 30
    assert done.missing == ((30, first),)
    assert offsets(lake) == [*range(30), *range(first, done.end_offset)]


def test_another_journal_is_refused(tmp_path, folder):
    lake = folder("lake")
    fill(tmp_path / "journal").archive(lake)
    with pytest.raises(oz.JournalError, match="of another journal"):
        fill(tmp_path / "other").archive(lake)
    assert offsets(lake) == list(range(30))


def test_a_journal_that_was_put_back_is_refused(tmp_path):
    import shutil

    journal = fill(tmp_path / "journal", count=1)
    shutil.copytree(tmp_path / "journal", tmp_path / "older")
    fill(tmp_path / "journal", 10, 2)
    journal.archive(tmp_path / "lake")
    fill(tmp_path / "older", 10, 3)
    with pytest.raises(oz.JournalError, match=r"put back to an earlier state|does not have"):
        Journal(tmp_path / "older").archive(tmp_path / "lake")


def test_a_copy_that_fails_leaves_no_part_of_a_file(tmp_path, folder):
    journal, lake = fill(tmp_path / "journal"), folder("lake")
    path = tmp_path / "journal" / f"{10:020d}.arrow"
    content = path.read_bytes()
    path.write_bytes(content[:1500] + bytes(100) + content[1600:])
    with pytest.raises(oz.JournalError, match=r"checksum|cannot be read|no message"):
        journal.archive(lake)
    assert place_of(lake).files() == [f"{0:020d}-{10:020d}.parquet"]
    path.write_bytes(content)
    assert len(journal.archive(lake).written) == 2
    assert offsets(lake) == list(range(30))


def test_what_another_left_half_written_is_passed_by(tmp_path):
    journal = fill(tmp_path / "journal")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / f"{0:020d}-{10:020d}.parquet.123.tmp").write_bytes(b"half")
    assert len(journal.archive(tmp_path / "lake").written) == 3


def test_nothing_sealed_and_an_unknown_place_are_errors(tmp_path):
    with Writer(tmp_path / "journal", seal_on_close=False) as writer:
        writer.append([("a", b"")])
    with pytest.raises(oz.JournalError, match="oz journal seal"):
        Journal(tmp_path / "journal").archive(tmp_path / "lake")
    fill(tmp_path / "sealed")
    with pytest.raises(oz.JournalError, match="nowhere"):
        Journal(tmp_path / "sealed").archive("nowhere://x/y")


def test_an_error_tells_no_password():
    with pytest.raises(oz.JournalError) as caught:
        place_of("nowhere://name:secret@host/lake?password=hidden")
    assert str(caught.value).startswith("nowhere://host/lake: ")


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_an_export_goes_to_any_file_system(oz_command, tmp_path, folder, form):
    fill(tmp_path / "journal")
    to = folder(f"all.{form}")
    result = oz_command("journal", "export", str(tmp_path / "journal"), to)
    assert (result.exit_code, result.stderr) == (0, "")
    place = place_of(to)
    with place.system.open_input_file(place.path) as file:
        if form == "parquet":
            assert pq.read_table(file)["offset"].to_pylist() == list(range(30))
        else:
            lines = file.read().decode().splitlines()
            assert len(lines) == 30 + (form == "csv")
    assert os.listdir(tmp_path / "out") in ([f"all.{form}"], []) if (tmp_path / "out").exists() else True


def test_the_command_copies_and_goes_on(oz_command, tmp_path, folder):
    fill(tmp_path / "journal")
    arguments = ("journal", "archive", str(tmp_path / "journal"), folder("lake"))
    assert oz_command(*arguments).stdout == "3 files written, 0 were there; all ends at 30\n"
    data = json.loads(oz_command(*arguments, "--json").stdout)
    assert (data["written"], data["present"]) == ([], 3)


def test_an_export_to_a_device_writes_to_it(oz_command, tmp_path):
    fill(tmp_path / "journal")
    result = oz_command("journal", "export", str(tmp_path / "journal"), "/dev/null", "--format", "csv")
    assert result.exit_code == 0
    assert not os.path.isfile("/dev/null")


def test_an_s3_server_that_refuses_is_said_in_one_line(oz_command, tmp_path, bucket):
    fill(tmp_path / "journal")
    uri = "s3://no-such-bucket/lake" + bucket[1]
    result = oz_command("journal", "archive", str(tmp_path / "journal"), uri)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "s3://no-such-bucket/lake" in result.stderr
