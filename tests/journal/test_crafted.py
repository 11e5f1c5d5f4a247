"""Crafted files: they do not crash a reader. Files of another form are errors."""

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from journal.crafting import bomb, sealed_file, stamped, stream_file, table_of
from oz.journal import Journal, JournalError, Writer
from support import scripts
from support.journals import active, read_or_error, rows_of, sealed
from support.sizes import size

TEN = {at: (f"a.{at}", b"%d" % at) for at in range(10)}
SEGMENT = "2" * 16


def test_the_crafting_itself_makes_files_that_are_read(tmp_path):
    sealed_file(tmp_path, table_of(10))
    assert rows_of(tmp_path) == (TEN, set())
    assert Journal(tmp_path).verify().ok


def test_a_crafted_stream_is_read(tmp_path):
    stream_file(tmp_path, stamped(table_of(10).to_batches()[0], SEGMENT), end=10)
    assert rows_of(tmp_path) == (TEN, set())
    assert Journal(tmp_path).verify().ok


def drop(name):
    return table_of(10).drop_columns([name])


WRONG_SEALED = {
    "another first offset in the metadata": (table_of(10), {"metadata": {"oz.first": 3}}),
    "a version of the future": (table_of(10), {"metadata": {"oz.version": 2}}),
    "malformed times": (table_of(10), {"metadata": {"oz.times": "x"}}),
    "malformed gaps": (table_of(10), {"metadata": {"oz.gaps": "-"}}),
    "a subject list that is no JSON": (table_of(10), {"metadata": {"oz.subjects": "["}}),
    "a column too few": (drop("lost"), {}),
    "no payload": (drop("payload"), {}),
    "a column too many": (table_of(10).append_column("more", pa.array(range(10))), {}),
    "payloads that are text": (table_of(10).set_column(4, "payload", pa.array(["x"] * 10)), {}),
    "offsets of 32 bits": (table_of(10).set_column(0, "offset", pa.array(range(10), pa.int32())), {}),
    "no rows": (table_of(0), {"end": 10}),
    "no statistics": (table_of(10), {"write_statistics": False}),
}


@pytest.mark.parametrize("name", WRONG_SEALED)
def test_a_crafted_sealed_file_is_an_error_with_its_name(tmp_path, name):
    table, options = WRONG_SEALED[name]
    path = sealed_file(tmp_path, table, **options)
    rows, error = read_or_error(tmp_path)
    assert path.name in str(error)
    assert rows == {}
    found = Journal(tmp_path).verify().findings
    assert [item.file for item in found] == [path.name]


def batch_of(**columns):
    return table_of(10, **columns).to_batches()[0]


def with_lengths(ends):
    """Return a message whose payload column has other ends of its values than 0 to 10."""
    before, after = (
        b"".join(item.to_bytes(4, "little", signed=True) for item in some) for some in (range(11), ends)
    )
    return stamped(batch_of(), SEGMENT, patch=(before, after))


WRONG_STREAMS = {
    "the checksum of another segment": lambda: stamped(batch_of(), "3" * 16),
    "payloads beyond their buffer": lambda: with_lengths([*range(10), 1 << 30]),
    "payloads of negative length": lambda: with_lengths([0, 9, -5, 3, 4, 5, 6, 7, 8, 9, 10]),
    "no UTF-8 in subjects": lambda: stamped(
        batch_of(subject=pa.array([b"\xff"] * 10, pa.binary()).view(pa.string())), SEGMENT
    ),
}


@pytest.mark.parametrize("name", WRONG_STREAMS)
def test_a_crafted_batch_is_an_error_with_its_file(tmp_path, name):
    path = stream_file(tmp_path, WRONG_STREAMS[name](), end=10)
    with pytest.raises(JournalError, match=path.name):
        rows_of(tmp_path)
    assert not Journal(tmp_path).verify().ok
    with Writer(tmp_path) as writer:
        assert writer.end_offset >= 10
        assert writer.findings


@pytest.mark.parametrize("form", ["sealed", "stream"])
def test_a_bomb_ends_in_an_error_or_is_read_in_little_memory(tmp_path, form):
    path = bomb(tmp_path, form)
    assert path.stat().st_size < 1 << 21
    crafting = Path(__file__).with_name("crafting.py")
    outcomes = json.loads(scripts.run(crafting, tmp_path, 3 << 30, timeout=100))
    assert path.name in str(outcomes["read"]) or outcomes["read"] in (1, "MemoryError")


@pytest.mark.sized
@pytest.mark.timeout(900)
def test_flipped_footers_with_right_checksums_do_not_crash(tmp_path):
    crafting = Path(__file__).with_name("crafting.py")
    outcomes = json.loads(scripts.run(crafting, "footers", tmp_path, size(40, 5000), 1, timeout=800))
    # 0 is read, 1 is a JournalError, 2 another error; a negative number is a signal.
    assert set(outcomes) <= {"0", "1"}, outcomes


@pytest.mark.parametrize("kind", ["directory", "pipe", "link", "empty", "device"])
@pytest.mark.parametrize("form", ["sealed", "active"])
@pytest.mark.timeout(60)
def test_what_is_no_file_of_a_journal_is_an_error_and_never_waited_for(written, tmp_path, kind, form):
    directory, _ = written(10, 10, seal=form == "sealed")
    path = sealed(directory)[0] if form == "sealed" else active(directory)
    copy = shutil.move(path, tmp_path / "elsewhere")
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(copy)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
    with pytest.raises(JournalError, match=path.name):
        rows_of(directory)
    assert not Journal(directory).verify().ok


def test_swapped_segments_are_an_error(written):
    directory, _ = written(*[10] * 8, seal=True, segment_bytes=2000)
    first, second = sealed(directory)[:2]
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    with pytest.raises(JournalError, match=first.name):
        rows_of(directory)
    assert len(Journal(directory).verify().findings) >= 2


def test_a_file_of_another_journal_does_not_pass_for_records_of_this_one(written, tmp_path):
    directory, rows = written(10, 10, seal=True)
    with Writer(tmp_path / "other") as writer:
        writer.append([("stranger", b"")] * 20)
        writer.append([("stranger", b"")] * 5)
    [foreign] = sealed(tmp_path / "other")
    shutil.copy(foreign, directory)
    found, error = read_or_error(directory)
    assert error is not None or found == rows
    assert found.items() <= rows.items()
    assert not Journal(directory).verify().ok
