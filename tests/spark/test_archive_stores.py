"""Lakes on object stores: each record is in the lake once, wherever the archiver was killed."""

import importlib.util
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyarrow import fs

import oz
import support
from oz.errors import LakeError
from oz.journal.places import Place, place_of
from oz.spark import LakeLayout, archive, lake_files
from oz.spark.jobs.archiving.staging import staged_files
from oz.spark.jobs.archiving.stored import opened_store, stored_files
from spark import archive_lakes
from support import scripts

MISSING = [
    name for name in ("moto", "boto3", "flask", "flask_cors") if importlib.util.find_spec(name) is None
]
SERVER = Path(support.__file__).with_name("s3_server.py")
LAYOUT = LakeLayout()


class KilledHere(BaseException):
    """Stands for a SIGKILL."""


class Store:
    """An object store, as far as a lake needs one; it may die before or after any of its changes."""

    def __init__(self):
        self.objects = {}
        self.changes = 0
        self.dies_at = None

    def change(self, make):
        """Make a change: at even numbers the process dies before it, at odd ones after it."""
        for moment in ("before", "after"):
            if self.dies_at is not None and self.changes >= self.dies_at:
                raise KilledHere(moment)
            if moment == "before":
                make()
            self.changes += 1

    def open_output_stream(self, path, compression):
        store = self

        class Upload(pa.BufferOutputStream):
            def close(self):
                content = self.getvalue().to_pybytes() if not self.closed else b""
                store.change(lambda: store.objects.__setitem__(path, content))

        return Upload()

    def open_input_stream(self, path, compression):
        if path not in self.objects:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.objects[path])

    def delete_file(self, path):
        self.change(lambda: self.objects.pop(path))

    def get_file_info(self, what):
        if isinstance(what, list):
            return [self._info(path) for path in what]
        return [self._info(path) for path in self.objects if path.startswith(what.base_dir + "/")]

    def _info(self, path):
        there = path in self.objects
        return fs.FileInfo(
            path,
            fs.FileType.File if there else fs.FileType.NotFound,
            size=len(self.objects[path]) if there else None,
        )


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def lake(store):
    return Place(store, "bucket/lake", "fake://bucket/lake")


def stage(held, first, end):
    """Write what Spark would, in two folders."""
    staging = held.staging.new()
    for token in ("a", "b"):
        folder = staging / "day=2026-03-01" / f"first_token={token}"
        folder.mkdir(parents=True)
        offsets = [at for at in range(first, end) if (at % 2 == 0) == (token == "a")]
        pq.write_table(pa.table({"offset": pa.array(offsets, pa.int64())}), folder / "part-0.parquet")
    return staging, staged_files(staging)


def run(place, staging, journal_end, step):
    """Archive in steps up to an end, as the job does."""
    with opened_store(place, staging, "id", 0, LAYOUT) as held:
        while (first := held.manifest.end_offset) < journal_end:
            end = min(first + step, journal_end)
            then = type(held.manifest)("id", ".", 0, end)
            held.publish(*stage(held, first, end), then)


def offsets_of(store, paths):
    tables = [pq.read_table(pa.BufferReader(store.objects[path.removeprefix("fake://")])) for path in paths]
    return sorted(at for table in tables for at in table["offset"].to_pylist())


def test_each_record_is_in_the_lake_once_whatever_change_is_the_last_before_a_kill(tmp_path):
    """Runs are killed at their n-th change for every n, then go on with other steps."""
    kills = 0
    for dies_at in range(200):
        store = Store()
        place = Place(store, "bucket/lake", "fake://bucket/lake")
        store.dies_at = dies_at
        try:
            run(place, tmp_path / "staging", 20, 10)
        except KilledHere:
            kills += 1
        else:
            break
        store.dies_at = None
        known = json.loads(store.objects.get("bucket/lake/_oz/lake.json", b'{"end_offset": 0}'))
        assert offsets_of(store, stored_files(place) or []) == list(range(known["end_offset"]))
        run(place, tmp_path / "staging", 26, 7)
        assert offsets_of(store, stored_files(place)) == list(range(26))
        everything = [f"fake://{path}" for path in store.objects if path.endswith(".parquet")]
        assert offsets_of(store, everything) == list(range(26)), "whoever lists the folder sees the same"
    assert kills >= 16


def test_a_file_that_the_manifest_does_not_know_is_never_removed(store, lake, tmp_path):
    run(lake, tmp_path, 10, 10)
    earlier = store.objects["bucket/lake/_oz/lake.json"]
    run(lake, tmp_path, 20, 10)
    store.objects["bucket/lake/_oz/lake.json"] = earlier
    before = dict(store.objects)
    with pytest.raises(LakeError, match="was an old manifest put back"):
        run(lake, tmp_path, 20, 10)
    assert store.objects == before


def test_a_second_archiver_with_the_same_staging_is_refused(lake, tmp_path):
    with (
        opened_store(lake, tmp_path, "id", 0, LAYOUT),
        pytest.raises(LakeError, match="another archiver is at work here"),
        opened_store(lake, tmp_path, "id", 0, LAYOUT),
    ):
        pass


def test_a_second_archiver_from_elsewhere_is_noticed_before_anything_counts(store, lake, tmp_path):
    with opened_store(lake, tmp_path / "one", "id", 0, LAYOUT) as first:
        staged = stage(first, 0, 10)
        run(lake, tmp_path / "two", 10, 10)
        with pytest.raises(LakeError, match="another archiver is at work on this lake"):
            first.publish(*staged, type(first.manifest)("id", ".", 0, 10))
    assert offsets_of(store, stored_files(lake)) == list(range(10))


def test_a_folder_that_is_no_lake_is_left_alone(store, lake, tmp_path):
    store.objects["bucket/lake/notes.txt"] = b"mine"
    with pytest.raises(LakeError, match=r"'notes\.txt' and no manifest"):
        run(lake, tmp_path, 10, 10)
    assert list(store.objects) == ["bucket/lake/notes.txt"]


def test_the_lake_of_another_journal_is_refused(lake, tmp_path):
    run(lake, tmp_path, 10, 10)
    with (
        pytest.raises(LakeError, match="the lake of another journal"),
        opened_store(lake, tmp_path, "other", 0, LAYOUT),
    ):
        pass


def test_a_damaged_manifest_is_an_error_and_never_a_new_lake(store, lake, tmp_path):
    run(lake, tmp_path, 10, 10)
    store.objects["bucket/lake/_oz/lake.json"] = b"{"
    with pytest.raises(LakeError, match=r"lake\.json: damaged"):
        run(lake, tmp_path, 20, 10)
    with pytest.raises(LakeError, match=r"lake\.json: damaged"):
        stored_files(lake)


@pytest.fixture(scope="module")
def bucket():
    """A bucket's URI, as Hadoop writes it, and the query that leads to its server."""
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
        yield "s3a://lakes", f"?endpoint_override=http://127.0.0.1:{port}&region=us-east-1"


def test_a_journal_is_archived_to_s3_as_to_a_directory(spark, bucket, tmp_path):
    uri, query = bucket
    journal, lake = tmp_path / "journal", f"{uri}/market{query}"
    layout = LakeLayout(step_rows=60)
    archive_lakes.write_journal(journal, [archive_lakes.numbered(0, 100), archive_lakes.with_gaps(4)])
    first = archive(spark, journal, lake, layout=layout, unsealed=True)
    archive_lakes.write_journal(journal, [archive_lakes.numbered(102, 150)])
    second = archive(spark, journal, lake, layout=layout, unsealed=True)
    third = archive(spark, journal, lake, unsealed=True)
    assert (first.rows, first.gaps, second.rows, third.rows) == (102, 2, 48, 0)

    names = lake_files(lake)
    assert all(name.startswith(f"{uri}/market/day=") for name in names)
    places = [place_of(name + query) for name in names]
    schema = pq.read_schema(places[0].path, filesystem=places[0].system)
    tables = [pq.ParquetFile(place.system.open_input_file(place.path)).read() for place in places]
    stored = pa.concat_tables(table.cast(schema) for table in tables).sort_by("offset").to_pydict()
    del stored["time"]
    assert stored == archive_lakes.columns_of_journal(journal)


def test_a_lake_on_an_object_store_is_not_compacted(tmp_path):
    with pytest.raises(LakeError, match="compaction exchanges folders"):
        archive(None, tmp_path, "s3://bucket/lake?region=x", compact=True)


def test_a_place_without_a_lake_is_said(bucket):
    uri, query = bucket
    with pytest.raises(LakeError, match=f"{uri}/nothing: no lake of oz"):
        lake_files(f"{uri}/nothing{query}")


def test_a_server_that_refuses_is_said(bucket, tmp_path):
    archive_lakes.write_journal(tmp_path / "journal", [archive_lakes.numbered(0, 10)])
    _, query = bucket
    with pytest.raises(oz.JournalError, match="s3a://absent/lake"):
        archive(None, tmp_path / "journal", f"s3a://absent/lake{query}", unsealed=True)
