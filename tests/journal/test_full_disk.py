"""A disk without room: a limit on file sizes, and as root a file system of 2 MiB."""

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from oz.journal import Journal, JournalError, JournalFull, Writer
from support import scripts
from support.journals import content, rows_of
from support.waiting import until

LIMITED = """
import json, resource, signal, sys
from oz.journal import Journal, JournalFull, Writer
from support.journals import content

directory, limit = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = Writer(directory, sync="none", segment_bytes=1 << 30)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
acknowledged = refused = 0
for group in range(2000):
    if group == 1900:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        end = writer.append([content(group, at) for at in range(5)])
    except JournalFull as error:
        refused += 1
        assert writer.end_offset == acknowledged
        assert sys.argv[1] in str(error)
    else:
        acknowledged += 5
        assert end == acknowledged
        print(acknowledged - 5, group, flush=True)
assert refused
print("end", refused, flush=True)
writer.close()
"""


def check(directory, lines):
    """Compare a journal with the groups that its writer acknowledged."""
    expected = {}
    for line in lines:
        first, group = map(int, line.split())
        expected |= {first + at: content(group, at) for at in range(5)}
    assert rows_of(directory) == (expected, set())
    assert Journal(directory).verify().ok
    return expected


@pytest.mark.parametrize("limit", [100_000, 100_001, 250_077])
def test_a_refused_append_leaves_nothing_and_the_writer_continues_when_there_is_room(tmp_path, limit):
    *lines, last = scripts.run("-c", LIMITED, tmp_path / "journal", limit).splitlines()
    assert last.split()[0] == "end"
    groups = [int(line.split()[1]) for line in lines]
    assert groups[-1] == 1999
    assert len(groups) < 1990
    check(tmp_path / "journal", lines)


def _free(directory):
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


@contextmanager
def small_disk(directory):
    """Mount a file system of 2 MiB."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(directory)]
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def test_appends_succeed_again_after_a_file_was_removed(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(os.urandom(1 << 20))
        expected = []
        with Writer(disk / "journal", segment_bytes=200_000) as writer:

            def append(count):
                for _ in range(count):
                    payload = os.urandom(20_000)
                    writer.append([("a", payload)])
                    expected.append(payload)

            with pytest.raises(JournalFull):
                append(1_000)
            ballast.unlink()
            append(20)
        assert [one.payload for one in Journal(disk / "journal").read()] == expected


def test_failed_creation_leaves_no_lock(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        (disk / "ballast").write_bytes(os.urandom((1 << 21) - 8192))
        with pytest.raises(JournalError), Writer(disk / "journal") as writer:
            writer.append([("a", os.urandom(100_000))])
        (disk / "ballast").unlink()
        with Writer(disk / "journal") as writer:
            assert writer.append([("a", b"b")]) == 1


def test_retention_makes_room_on_a_full_file_system(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        with Writer(disk / "journal", segment_bytes=100_000, retain_bytes=600_000) as writer:
            for _ in range(100):
                # Files are sealed and removed in a thread, which a program that never pauses can outrun.
                until(lambda: _free(disk) > 500_000)
                writer.append([("a", os.urandom(50_000))])
        rows, gaps = rows_of(disk / "journal")
        assert max(rows) == 99
        assert gaps in (set(), set(range(min(rows))))
        assert sum(path.stat().st_size for path in Path(disk / "journal").iterdir()) < 1_000_000
