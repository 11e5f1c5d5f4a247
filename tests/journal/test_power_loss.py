"""A power loss at any step: what was not synced is on the disk in part, and in any order.

The suite loses power 40 times; `OZ_SOAK=1` does so 1,220 times.
"""

import errno
import itertools
import os
import random
import shutil

import pytest

from oz.journal import Journal, Kind, Writer
from oz.journal.ranges import RangeGone, read_range
from support.power_loss import Disk
from support.sizes import SOAK, in_suite, size

LOSSES = size(8, 1220)
PER_JOURNAL = 20
SMALL = 3000  # bytes a segment


def content(at):
    return f"a.{at % 90}", b"%d" % at * 20


def contents(records):
    return [(record.offset, record.subject, record.payload) for record in records]


def written(directory, disk, chance):
    """Append with retention, in two lives of a writer; what was acknowledged is in the trace."""
    for keep in (chance.choice([8000, 20_000]), 5000):
        with Writer(directory, segment_bytes=SMALL, retain_bytes=keep) as writer:
            for _ in range(20):
                rows = chance.choice([5, 20])
                writer.append([content(writer.end_offset + at) for at in range(rows)])
                disk.note(end=writer.end_offset)


@pytest.mark.sized
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(-(-LOSSES // PER_JOURNAL)))
def test_a_journal_opens_after_a_power_loss_at_any_step(tmp_path, monkeypatch, part):
    chance = random.Random(os.urandom(8) if SOAK else part)
    with monkeypatch.context() as patched:
        whole = tmp_path / "whole"
        whole.mkdir()
        disk = Disk(whole, patched)
        written(whole, disk, chance)
    kinds = [step[0] for step in disk.trace]
    within = [at for at in range(2, len(kinds)) if kinds[at - 2 : at] == ["unlink"] * 2]
    for number in range(min(PER_JOURNAL, LOSSES - part * PER_JOURNAL)):
        directory = tmp_path / str(number)
        directory.mkdir()
        at = chance.choice([chance.randrange(len(disk.trace)), chance.choice(within)])
        acknowledged = disk.crash(at, chance, directory).get("end", 0)
        check(directory, acknowledged)
        shutil.rmtree(directory)


def check(directory, acknowledged):
    before = contents(Journal(directory).read(gaps=True)) if acknowledged else []
    with Writer(directory) as writer:
        end = writer.end_offset
    assert end >= acknowledged
    journal = Journal(directory)
    expected = [(at, *content(at)) for at in range(journal.first_offset, end)]
    assert contents(journal.read(gaps=True)) == expected
    assert before == [one for one in expected if one[0] >= min(before)[0]][: len(before)] if before else True
    assert journal.verify().ok, journal.verify().findings


def refuse_most_manifests(patched, chance):
    """Have a disk that is too full for most of them."""
    real = os.open

    def call(path, flags, *mode):
        if str(path).endswith("manifest.json.tmp") and chance.random() < 0.8:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, flags, *mode)

    patched.setattr(os, "open", call)


@pytest.mark.sized
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(size(1, 20)))
def test_a_journal_opens_after_a_power_loss_while_a_full_disk_took_no_note(tmp_path, monkeypatch, part):
    chance = random.Random(os.urandom(8) if SOAK else part)
    with monkeypatch.context() as patched:
        whole = tmp_path / "whole"
        whole.mkdir()
        refuse_most_manifests(patched, chance)
        disk = Disk(whole, patched)
        written(whole, disk, chance)
    removed = [at for at, step in enumerate(disk.trace) if step[0] == "unlink" and step[1].endswith(".arrow")]
    for number in range(PER_JOURNAL):
        directory = tmp_path / str(number)
        directory.mkdir()
        last = chance.choice(removed)
        acknowledged = disk.crash(last + 1, chance, directory).get("end", 0)
        with Writer(directory) as writer:
            assert writer.end_offset >= acknowledged
            end = writer.end_offset
        records = list(Journal(directory).read(gaps=True))
        assert [record.offset for record in records] == list(range(Journal(directory).first_offset, end))
        bases = (
            int(step[1][:20]) for step in disk.trace[: last + 1] if step[0] == "name" and step[1][0] == "0"
        )
        # In its second life the writer may have filled the place of what it had removed in its first.
        gone = max(int(disk.trace[at][1][:20]) for at in removed if at <= last)
        kept = min(base for base in bases if base > gone)
        for record in records:
            assert contents([record]) == [(record.offset, *content(record.offset))] or record.offset < kept
            assert record.kind in (Kind.MESSAGE, Kind.DAMAGED)
        assert Journal(directory).verify().ok, Journal(directory).verify().findings


HOLES = [each for count in (1, 2, 3) for each in itertools.combinations(range(0, 50, 10), count)]


@pytest.mark.parametrize("manifest", ["old", "none"])
def test_a_writer_fills_the_holes_that_an_old_manifest_does_not_know(tmp_path, manifest):
    whole = tmp_path / "whole"
    for first in range(0, 50, 10):
        with Writer(whole) as writer:
            writer.append([content(at) for at in range(first, first + 10)])
        if first == 10:
            shutil.copy(whole / "manifest.json", tmp_path)
    for holes in HOLES:
        directory = tmp_path / "-".join(map(str, holes))
        shutil.copytree(whole, directory)
        shutil.copy(tmp_path / "manifest.json", directory)
        if manifest == "none":
            (directory / "manifest.json").unlink()
        for base in holes:
            (directory / f"{base:020d}.arrow").unlink()
        Writer(directory).close()
        records = list(Journal(directory).read(gaps=True))
        assert [record.offset for record in records] == list(range(records[0].offset, 50))
        assert contents(record for record in records if record.is_message) == [
            (at, *content(at)) for at in range(50) if at - at % 10 not in holes
        ]
        assert Journal(directory).verify().ok, holes


@pytest.fixture
def removed(tmp_path):
    """A journal from which retention has removed segments, and those, which a power loss may bring back."""
    directory, aside = tmp_path / "journal", tmp_path / "aside"
    with Writer(directory, segment_bytes=1) as writer:
        for first in range(0, 50, 10):
            writer.append([content(at) for at in range(first, first + 10)])
    shutil.copytree(directory, aside)
    sizes = sum(path.stat().st_size for path in sorted(directory.glob("*.arrow"))[3:])
    with Writer(directory, segment_bytes=1, retain_bytes=sizes + 5000) as writer:
        writer.append([content(50)])
    gone = sorted({path.name for path in aside.glob("*.arrow")} - set(os.listdir(directory)))
    assert len(gone) >= 3
    return directory, aside, gone


BACK = in_suite([(0,), (1, 2), (0, 1, 2)], [(one,) for one in ((), (1,), (2,), (0, 1), (0, 2))])


@pytest.mark.parametrize("back", BACK, ids=str)
def test_removed_segments_that_come_back_in_part_do_not_keep_a_journal_from_opening(removed, back):
    directory, aside, gone = removed
    for at in back:
        shutil.copy(aside / gone[at - 3], directory)
    kept = 10 * len(gone)
    # Those that lead to what is kept without a hole count again.
    run = next(number for number in range(4) if 2 - number not in back)
    first = kept - 10 * run
    expected = [(at, *content(at)) for at in range(first, 51)]
    journal = Journal(directory)
    for _ in range(2):
        assert journal.first_offset == first
        assert contents(journal.read(gaps=True)) == expected
        assert contents(itertools.islice(journal.read(follow=True), len(expected))) == expected
        assert sum(table.num_rows for table in read_range(directory, first, 51)) == len(expected)
        if first:
            with pytest.raises(RangeGone):
                list(read_range(directory, first - 1, 51))
        Writer(directory).close()
        assert [name for name in gone if (directory / name).exists()] == gone[len(gone) - run :]
    assert journal.verify().ok


def test_verify_finds_nothing_in_a_removed_segment_that_is_there(removed):
    # It looks no other while a writer's retention is removing files, one after the other.
    directory, aside, gone = removed
    shutil.copy(aside / gone[-2], directory)
    assert Journal(directory).verify().ok
    assert (directory / gone[-2]).exists()
    Journal(directory).repair()
    assert not (directory / gone[-2]).exists()
    assert Journal(directory).verify().ok
