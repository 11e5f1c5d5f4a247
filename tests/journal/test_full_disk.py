"""A full disk: as root, a file system of 2 MiB."""

import os
import subprocess
from contextlib import contextmanager

import pytest

from oz.journal import Journal, JournalError, JournalFull, Writer


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
        assert [message.payload for message in Journal(disk / "journal").read()] == expected


def test_failed_creation_leaves_no_lock(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        (disk / "ballast").write_bytes(os.urandom((1 << 21) - 8192))
        with pytest.raises(JournalError), Writer(disk / "journal") as writer:
            writer.append([("a", os.urandom(100_000))])
        (disk / "ballast").unlink()
        with Writer(disk / "journal") as writer:
            assert writer.append([("a", b"b")]) == 1
