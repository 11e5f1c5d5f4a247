"""Names in a lake, its manifest, its lock, and the steps in which a journal is archived; without Spark."""

import json
import os

import pytest

from spark import archive_lakes

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from hypothesis import given
from hypothesis import strategies as st

from oz.errors import LakeError
from oz.journal import Journal
from oz.spark import LakeLayout, lake_files
from oz.spark.jobs.archive import JournalRange, identity_of, range_of
from oz.spark.jobs.archiving import manifest as manifests
from oz.spark.jobs.archiving.exchange import exchange, try_exchange
from oz.spark.jobs.archiving.lake import LakeLock, opened
from oz.spark.jobs.archiving.layout import GAPS, OTHER, file_name, folder_of_token, local_path
from oz.spark.jobs.archiving.layout import range_of as range_of_name
from oz.spark.jobs.archiving.manifest import LakeManifest, Move, Swap

LAYOUT = LakeLayout()


@pytest.mark.parametrize(
    ("token", "folder"),
    [
        ("flight", "flight"),
        ("_INBOX", "_INBOX"),
        ("2026-03", "2026-03"),
        ("", "@"),
        ("a/b", "a@2fb"),
        ("a=b", "a@3db"),
        ("é", "@c3@a9"),
        ("@gaps", "@40gaps"),
        ("\0", "@00"),
        ("__HIVE_DEFAULT_PARTITION__", "@5f_HIVE_DEFAULT_PARTITION__"),
        ("x" * 100, "x" * 100),
        ("x" * 101, None),
        ("é" * 17, None),
    ],
)
def test_a_token_names_a_folder(token, folder):
    assert folder_of_token(token) == folder


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.text("@a2f/=é_", max_size=6))
def test_the_names_of_folders_are_plain_and_tell_tokens_apart(one, other):
    first, second = folder_of_token(one), folder_of_token(other)
    for name in (first, second):
        assert (
            name is None
            or (name.isascii() and name.replace("@", "").replace("_", "").replace("-", "") + "x").isalnum()
        )
        assert name not in (GAPS, OTHER)
    assert (first == second) == (one == other) or None in (first, second)


def test_a_file_is_named_by_its_offsets():
    assert file_name(5, 10, 3) == "00000000000000000005-00000000000000000010-00003.parquet"
    for name in (file_name(5, 10, 3), file_name(5, 10, 0, generation=12)):
        assert range_of_name(name) == (5, 10)
    assert range_of_name("part-0.parquet") is None


@pytest.mark.parametrize(
    "wrong", [{"separator": ""}, {"most_tokens": -1}, {"file_bytes": 0}, {"step_rows": 0}]
)
def test_a_layout_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LakeLayout(**wrong)


@pytest.mark.parametrize("address", ["s3://bucket/staging", "hdfs://host/staging"])
def test_files_do_not_wait_on_an_object_store(address):
    with pytest.raises(LakeError, match="files wait on a file system"):
        local_path(address)


def test_an_address_of_a_file_is_a_path(tmp_path):
    assert local_path(f"file://{tmp_path}") == tmp_path


@pytest.mark.parametrize(
    "pending",
    [
        None,
        Move("../x.staging/oz-1", [["a", "b"]], 7, [[1, 2]], "9fac"),
        Swap("../x.staging/oz-1", [["a", "b"]]),
    ],
)
def test_a_manifest_is_read_as_it_was_saved(tmp_path, pending):
    (tmp_path / "_oz").mkdir()
    made = LakeManifest("id", ".", 1, 5, [[2, 3]], ["", "é", "\ufffd"], 3, pending)
    made.save(tmp_path)
    assert manifests.load(tmp_path) == made


@pytest.mark.parametrize(
    "change", [lambda data: data[:-20], lambda data: data.replace(b'"id"', b'"ib"'), lambda _: b""]
)
def test_a_damaged_manifest_is_an_error_and_never_a_new_lake(tmp_path, change):
    (tmp_path / "_oz").mkdir()
    LakeManifest("id", ".", 1, 5).save(tmp_path)
    path = tmp_path / "_oz" / "lake.json"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(LakeError, match=r"lake\.json: damaged"), opened(tmp_path, None, "id", 0, LAYOUT):
        pass
    with pytest.raises(LakeError, match="damaged"):
        lake_files(tmp_path)


def test_a_manifest_of_a_newer_version_is_refused(tmp_path):
    (tmp_path / "_oz").mkdir()
    (tmp_path / "_oz" / "lake.json").write_text(json.dumps({"format": "oz.lake", "version": 2, "crc32": "?"}))
    with pytest.raises(LakeError, match="of version 2"):
        manifests.load(tmp_path)


def test_one_archiver_at_a_time(tmp_path):
    path = tmp_path / "lake" / "_oz" / "lock"
    path.parent.mkdir(parents=True)
    with LakeLock(path), pytest.raises(LakeError, match=f"process {os.getpid()}"):
        LakeLock(path)
    LakeLock(path).release()


def test_a_directory_that_is_no_lake_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with (
        pytest.raises(LakeError, match=r"'notes\.txt' and no manifest"),
        opened(tmp_path, None, "id", 0, LAYOUT),
    ):
        pass
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_the_lake_of_another_journal_or_separator_is_refused(tmp_path):
    with opened(tmp_path / "lake", None, "one", 0, LAYOUT):
        pass
    with (
        pytest.raises(LakeError, match="the lake of another journal, one"),
        opened(tmp_path / "lake", None, "two", 0, LAYOUT),
    ):
        pass
    with (
        pytest.raises(LakeError, match="separated by"),
        opened(tmp_path / "lake", None, "one", 0, LakeLayout(separator="/")),
    ):
        pass


def test_staging_on_another_file_system_is_refused(tmp_path, monkeypatch):
    other = tmp_path / "other"
    real = os.stat

    def stat(path, *arguments, **options):
        found = real(path, *arguments, **options)
        return (
            os.stat_result((*found[:2], found.st_dev + 1, *found[3:]))
            if os.fspath(path) == str(other)
            else found
        )

    monkeypatch.setattr(os, "stat", stat)
    with (
        pytest.raises(LakeError, match="on another file system"),
        opened(tmp_path / "lake", other, "id", 0, LAYOUT),
    ):
        pass


def test_what_killed_runs_left_is_removed_and_nothing_else(tmp_path):
    staging = tmp_path / "lake.staging"
    left = staging / ("oz-" + "0" * 32)
    (left / "_temporary").mkdir(parents=True)
    (staging / "mine").mkdir()
    with opened(tmp_path / "lake", None, "id", 0, LAYOUT):
        assert [path.name for path in staging.iterdir()] == ["mine"]


def test_two_directories_change_places(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    exchange(tmp_path / "one", tmp_path / "other")
    assert os.listdir(tmp_path / "one") == ["other"]
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "one", tmp_path / "gone")
    try_exchange(tmp_path / "try")
    assert not (tmp_path / "try").exists()


def test_a_file_system_without_exchange_is_an_error_that_says_so(tmp_path, monkeypatch):
    class Library:
        pass

    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: Library())
    with pytest.raises(LakeError, match="cannot exchange two directories at once"):
        try_exchange(tmp_path / "try")
    assert not (tmp_path / "try").exists()


def test_only_sealed_segments_are_taken_unless_all_are_asked_for(tmp_path):
    batches = [archive_lakes.numbered(at, at + 100) for at in range(0, 500, 100)]
    archive_lakes.write_journal(tmp_path, batches, segment_bytes=1)
    growing = max(int(path.stem) for path in tmp_path.glob("*.arrows"))
    found = range_of(tmp_path, unsealed=False)
    assert (found.first_offset, found.end_offset, found.unsealed) == (0, growing, 500 - growing)
    assert range_of(tmp_path, unsealed=True).end_offset == 500


def test_the_id_of_a_journal_is_found_without_its_manifest(tmp_path):
    archive_lakes.write_journal(tmp_path, [archive_lakes.numbered(0, 10)])
    before = identity_of(tmp_path)
    (tmp_path / "manifest.json").unlink()
    assert identity_of(tmp_path) == before
    assert Journal(tmp_path).end_offset == 10


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), min_size=1, max_size=8),
    st.integers(1, 60),
    st.integers(1, 2000),
)
def test_steps_cover_everything_once_and_are_bounded(segments, step_rows, step_bytes):
    bases, at = [], 0
    for rows, size in segments:
        bases.append((at, size))
        at += rows
    present = JournalRange(0, at, 0, tuple(bases))
    layout = LakeLayout(step_rows=step_rows, step_bytes=step_bytes)
    start = 0
    while start < at:
        end = present.step(start, layout)
        assert start < end <= min(at, start + step_rows)
        inside = sum(
            size * max(0, min(end, base + rows) - max(start, base)) / rows
            for (base, size), (rows, _) in zip(bases, segments, strict=True)
        )
        assert inside <= step_bytes + 1e-6 or end == start + 1
        start = end
