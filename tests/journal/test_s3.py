"""Sealed files on S3: they are copied as they are, and a journal there is readable."""

import importlib.util
from pathlib import Path

import pytest
from pyarrow import fs

import support
from oz.journal import Journal, JournalError, Writer
from support import scripts
from support.journals import flip, rows_of, sealed

MISSING = [
    name for name in ("moto", "boto3", "flask", "flask_cors") if importlib.util.find_spec(name) is None
]
SERVER = Path(support.__file__).with_name("s3_server.py")


@pytest.fixture(scope="module")
def bucket():
    """Text of a URI with a place for the folder."""
    if MISSING or not hasattr(fs, "S3FileSystem"):
        pytest.skip(
            f"needs: pip install '.[test-s3]' ({', '.join(MISSING) or 'a pyarrow with S3'} is missing)"
        )
    with scripts.started(SERVER, "bucket") as server, pytest.MonkeyPatch.context() as patch:
        port = server.stdout.readline().strip()
        assert port, server.communicate(timeout=30)[1]
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield f"s3://bucket/{{}}?endpoint_override=http://127.0.0.1:{port}&region=us-east-1"


def upload(directory, uri):
    system, path = fs.FileSystem.from_uri(uri)
    for item in sealed(directory):
        fs.copy_files(
            str(item),
            f"{path}/{item.name}",
            source_filesystem=fs.LocalFileSystem(),
            destination_filesystem=system,
        )


@pytest.mark.timeout(180)
def test_a_copied_journal_is_readable_by_pattern_and_range(written, bucket):
    directory, rows = written(*[40] * 10, seal=True, segment_bytes=5000)
    uri = bucket.format("whole")
    upload(directory, uri)
    assert rows_of(uri) == (rows, set())
    journal = Journal(uri)
    assert (journal.first_offset, journal.end_offset) == (0, len(rows))
    assert rows_of(uri, start=100, end=150)[0] == {at: rows[at] for at in range(100, 150)}
    wanted = {at: row for at, row in rows.items() if row[0] == "r.3.x"}
    assert {message.offset: (message.subject, message.payload) for message in journal.read("r.3.*")} == wanted
    assert journal.verify().ok


@pytest.mark.timeout(180)
def test_damage_of_a_copy_is_an_error(written, bucket):
    directory, _ = written(40, seal=True)
    [path] = sealed(directory)
    flip(path, 8 * (path.stat().st_size // 3))
    uri = bucket.format("damaged")
    upload(directory, uri)
    with pytest.raises(JournalError, match=path.name):
        rows_of(uri)
    assert not Journal(uri).verify().ok


@pytest.mark.timeout(180)
def test_a_place_without_a_journal_is_an_error(bucket):
    with pytest.raises(JournalError, match="there is no journal"):
        Journal(bucket.format("nothing"))
    with pytest.raises((JournalError, ValueError)):
        Writer(bucket.format("nothing"))
