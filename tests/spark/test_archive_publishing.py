"""Becoming visible, without Spark: pyarrow makes the files, and whoever publishes them is killed."""

import os
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from oz.errors import LakeError
from oz.spark import lake_files
from oz.spark.jobs.archiving import compaction, manifest, publishing
from oz.spark.jobs.archiving.lake import opened
from oz.spark.jobs.archiving.manifest import LakeManifest
from oz.spark.jobs.archiving.staging import staged_files
from spark import archive_crashing as crashing
from spark import archive_lakes
from support import scripts
from support.sizes import size

ROUNDS = size(10, 400)


@pytest.mark.sized
@pytest.mark.timeout(600 + 10 * ROUNDS)
def test_whoever_publishes_is_killed_and_no_reader_sees_a_record_twice_or_lost(tmp_path):
    seed = os.environ.get("OZ_SEED", "1")
    with scripts.started(Path(crashing.__file__), tmp_path, ROUNDS, seed) as process:
        out, err = process.communicate(timeout=580 + 10 * ROUNDS)
    assert process.returncode == 0, err
    killed = int(out.split()[1])
    assert killed >= ROUNDS // 2, out


@pytest.fixture
def lake(tmp_path):
    with opened(tmp_path / "lake", None, "id", 0, crashing.LAYOUT) as lake:
        yield lake


def publish(lake, first, end, folder="day=2026-01-01/first_token=s"):
    staging = lake.staging.new()
    crashing.write(crashing.rows(first, end), staging, folder)
    then = LakeManifest("id", ".", 0, end)
    return publishing.publish(lake.directory, lake.manifest, staging, staged_files(staging), then)


def test_a_step_that_was_decided_is_finished_by_the_next_run(lake, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(publishing, "finish", lambda *_: None)
        [path] = publish(lake, 0, 10)
    assert not path.exists()
    known = manifest.load(lake.directory)
    assert (known.end_offset, known.pending.end_offset) == (0, 10)
    publishing.finish(lake.directory, known)
    archive_lakes.assert_each_once(lake.directory, 10)
    assert manifest.load(lake.directory).end_offset == 10


def test_what_is_decided_survives_a_lake_that_is_moved(lake, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(publishing, "finish", lambda *_: None)
        publish(lake, 0, 10)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("lake", "lake.staging"):
        os.rename(tmp_path / name, elsewhere / name)
    publishing.finish(elsewhere / "lake", manifest.load(elsewhere / "lake"))
    archive_lakes.assert_each_once(elsewhere / "lake", 10)


def test_a_staged_file_that_is_gone_is_an_error(lake, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(publishing, "finish", lambda *_: None)
        publish(lake, 0, 10)
    lake.staging.clear()
    with pytest.raises(LakeError, match="gone, and not in"):
        publishing.finish(lake.directory, manifest.load(lake.directory))


def test_a_file_that_the_manifest_does_not_know_is_never_replaced(lake):
    [path] = publish(lake, 0, 10)
    before = path.read_bytes()
    lake.manifest.end_offset = 0
    with pytest.raises(LakeError, match="the manifest does not know it"):
        publish(lake, 0, 10)
    assert path.read_bytes() == before


def test_only_files_of_finished_steps_are_listed(lake, monkeypatch):
    [first] = publish(lake, 0, 10)
    with monkeypatch.context() as patched:
        patched.setattr(publishing, "finish", lambda *_: None)
        [second] = publish(lake, 10, 20)
    pending = lake.manifest.pending
    os.rename(lake.directory / pending.staging / pending.files[0][0], second)  # and then it is killed
    assert lake_files(lake.directory) == [str(first)]
    publishing.finish(lake.directory, manifest.load(lake.directory))
    assert lake_files(lake.directory) == [str(first), str(second)]


def test_what_is_no_lake_has_no_files(tmp_path):
    with pytest.raises(LakeError, match="no lake of oz"):
        lake_files(tmp_path)


@pytest.fixture
def compacting(monkeypatch):
    monkeypatch.setattr(compaction, "_write", crashing.merged_by_arrow)
    return lambda lake: list(compaction.compact(None, lake))


def test_small_files_are_merged_and_everything_else_is_kept(lake, compacting):
    for at in range(0, 50, 10):
        publish(lake, at, at + 10)
    folder = lake.directory / "day=2026-01-01/first_token=s"
    large = folder / "theirs.parquet"
    large.write_bytes(b"x" * 30_000)
    assert compacting(lake) == [(5, 1)]
    assert large.read_bytes() == b"x" * 30_000
    large.unlink()
    assert [path.name for path in folder.iterdir()] == [
        "00000000000000000000-00000000000000000050-00000-c1.parquet"
    ]
    archive_lakes.assert_each_once(lake.directory, 50)
    assert compacting(lake) == []


def test_a_compaction_that_would_lose_records_changes_nothing(lake, monkeypatch):
    for at in (0, 10):
        publish(lake, at, at + 10)
    before = archive_lakes.files(lake.directory)
    monkeypatch.setattr(
        compaction,
        "_write",
        lambda _s, _l, batch, to: crashing.write(crashing.rows(0, 19), to, batch[0].folder),
    )
    with pytest.raises(LakeError, match="20 records became 19; nothing was changed"):
        list(compaction.compact(None, lake))
    assert archive_lakes.files(lake.directory) == before
    assert manifest.load(lake.directory).pending is None


def test_an_exchange_is_not_done_twice(lake, compacting, monkeypatch):
    for at in (0, 10):
        publish(lake, at, at + 10)
    calls = []
    real = publishing.exchange
    monkeypatch.setattr(publishing, "exchange", lambda *paths: (calls.append(paths), real(*paths)))
    with monkeypatch.context() as patched:
        patched.setattr(publishing, "sync_directory", lambda _: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            compacting(lake)
    known = manifest.load(lake.directory)
    assert known.pending is not None
    publishing.finish(lake.directory, known)
    assert len(calls) == 1
    archive_lakes.assert_each_once(lake.directory, 20)
    assert len(archive_lakes.files(lake.directory)) == 1
