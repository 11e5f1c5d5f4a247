import errno
import os

import pytest

import oz
from oz.journal import Journal, Writer
from oz.journal.mark import AcknowledgedMark
from support import scripts
from support.inside import segments_of
from support.waiting import until


class Disk:
    """Lets a number of bytes through, then is full; a write that does not fit is cut short first."""

    def __init__(self, monkeypatch):
        self.room = None
        self.refused = None
        self.failing = {}
        self._real = os.write
        monkeypatch.setattr(os, "write", self.write)
        real = {name: getattr(os, name) for name in ("fsync", "rename", "pwrite")}
        for name, call in real.items():
            monkeypatch.setattr(os, name, lambda *args, name=name, call=call: self._call(name, call, args))

    def write(self, descriptor, data):
        refused = self.refused and os.readlink(f"/proc/self/fd/{descriptor}").endswith(self.refused)
        if self.room is None and not refused:
            return self._real(descriptor, data)
        if refused or not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._real(descriptor, bytes(data)[: self.room])
        self.room -= written
        return written

    def _call(self, name, call, args):
        if name in self.failing:
            raise OSError(self.failing[name], os.strerror(self.failing[name]))
        return call(*args)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


@pytest.mark.parametrize("room", [0, 1, 1000, 3000, 20_000])
def test_a_full_disk_acknowledges_nothing_and_corrupts_nothing_and_goes_on_when_there_is_room(
    tmp_path, disk, room
):
    with Writer(tmp_path) as writer:
        writer.append([("a", b"kept")])
        size = (tmp_path / f"{0:020d}.arrows").stat().st_size
        disk.room = room
        for _ in range(2):
            with pytest.raises(oz.JournalFull, match=r"No space left.*up to offset 1 .*make room") as caught:
                writer.append([("b", bytes(100))] * 20_000)
            assert caught.value.end_offset == writer.end_offset == 1
            assert (tmp_path / f"{0:020d}.arrows").stat().st_size == size
            assert [record.payload for record in Journal(tmp_path).read()] == [b"kept"]
            assert Journal(tmp_path).verify().ok
        disk.room = None
        assert writer.append([("c", b"later")]) == 2
    assert [record.payload for record in Journal(tmp_path).read()] == [b"kept", b"later"]
    assert Journal(tmp_path).verify().ok


def test_a_disk_that_is_full_when_a_segment_should_begin_or_be_sealed(tmp_path, disk):
    with Writer(tmp_path, segment_bytes=1) as writer:
        writer.append([("a", b"0")])
        disk.room = 10
        with pytest.raises(oz.JournalFull):
            writer.append([("a", b"1")])
        disk.room, disk.refused = None, ".arrow.tmp"  # room for a new stream, none to seal the old one
        assert writer.append([("a", b"1")]) == 2
        segments_of(writer).finish()
        assert [path.suffix for path in sorted(tmp_path.glob("0*"))] == [".arrows", ".arrows"]
        assert [record.payload for record in Journal(tmp_path).read()] == [b"0", b"1"]
        disk.refused = None
        writer.append([("a", b"2")])
        segments_of(writer).finish()
        assert [path.suffix for path in sorted(tmp_path.glob("0*"))] == [".arrow", ".arrow", ".arrows"]
    assert [record.payload for record in Journal(tmp_path).read()] == [b"0", b"1", b"2"]
    assert Journal(tmp_path).verify().ok


def test_that_there_is_no_room_to_seal_is_said_once_each_time_the_disk_fills(tmp_path, disk, caplog):
    with Writer(tmp_path, segment_bytes=1) as writer:
        for full in (1, 2):
            disk.refused = ".arrow.tmp"
            writer.append([("a", b"0")])
            writer.append([("a", b"1")])
            segments_of(writer).finish()
            disk.room = 0
            for _ in range(5):
                with pytest.raises(oz.JournalFull):
                    writer.append([("a", b"2")])
            assert caplog.text.count("stays a stream") == full
            disk.room = disk.refused = None
            writer.append([("a", b"3")])
            segments_of(writer).finish()


def test_a_segment_that_could_not_be_begun_durably_is_not_there(tmp_path, monkeypatch):
    with Writer(tmp_path, segment_bytes=1) as writer:
        writer.append([("a", b"0")])

        def full(directory):
            raise OSError(errno.ENOSPC, "full")

        with monkeypatch.context() as patched:
            patched.setattr("oz.journal.files.sync_directory", full)
            with pytest.raises(oz.JournalFull):
                writer.append([("a", b"1")])
        assert [path.name for path in tmp_path.glob("*.arrow*")] == [f"{0:020d}.arrows"]
        assert writer.append([("a", b"2")]) == 2
    assert [record.payload for record in Journal(tmp_path).read()] == [b"0", b"2"]


def test_a_disk_that_says_only_at_the_sync_that_it_is_full(tmp_path, disk):
    with Writer(tmp_path) as writer:
        writer.append([("a", b"0")])
        disk.failing["fsync"] = errno.EDQUOT
        with pytest.raises(oz.JournalFull):
            writer.append([("a", b"1")])
        assert [record.payload for record in Journal(tmp_path).read()] == [b"0"]
        disk.failing.clear()
        assert writer.append([("a", b"2")]) == 2
    assert [record.payload for record in Journal(tmp_path).read()] == [b"0", b"2"]


@pytest.mark.parametrize("call", ["fsync", "pwrite"])
def test_after_any_other_fault_the_writer_stops_for_good_and_the_next_goes_on(tmp_path, disk, call):
    writer = Writer(tmp_path)
    writer.append([("a", b"0")])
    disk.failing[call] = errno.EIO
    with pytest.raises(oz.JournalError, match="close this writer") as caught:
        writer.append([("a", b"1")])
    assert not isinstance(caught.value, oz.JournalFull)
    disk.failing.clear()
    for work in (lambda: writer.append([("a", b"2")]), writer.sync, writer.close):
        with pytest.raises(oz.JournalError, match="close this writer"):
            work()
    with Writer(tmp_path) as again:
        assert again.append([("a", b"3")]) == 2
    assert [record.payload for record in Journal(tmp_path).read()] == [b"0", b"3"]


def test_a_fault_between_appends_is_said_by_the_next_one(tmp_path, disk, caplog):
    writer = Writer(tmp_path, sync="interval", sync_seconds=0.01)
    writer.append([("a", b"0")])
    writer.sync()
    disk.failing["fsync"] = errno.EIO
    writer.append([("a", b"1")])
    until(lambda: caplog.records)
    disk.failing.clear()
    with pytest.raises(oz.JournalError, match="close this writer"):
        writer.append([("a", b"2")])
    with pytest.raises(oz.JournalError):
        writer.close()
    assert [record.payload for record in Journal(tmp_path).read()] == [b"0", b"1"]


def test_a_journal_is_opened_and_read_on_a_full_disk(journal, disk):
    one = journal(*[[("a", b"%d" % at)] for at in range(5)], segment_bytes=2500)
    disk.room = 0
    with Writer(one.directory) as writer:
        with pytest.raises(oz.JournalFull) as caught:
            writer.append([("b", b"")])
        assert caught.value.end_offset == 5
        disk.room = None
        assert writer.append([("b", b"")]) == 6
    assert one.verify().ok


def test_a_journal_cannot_be_made_on_a_full_disk_and_can_later(tmp_path, disk):
    disk.room = 100
    with pytest.raises(oz.JournalFull):
        Writer(tmp_path / "journal")
    disk.room = None
    with Writer(tmp_path / "journal") as writer:
        assert writer.append([("a", b"")]) == 1


def test_a_writer_that_cannot_be_opened_leaves_no_file_open(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    Writer(tmp_path).close()
    for name in ("__init__", "set"):
        before = sorted(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(AcknowledgedMark, name, refuse)
        with pytest.raises(oz.JournalError, match="Too many open files"):
            Writer(tmp_path)
        assert sorted(os.listdir("/proc/self/fd")) == before
        monkeypatch.undo()
    Writer(tmp_path).close()


def test_a_limit_of_the_system_is_met_in_earnest(tmp_path):
    """RLIMIT_FSIZE cuts a write short, then refuses the rest, as a full disk does."""
    script = (
        "import resource, sys, oz; from oz.journal import Journal, Writer\n"
        "writer = Writer(sys.argv[1]); ends = [writer.append([('a', bytes(1000))] * 10)]\n"
        # What is compiled under the limit would be cut short too, and stay so.
        "sys.dont_write_bytecode = True\n"
        "hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))\n"
        "try:\n"
        "    while True: ends.append(writer.append([('a', bytes(1000))] * 10))\n"
        "except oz.JournalFull as error: assert error.end_offset == ends[-1] == writer.end_offset\n"
        "assert len(list(Journal(sys.argv[1]).read())) == ends[-1] and Journal(sys.argv[1]).verify().ok\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n"
        "assert writer.append([('b', b'')]) == ends[-1] + 1; writer.close()\n"
        "assert len(list(Journal(sys.argv[1]).read())) == ends[-1] + 1; print(len(ends))"
    )
    assert 5 < int(scripts.run("-c", script, tmp_path)) < 10
