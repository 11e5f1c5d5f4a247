"""Batches of more than 8,192 records, as sealing makes them: all that reads is right in them."""

import logging
import os
import shutil
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import oz
from oz.journal import Journal, Kind, Writer
from oz.journal.messages import Messages
from oz.journal.ranges import identity_of, read_range
from oz.services.replayer import replay
from support import waiting
from support.large_batches import (
    CUTS,
    END,
    FILES,
    KINDS,
    SIZES,
    STARTS,
    batches_of,
    file_of,
    make,
    record,
    subject,
)

LARGE = STARTS[3]  # the first offset of a batch of 20,000, which is followed by another in its segment
MATCHING = f"s.{KINDS - 1}.*"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make(tmp_path_factory.mktemp("large") / "journal")


@pytest.fixture
def made(whole, tmp_path):
    logging.getLogger("oz.journal").setLevel(logging.CRITICAL)
    yield shutil.copytree(whole, tmp_path / "journal")
    logging.getLogger("oz.journal").setLevel(logging.NOTSET)


def spans():
    """Pairs of boundaries, each with the three that follow it; and all there is."""
    near = ((CUTS[at], end) for at in range(len(CUTS)) for end in CUTS[at + 1 : at + 4])
    return [*near, (0, END)]


def test_sealing_makes_batches_of_just_these_sizes(whole):
    first = 0
    for sizes in FILES:
        assert tuple(batch.num_rows for batch in batches_of(file_of(whole, first))) == sizes
        first += sum(sizes)


def test_each_record_is_read_once_and_as_it_was(whole):
    assert all(
        found == record(at) for at, found in zip(range(END), Journal(whole).read(gaps=True), strict=True)
    )


def test_a_read_begins_and_ends_at_any_boundary(whole):
    journal = Journal(whole)
    for start, end in spans():
        found = journal.table(start=start, end=end, columns=["offset", "payload"])
        assert found["offset"].to_pylist() == list(range(start, end))
        for at in {start, (start + end) // 2, end - 1}:
            assert found["payload"][at - start].as_py() == b"%d" % at


def test_a_range_is_read_from_and_to_any_boundary(whole):
    for start, end in spans():
        tables = list(read_range(whole, start, end, ["offset", "sequence"]))
        assert all(tables)
        for name in ("offset", "sequence"):
            assert [at for table in tables for at in table[name].to_pylist()] == list(range(start, end))


def test_a_pattern_picks_what_matches_on_both_sides_of_each_boundary(whole):
    journal = Journal(whole)
    for start, end in spans():
        expected = [at for at in range(start, end) if at % KINDS == KINDS - 1]
        assert journal.table(MATCHING, start=start, end=end)["offset"].to_pylist() == expected


def test_a_read_begins_at_a_time_within_a_batch(whole):
    # A datetime has microseconds.
    for at in (STARTS[1], LARGE, LARGE + 9_000, STARTS[4] + 8_192):
        micros = -(-(record(at).time_ns) // 1000)
        since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
        first = at + (micros * 1000 - record(at).time_ns)
        found = Journal(whole).table(start=since, columns=["offset"])["offset"]
        assert (found[0].as_py(), len(found)) == (first, END - first)


def test_a_follower_goes_on_from_any_boundary_into_what_is_appended(made):
    for start in (LARGE + 8_191, LARGE + 8_192, LARGE + 20_000, END - 1):
        with Writer(made, sync="never", seal_on_close=False) as writer:
            end = writer.end_offset
            followed = Journal(made).read(start=start, follow=True, end=end + 1)
            assert next(followed).offset == start
            writer.append([("late", b"")])
            rest = waiting.Thread(lambda reading=followed: [one.offset for one in reading]).outcome()
        assert rest == list(range(start + 1, end + 1))


def test_a_replay_publishes_each_once_and_in_order(whole):
    published = Published()
    stats = replay(Journal(whole), published, start=LARGE - 1, end=LARGE + 20_001, speed=None)
    assert published.found == [(subject(at), b"%d" % at, at) for at in range(LARGE - 1, LARGE + 20_001)]
    assert (stats.published, stats.passed) == (20_002, LARGE + 20_001)


class Published:
    """A publisher that keeps what a replay publishes."""

    def __init__(self):
        self.found = []

    def publish(self, subject, payload, *, headers, **_):
        self.found.append((subject, payload, headers["oz-offset"]))

    def flush(self, *_):
        pass


def test_verify_finds_them_whole_and_counts_all(whole):
    report = Journal(whole).verify()
    assert report.ok
    assert report.records == END


def test_a_flipped_bit_costs_the_batch_that_it_is_in_and_no_other(made):
    path = file_of(made, LARGE)
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1  # within the first of two
    path.write_bytes(content)
    found = []
    with pytest.raises(oz.JournalError, match=f"from offset {LARGE} to {LARGE + 19_999}"):
        found.extend(one.offset for one in Journal(made).read(start=LARGE - 2))
    assert found == [LARGE - 2, LARGE - 1]
    assert [one.offset for one in Journal(made).read(start=LARGE + 20_000, end=LARGE + 20_003)] == list(
        range(LARGE + 20_000, LARGE + 20_003)
    )
    report = Journal(made).verify()
    assert [(one.first_offset, one.records) for one in report.findings] == [(LARGE, 20_000)]
    Journal(made).repair()
    assert Journal(made).verify().ok
    rows = Journal(made).table(gaps=True, columns=["offset", "kind"])
    assert rows["offset"].to_pylist() == list(range(END))
    lost = rows.filter(pc.equal(rows["kind"], int(Kind.DAMAGED)))["offset"]
    assert lost.to_pylist() == list(range(LARGE, LARGE + 20_000))


@pytest.mark.parametrize("row", [1, 8_191, 8_192, 8_193, 16_384, 19_999])
def test_an_offset_that_lies_anywhere_in_a_batch_is_found(made, row):
    """Its checksum is right."""
    batch = batches_of(file_of(made, STARTS[5]))[0]
    offsets = batch.column("offset").to_pylist()
    offsets[row] += 1
    lying = batch.set_column(0, batch.schema.field(0), pa.array(offsets, pa.int64()))
    messages = Messages(identity_of(made), STARTS[5])
    path = file_of(made, STARTS[5])
    path.write_bytes(messages.head + messages.of(lying) + messages.tail())
    with pytest.raises(oz.JournalError, match=f"offsets are not those from {STARTS[5]} to {STARTS[6] - 1}"):
        list(Journal(made).read(start=STARTS[5]))
    assert not Journal(made).verify().ok


def test_an_archive_has_each_record_once(whole, tmp_path):
    import pyarrow.parquet

    Journal(whole).archive(str(tmp_path / "lake"))
    files = sorted((tmp_path / "lake").glob("*.parquet"))
    offsets = [at for one in files for at in pyarrow.parquet.read_table(one)["offset"].to_pylist()]
    assert offsets == list(range(STARTS[-1]))


def test_a_batch_is_looked_at_decoded_and_checked_in_what_was_read_once(whole, monkeypatch):
    """Its size without compression, too, is told by what is in memory, and not by a read for each buffer."""
    reads, read = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *where: reads.append(where) or read(*where))
    list(read_range(whole, 0, STARTS[-1], ["offset"]))
    assert len(SIZES) <= len(reads) < 6 * len(SIZES)
