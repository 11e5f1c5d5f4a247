"""One writer, many processes: locks, forks, forgotten writers, directories that cannot be written."""

import gc
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

import oz
from oz.journal import Journal, JournalError, Writer
from oz.journal import writer as writers
from support import scripts, waiting
from support.journals import content, rows_of


def test_a_forked_child_cannot_write_and_its_end_leaves_the_parent_alone(tmp_path):
    code = (
        "import os, sys\nimport oz\nfrom oz.journal import Journal, Writer\n"
        "writer = Writer(sys.argv[1])\nwriter.append([('a', b'1')])\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n        writer.append([('a', b'child')])\n"
        "    except oz.OwnershipError:\n        writer.close()\n        sys.exit(7)\n"
        "    sys.exit(1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "writer.append([('a', b'2')])\n"
        "writer.close()\n"
        "print([one.payload for one in Journal(sys.argv[1]).read()])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-P", "-c", code, tmp_path / "journal"],
        capture_output=True,
        text=True,
        timeout=waiting.DEADLINE,
        check=False,
    )
    assert ran.stdout.splitlines() == ["7", "[b'1', b'2']"], ran.stderr
    assert Journal(tmp_path / "journal").verify().ok


@pytest.mark.parametrize("form", ["sealed", "active"])
def test_a_directory_that_cannot_be_written_is_readable(written, form):
    directory, rows = written(30, 30, seal=form == "sealed")
    # Root ignores modes, so another user reads, and needs the way to the directory.
    code = """
import os, sys
import pyarrow.parquet
from oz.journal import Journal, JournalError, Writer
if os.geteuid() == 0:
    os.setuid(65534)
journal = Journal(sys.argv[1])
print(sum(1 for _ in journal.read()), journal.verify().ok)
try:
    Writer(sys.argv[1])
except JournalError as error:
    print(sys.argv[1] in str(error), flush=True)
# Under coverage, an ordinary exit would write data as the other user, who may not.
os._exit(0)
"""
    with tempfile.TemporaryDirectory() as place:
        copy = shutil.copytree(directory, f"{place}/journal")
        for path in Path(copy).iterdir():
            path.chmod(0o444)
        Path(copy).chmod(0o555)
        Path(place).chmod(0o755)
        assert scripts.run("-c", code, copy).split() == [str(len(rows)), "True", "True"]
        Path(copy).chmod(0o755)


def test_threads_share_a_writer(tmp_path):
    with Writer(tmp_path, segment_bytes=50_000) as writer:

        def work(number):
            return [writer.append([content(number, at) for at in range(10)]) for _ in range(50)]

        threads = [waiting.Thread(lambda number=number: work(number)) for number in range(4)]
        ends = sorted(end for thread in threads for end in thread.outcome())
    assert ends == list(range(10, 2001, 10))
    rows, gaps = rows_of(tmp_path)
    assert len(rows) == 2000
    assert not gaps
    for end in ends:
        assert len({rows[at][1].split(b".")[0] for at in range(end - 10, end)}) == 1, "a group is torn apart"


def test_closing_while_other_threads_append_ends_them_with_an_error(tmp_path):
    writer = Writer(tmp_path)
    started = threading.Event()

    def work():
        count = 0
        try:
            while True:
                writer.append([("a", b"%d" % count)])
                count += 1
                started.set()
        except oz.ClosedError:
            return count

    thread = waiting.Thread(work)
    assert started.wait(waiting.DEADLINE)
    writer.close()
    count = thread.outcome()
    assert [row[1] for row in rows_of(tmp_path)[0].values()] == [b"%d" % at for at in range(count)]


def test_files_that_somebody_removes_are_an_error_of_the_next_append(tmp_path):
    writer = Writer(tmp_path / "journal")
    writer.append([("a", b"1")])
    shutil.rmtree(tmp_path / "journal")
    for payload in (b"2", b"3"):
        with pytest.raises(JournalError):
            writer.append([("a", payload)])
    with suppress(JournalError):
        writer.close()
    with Writer(tmp_path / "journal") as writer:
        assert writer.append([("a", b"1")]) == 1


def test_writer_that_was_not_closed_warns_and_unlocks_the_journal(tmp_path):
    def forget():
        Writer(tmp_path).append([("a", b"1")])
        gc.collect()

    with pytest.warns(ResourceWarning, match="was not closed"):
        forget()
    (tmp_path / "left.parquet.tmp").write_bytes(b"x")
    with Writer(tmp_path) as writer:
        assert writer.append([("a", b"2")]) == 2
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("part", ["end", "_acknowledge", "wake"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_writer_goes_on_after_an_interrupted_end_of_a_segment(tmp_path, monkeypatch, part, moment):
    with Writer(tmp_path) as writer:
        writer.append([("a", b"0")])
        owner = {"end": writer._stream, "_acknowledge": writer, "wake": writer._housekeeper}[part]
        call = getattr(owner, part)

        def interrupted(*given, **options):
            monkeypatch.undo()
            if moment == "after":
                call(*given, **options)
            raise KeyboardInterrupt

        monkeypatch.setattr(owner, part, interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.roll()
        assert writer.append([("a", b"1")]) == 2
    journal = Journal(tmp_path)
    assert [(record.offset, record.payload) for record in journal.read()] == [(0, b"0"), (1, b"1")]
    assert journal.verify().findings == ()


def test_a_writer_goes_on_after_an_interrupted_start_of_a_segment(tmp_path, monkeypatch):
    with Writer(tmp_path) as writer:
        create = writers._OpenStream

        def interrupted(*given, **options):
            create(*given, **options).close()
            raise KeyboardInterrupt

        with monkeypatch.context() as patches:
            patches.setattr(writers, "_OpenStream", interrupted)
            with pytest.raises(KeyboardInterrupt):
                writer.append([("a", b"0")])
        assert writer.append([("a", b"1")]) == 1
        assert [record.payload for record in Journal(tmp_path).read()] == [b"1"]
    with Writer(tmp_path) as second:
        assert second.end_offset == 1


def test_an_interrupted_close_is_completed_by_a_second_call(tmp_path, monkeypatch):
    writer = Writer(tmp_path)
    writer.append([("a", b"0")])
    with monkeypatch.context() as patches:
        patches.setattr(writer._housekeeper, "stop", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            writer.close()
    writer.close()
    assert writer._housekeeper._has_ended
    with Writer(tmp_path) as second:
        assert second.end_offset == 1
