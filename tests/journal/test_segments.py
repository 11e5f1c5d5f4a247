"""Rotation, retention, the writer's lock, and when things are durable."""

import errno
import itertools
import math
import os
import signal
import subprocess
import time

import pyarrow.dataset
import pytest

import oz
from oz.journal import Journal, Record, Writer
from support import scripts, waiting
from support.inside import segments_of

pytestmark = pytest.mark.timeout(180)


def names(directory, pattern="*.arrow*"):
    return sorted(path.name for path in directory.glob(pattern))


def test_a_new_segment_begins_when_the_present_one_is_large_enough(tmp_path):
    with Writer(tmp_path, segment_bytes=10_000) as writer:
        for _ in range(30):
            writer.append([("a", bytes(1000))])
        settle(writer)
        sizes = [entry.end_offset - entry.first_offset for _, entry in Journal(tmp_path).segments() if entry]
    assert len(sizes) > 3
    assert set(sizes) == {sizes[0]}


def test_a_new_segment_begins_when_the_present_one_is_old_enough(tmp_path):
    with Writer(tmp_path, segment_seconds=0.05) as writer:
        writer.append([Record("a", time_ns=0)])
        waiting.until(lambda: writer.append([("a", b"")]) and len(names(tmp_path)) > 2)
    with Writer(tmp_path, segment_seconds=1000) as writer:
        before = names(tmp_path)
        writer.append([Record("a", time_ns=0)])
        writer.append([Record("a", time_ns=0)])
        assert names(tmp_path) == before, "the age of a segment is not that of its records"


def test_a_segment_ends_at_its_age_when_nothing_more_is_appended(tmp_path):
    with Writer(tmp_path, segment_seconds=0.05) as writer:
        writer.append([("a", b"1")])
        waiting.until(lambda: list(tmp_path.glob("*.arrow")))
        waiting.until(lambda: names(tmp_path) == [f"{0:020d}.arrow", f"{1:020d}.arrows"])
        assert writer.append([("a", b"2")]) == 2
    assert [one.payload for one in Journal(tmp_path).read()] == [b"1", b"2"]
    assert Journal(tmp_path).verify().ok


def test_a_writer_that_is_closed_leaves_nothing_that_other_programs_do_not_see(tmp_path):
    for at in range(3):
        with Writer(tmp_path) as writer:
            writer.append([("a", b"%d" % at)])
    Writer(tmp_path).close()
    assert names(tmp_path) == [*(f"{at:020d}.arrow" for at in range(3)), f"{3:020d}.arrows"]
    assert (
        pyarrow.dataset.dataset(sorted(map(str, tmp_path.glob("*.arrow"))), format="arrow").count_rows() == 3
    )
    assert Journal(tmp_path).verify().ok


def test_retention_keeps_what_a_writer_sealed_when_it_was_closed(tmp_path):
    for _ in range(2):
        with Writer(tmp_path, retain_bytes=1, retain_seconds=0.001) as writer:
            writer.append([Record("a", time_ns=0)])
        assert [one.offset for one in Journal(tmp_path).read()] == [writer.end_offset - 1]


def test_a_full_disk_leaves_the_last_segment_to_the_next_writer(tmp_path, monkeypatch, caplog):
    writer = Writer(tmp_path)
    writer.append([("a", b"")])
    with monkeypatch.context() as patched:
        patched.setattr("oz.journal.stream.files.replacing", full)
        writer.close()
    assert "stays a stream" in caplog.text
    assert names(tmp_path) == [f"{0:020d}.arrows"]
    Writer(tmp_path).close()
    assert names(tmp_path) == [f"{0:020d}.arrow", f"{1:020d}.arrows"]


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def settle(writer):
    """Wait until what is finished is sealed and what is too old is gone."""
    segments_of(writer).finish()


def last_stream(directory):
    return max(path.name for path in directory.glob("*.arrows"))


def test_an_append_is_never_split_over_segments(tmp_path):
    with Writer(tmp_path, segment_bytes=100) as writer:
        writer.append([("a", bytes(100))] * 20_000)
        assert len(names(tmp_path)) == 1


def test_the_oldest_segments_go_when_all_together_are_too_large(tmp_path):
    with Writer(tmp_path, segment_bytes=1, retain_bytes=50_000) as writer:
        for _ in range(40):
            writer.append([("a", os.urandom(5000))])
        writer.append([("a", b"")])
        settle(writer)
        total = sum(path.stat().st_size for path in tmp_path.glob("*.arrow*"))
    journal = Journal(tmp_path)
    assert 30_000 < total < 60_000
    assert 30 < journal.first_offset < 37
    assert [record.offset for record in journal.read()] == list(range(journal.first_offset, 41))
    assert next(record.offset for record in journal.read(start=5)) == journal.first_offset
    assert journal.verify().ok


def test_segments_go_when_their_latest_record_is_too_old(tmp_path):
    hour = 3600 * 10**9
    now = time.time_ns()
    with Writer(tmp_path, segment_bytes=1, retain_seconds=3600) as writer:
        for age in (3 * hour, 2 * hour, 0, 5 * hour, 0):
            writer.append([Record("a", time_ns=now - age)])
        writer.append([("b", b"")])
        waiting.until(lambda: writer.append([("b", b"")]) and Journal(tmp_path).first_offset == 2)


def test_the_present_segment_stays_whatever_its_size_and_age(tmp_path):
    with Writer(tmp_path, retain_bytes=1, retain_seconds=0.001) as writer:
        for _ in range(10):
            writer.append([Record("a", time_ns=0)])
    assert Journal(tmp_path).first_offset == 0


def test_a_segment_that_a_reader_holds_stays_and_so_do_all_later_ones(tmp_path):
    with Writer(tmp_path, segment_bytes=1, retain_bytes=1) as writer:
        writer.append([("a", b"")] * 3)
        held = Journal(tmp_path).read(follow=True)
        next(held)
        for at in range(5):
            writer.append([("b", b"%d" % at)])
        settle(writer)
        assert Journal(tmp_path).first_offset == 0
        assert [record.offset for record in itertools.islice(held, 7)] == list(range(1, 8))
        writer.append([("c", b"")])
        settle(writer)
        assert Journal(tmp_path).first_offset == 7, "what the reader has left goes"
        held.close()
        writer.append([("c", b"")])
        writer.append([("c", b"")])
        settle(writer)
        assert Journal(tmp_path).first_offset == 10


def test_a_reader_in_another_process_holds_its_segment_until_it_ends(tmp_path):
    script = (
        "import sys; from oz.journal import Journal\n"
        "records = Journal(sys.argv[1]).read(); next(records); print('holding', flush=True)\n"
        "sys.stdin.readline(); print(len(list(records)), flush=True); sys.stdin.readline()"
    )
    with Writer(tmp_path, segment_bytes=1, retain_bytes=1) as writer:
        for at in range(3):
            writer.append([("b", b"%d" % at)])
        writer.append([("b", b"")])
        settle(writer)
        first = Journal(tmp_path).first_offset
        with scripts.started("-c", script, tmp_path) as reader:
            assert reader.stdout.readline() == "holding\n"
            for at in range(5):
                writer.append([("b", b"%d" % at)])
            settle(writer)
            assert Journal(tmp_path).first_offset == first
            reader.stdin.write("\n")
            reader.stdin.flush()
            assert int(reader.stdout.readline()) == 3 - first
        writer.append([("b", b"")])
        settle(writer)
        assert Journal(tmp_path).first_offset == 9


def test_offsets_go_on_when_retention_has_removed_all_but_an_empty_end(tmp_path):
    with Writer(tmp_path, segment_bytes=1, seal_on_close=False) as writer:
        for _ in range(3):
            writer.append([("a", b"")])
    for name in names(tmp_path)[:-1]:
        (tmp_path / name).unlink()
    with Writer(tmp_path) as writer:
        assert writer.append([("a", b"")]) == 4
    assert [record.offset for record in Journal(tmp_path).read()] == [2, 3]


def test_a_second_writer_is_refused_in_this_process_and_in_another(tmp_path):
    with Writer(tmp_path) as writer:
        writer.append([("a", b"")])
        with pytest.raises(oz.JournalError, match=f"process {os.getpid()}"):
            Writer(tmp_path)
        with pytest.raises(oz.JournalError, match="a writer is at work"):
            Journal(tmp_path).repair()
        script = "import sys; from oz.journal import Writer; Writer(sys.argv[1])"
        with scripts.started("-c", script, tmp_path) as other:
            _, err = other.communicate(timeout=waiting.DEADLINE)
        assert "JournalError" in err
        writer.append([("b", b"")])
    Writer(tmp_path).close()


def test_the_lock_of_a_writer_that_was_killed_is_free(tmp_path):
    script = (
        "import sys, time; from oz.journal import Writer; writer = Writer(sys.argv[1])\n"
        "print(writer.append([('a', b'')]), flush=True); time.sleep(60)"
    )
    with scripts.started("-c", script, tmp_path) as other:
        assert other.stdout.readline() == "1\n"
        with pytest.raises(oz.JournalError):
            Writer(tmp_path)
        other.send_signal(signal.SIGKILL)
        other.wait(waiting.DEADLINE)
        with Writer(tmp_path) as writer:
            assert writer.end_offset == 1


def test_a_program_that_is_started_meanwhile_does_not_keep_the_lock(tmp_path):
    writer = Writer(tmp_path)
    # Each has copies of all descriptors for a moment; this one keeps that of the lock.
    copies = [writer._lock._descriptor]
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=copies, stdout=subprocess.DEVNULL):
        writer.close()
        Writer(tmp_path).close()


def test_a_forked_child_neither_writes_nor_keeps_the_lock(tmp_path):
    writer = Writer(tmp_path)
    writer.append([("a", b"")])
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            writer.append([("child", b"")])
        except oz.OwnershipError:
            os.write(write_end, b"refused\n")
        writer.close()
        time.sleep(60)
        os._exit(0)
    try:
        assert os.read(read_end, 100) == b"refused\n"
        writer.append([("b", b"")])
        writer.close()
        with Writer(tmp_path) as again:
            assert again.end_offset == 2
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read_end)
        os.close(write_end)


@pytest.fixture
def synced(monkeypatch):
    """The names of files and directories that were made durable."""
    if not os.path.exists("/proc/self/fd"):
        pytest.skip("names descriptors by Linux's /proc")
    found = []
    real = os.fsync

    def fsync(descriptor):
        found.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        return real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_with_sync_batch_each_append_is_durable_when_it_returns(tmp_path, synced):
    with Writer(tmp_path / "journal", segment_bytes=5000) as writer:
        stream = f"{0:020d}.arrows"
        assert {stream + ".tmp", "journal", tmp_path.name} <= set(synced)
        for _ in range(3):
            synced.clear()
            writer.append([("a", b"")] * 1000)
            assert [name for name in synced if name.endswith(".arrows")][-1:] == [
                last_stream(tmp_path / "journal")
            ]
            settle(writer)


def test_a_new_segment_and_its_directory_are_durable_before_anything_is_acknowledged_in_it(tmp_path, synced):
    with Writer(tmp_path / "journal", segment_bytes=1) as writer:
        writer.append([("a", b"")])
        synced.clear()
        writer.append([("a", b"")])
        end = list(synced)
    assert f"{1:020d}.arrows" in end, "it was acknowledged"
    at = synced.index(f"{1:020d}.arrows.tmp")
    assert synced[at + 1] == "journal"
    assert synced.index(f"{1:020d}.arrows") > at + 1
    assert f"{0:020d}.arrow.tmp" in synced
    assert "manifest.json.tmp" in synced


def test_with_sync_interval_appends_do_not_wait_and_are_durable_soon(tmp_path, synced):
    with Writer(tmp_path, sync="interval", sync_seconds=0.02) as writer:
        synced.clear()
        writer.append([("a", b"")])
        waiting.until(lambda: f"{0:020d}.arrows" in synced)
        time.sleep(0.1)
        assert synced.count(f"{0:020d}.arrows") == 1, "nothing was appended since"


def test_with_sync_never_nothing_waits_for_the_disk_unless_asked(tmp_path, synced):
    with Writer(tmp_path, sync="never", seal_on_close=False) as writer:
        writer.append([("a", b"")])  # begins an epoch, durably
        synced.clear()
        writer.append([("a", b"")])
        assert synced == []
        writer.sync()
        assert synced == [f"{0:020d}.arrows"]
        writer.append([("a", b"")])
    assert synced == [f"{0:020d}.arrows"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"sync": "always"},
        {"segment_bytes": 0},
        {"segment_seconds": math.nan},
        {"retain_bytes": -1},
        {"retain_bytes": 0},
        {"retain_seconds": 0},
        {"sync_seconds": 0},
    ],
)
def test_arguments_that_make_no_sense_are_refused(tmp_path, wrong):
    with pytest.raises(ValueError, match=r"sync|greater"):
        Writer(tmp_path / "journal", **wrong)
    assert not (tmp_path / "journal").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_place_where_no_journal_can_be_is_a_journal_error(tmp_path, place):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(oz.JournalError, match=r"file.*cannot be opened"):
        Writer(tmp_path / place)


def test_an_interval_may_be_for_ever(tmp_path):
    with Writer(tmp_path, sync="interval", sync_seconds=math.inf) as writer:
        assert writer.append([("a", b"")]) == 1


def test_a_closed_writer_says_so_and_closes_again(tmp_path):
    writer = Writer(tmp_path)
    writer.close()
    writer.close()
    for work in (lambda: writer.append([("a", b"")]), writer.sync):
        with pytest.raises(oz.ClosedError):
            work()
    assert writer.end_offset == 0


def test_threads_may_share_a_writer(tmp_path):
    with Writer(tmp_path, segment_bytes=5000, sync="never") as writer:

        def write(name):
            for at in range(100):
                writer.append([(name, b"%d" % at)] * 3)

        threads = [waiting.Thread(lambda name=name: write(name)) for name in "abc"]
        for thread in threads:
            thread.outcome()
    records = list(Journal(tmp_path).read())
    assert [record.offset for record in records] == list(range(900))
    for name in "abc":
        own = [record.payload for record in records if record.subject == name]
        assert own == [b"%d" % (at // 3) for at in range(300)]
