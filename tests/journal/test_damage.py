"""Flipped bits, cut files, overwritten ranges: readers return no wrong bytes, verify names the range."""

import os
import random

import pytest

from oz.journal import Journal, Writer
from support.journals import (
    acknowledged,
    active,
    batches_of,
    flip,
    lost_by,
    overwrite,
    ranges_of,
    read_or_error,
    rows_of,
    sealed,
)
from support.sizes import size

SIZES = (30, 1, 20, 50, 9)


def bits_of(path, chance, *, first=0, end=None):
    """Return random bits of a file; in the heavy form all, if there are not too many."""
    bits = range(8 * first, 8 * (path.stat().st_size if end is None else end))
    return sorted(chance.sample(bits, min(len(bits), size(60, 5000))))


@pytest.mark.sized
@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", ["active", "sealed"])
def test_each_flipped_bit_is_found_and_no_reader_returns_wrong_bytes(written, form):
    directory, rows = written(*SIZES, seal=form == "sealed")
    path = active(directory) if form == "active" else sealed(directory)[0]
    unfound = []
    for bit in bits_of(path, random.Random(1)):
        flip(path, bit)
        got, error = read_or_error(directory)
        assert got.items() <= rows.items(), f"bit {bit} gives wrong bytes"
        assert error is not None or got == rows, f"bit {bit} hides records"
        if error is not None:
            assert path.name in str(error)
        if Journal(directory).verify().ok:
            unfound.append(bit)
        flip(path, bit)
    assert Journal(directory).verify().ok
    assert not unfound, f"{len(unfound)} of {8 * path.stat().st_size} bits"


@pytest.mark.sized
def test_a_flipped_bit_of_the_mark_costs_nothing(written):
    directory, rows = written(*SIZES)
    path = directory / "acknowledged"
    for bit in bits_of(path, random.Random(2)):
        flip(path, bit)
        got, error = read_or_error(directory)
        assert got.items() <= rows.items()
        assert error is not None or got == rows, f"bit {bit} of the mark hides records"
        assert not Journal(directory).verify().ok, f"bit {bit} is not found"
        flip(path, bit)


@pytest.mark.parametrize("seed", range(size(6, 100)))
def test_a_cut_or_overwritten_stream_loses_exactly_what_verify_and_the_next_writer_report(written, seed):
    directory, rows = written(*SIZES)
    chance = random.Random(seed)
    path = active(directory)
    batches = batches_of(path)
    assert [(first, end) for *_, first, end in batches] == [
        (0, 30),
        (30, 31),
        (31, 51),
        (51, 101),
        (101, 110),
    ]
    end_byte = acknowledged(directory)[2]
    place = chance.randrange(batches[0][0], end_byte)
    if seed % 2:
        os.truncate(path, place)
        damaged = [batch for batch in batches if batch[1] > place]
    else:
        count = chance.randrange(1, end_byte - place + 1)
        overwrite(path, place, bytes(byte ^ 0xFF for byte in path.read_bytes()[place : place + count]))
        damaged = [batch for batch in batches if batch[0] < place + count and batch[1] > place]
    lost = {at for *_, first, end in damaged for at in range(first, end)}
    got, error = read_or_error(directory)
    assert got.items() <= rows.items()
    assert error is not None
    assert path.name in str(error)
    report = Journal(directory).verify()
    assert ranges_of(lost_by(report.findings)) == ranges_of(lost)
    with Writer(directory) as writer:
        assert ranges_of(lost_by(writer.findings)) == ranges_of(lost)
        assert writer.end_offset == len(rows), "the offsets of lost records are not given again"
        writer.append([("next", b"")])
    kept = {at: row for at, row in rows.items() if at not in lost}
    assert rows_of(directory, start=0) == ({**kept, len(rows): ("next", b"")}, lost)


@pytest.mark.parametrize("seed", range(size(2, 60)))
def test_repair_keeps_each_intact_record_at_its_offset(written, seed):
    directory, rows = written(*SIZES, 9_000, seal=True, segment_bytes=1 << 24)
    chance = random.Random(seed)
    path = sealed(directory)[0]
    flip(path, chance.randrange(8 * path.stat().st_size))
    before = Journal(directory).verify()
    assert not before.ok
    repaired = Journal(directory).repair()
    assert lost_by(repaired.findings) == lost_by(before.findings)
    got, gaps = rows_of(directory)
    assert got.items() <= rows.items()
    assert gaps == rows.keys() - got.keys()
    assert gaps <= lost_by(before.findings)
    assert Journal(directory).verify().ok
    assert list(directory.glob("*.damaged"))


def test_a_missing_sealed_file_is_a_gap_and_its_neighbours_are_read(written):
    directory, rows = written(*[20] * 12, seal=True, segment_bytes=4000)
    files = sealed(directory)
    assert len(files) > 3
    first, end = (int(part) for part in files[1].name.split("-")[:2])
    files[1].unlink()
    got, gaps = rows_of(directory)
    assert gaps == set(range(first, end))
    assert got == {at: row for at, row in rows.items() if at not in gaps}
    assert lost_by(Journal(directory).verify().findings) == gaps
