"""What a reader may rely on after a fault, as far as no other file of tests has it."""

import random
import time

import pytest

from oz.journal import Journal, Kind, Record, Writer
from oz.journal.epochs import history_of
from support.power_loss import Disk

NOON = 1_272_366_400 * 10**9


def rows(first, count, word):
    return [(f"a.{at % 3}", f"{word} {at}".encode()) for at in range(first, first + count)]


def payloads(directory):
    """The payload of each offset; None for a damage record."""
    records = Journal(directory).read(gaps=True)
    return {one.offset: None if one.kind == Kind.DAMAGED else one.payload for one in records}


@pytest.mark.parametrize("sync", ["never", "interval"])
def test_without_syncs_a_power_loss_costs_an_end_and_the_epoch_tells_who_has_read_it(
    tmp_path, monkeypatch, sync
):
    whole = tmp_path / "whole"
    whole.mkdir()
    with monkeypatch.context() as patched:
        disk = Disk(whole, patched)
        with Writer(whole, sync=sync, sync_seconds=1000.0, seal_on_close=False) as writer:
            for first in range(0, 100, 10):
                writer.append(rows(first, 10, "old"))
            appended = len(disk.trace)
        read = payloads(whole)
        epoch = history_of(whole).present.id
    chance = random.Random(3)
    ends = set()
    for number in range(10):
        left = tmp_path / str(number)
        left.mkdir()
        disk.crash(appended, chance, left)
        with Writer(left) as writer:
            ends.add(writer.end_offset)
            kept = writer.end_offset
            writer.append(rows(kept, 100, "new"))
        agreed = history_of(left).agreed(epoch, 100) or 0
        now = payloads(left)
        assert agreed == kept
        assert all(now[at] in (read[at], None) for at in range(agreed))
        assert list(now) == list(range(kept + 100))
    assert len(ends) > 1


def test_a_reader_that_was_killed_goes_on_at_the_offset_that_it_noted(tmp_path):
    with Writer(tmp_path, segment_bytes=1) as writer:
        for first in range(0, 50, 10):
            writer.append(rows(first, 10, "old"))
    for noted in range(0, 51, 7):
        found = [record.offset for record in Journal(tmp_path).read(start=noted)]
        assert found == list(range(noted, 50))


def test_a_reader_that_retention_overtook_sees_by_the_offsets_what_it_missed(tmp_path):
    with Writer(tmp_path, segment_bytes=1, retain_bytes=1) as writer:
        for first in range(0, 50, 10):
            writer.append(rows(first, 10, "old"))
    with Writer(tmp_path, segment_bytes=1, retain_bytes=1) as writer:
        writer.append(rows(50, 10, "old"))
    journal = Journal(tmp_path)
    assert journal.first_offset > 5
    assert next(journal.read(start=5)).offset == journal.first_offset


def test_a_clock_that_is_set_back_changes_neither_order_nor_offsets(tmp_path):
    now = time.time_ns()
    with Writer(tmp_path, segment_bytes=1) as writer:
        writer.append([Record("a", b"0", time_ns=now)])
        writer.append([Record("a", b"1", time_ns=now - 3600 * 10**9)])
        writer.append([Record("a", b"2", time_ns=now + 1)])
    assert payloads(tmp_path) == {0: b"0", 1: b"1", 2: b"2"}
    assert Journal(tmp_path).verify().ok


@pytest.mark.parametrize("befalls", ["removed", "emptied"])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_damage_record_has_the_time_of_its_neighbour(tmp_path, befalls, at, is_sealed):
    # A clock of years ago: whatever has the time of the repair is later than all of it.
    with Writer(tmp_path, segment_bytes=1, seal_on_close=is_sealed) as writer:
        for number in range(3):
            writer.append([Record("md.x", b"1", NOON + number), Record("md.y", b"2", NOON + number)])
    path = sorted(tmp_path.glob("*.arrow*"))[at]
    if befalls == "removed":
        path.unlink()
    else:
        path.write_bytes(b"\0" * path.stat().st_size)
    Journal(tmp_path).repair()
    records = list(Journal(tmp_path).read(gaps=True))
    assert [record.kind for record in records if record.offset // 2 == at] == [Kind.DAMAGED] * 2
    assert {record.time_ns for record in records if record.offset // 2 == at} <= {
        NOON + other for other in range(3) if abs(other - at) == 1
    }
