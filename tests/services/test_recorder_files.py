"""Files that are taken from under a recorder, and a disk that has room for a part of what waits."""

import os
import shutil
import signal
from pathlib import Path

import pytest

import oz
from oz.journal import Journal, Writer
from support import scripts, waiting
from support.inside import segments_of

HERE = Path(__file__).parent

pytestmark = pytest.mark.timeout(180)


def remove_the_stream(directory):
    next(directory.glob("*.arrows")).unlink()


def remove_a_sealed_segment(directory):
    min(directory.glob("*.arrow")).unlink()


def remove_the_directory(directory):
    shutil.rmtree(directory)


def rename_the_directory(directory):
    directory.rename(directory.with_name("renamed"))


def replace_the_directory(directory):
    directory.rename(directory.with_name("renamed"))
    with Writer(directory) as writer:
        writer.append([("other", b"")] * 3)


def empty_the_stream(directory):
    os.truncate(next(directory.glob("*.arrows")), 0)


def replace_the_lock(directory):
    (directory / "writer.lock").unlink()
    (directory / "writer.lock").touch()


CHANGES = {
    remove_the_stream: "removed while it was written",
    remove_a_sealed_segment: "the segment with the records from offset 0 to .* was removed",
    remove_the_directory: "removed while it was written",
    rename_the_directory: "removed while it was written",
    replace_the_directory: "was replaced by another file|was removed",
    empty_the_stream: "has 0 bytes",
    replace_the_lock: "another writer may be at work",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_an_idle_recorder_says_within_a_second_that_its_files_were_taken(recording, publisher, met, change):
    pub = publisher()
    one = recording("a.>", connect=pub.endpoint, segment_bytes=3000, sync="never")
    met(pub)
    for at in range(5):
        for number in range(100):
            pub.publish("a.1", b"%d" % (100 * at + number))
        pub.flush()
        one.recorded(100 * (at + 1))
    waiting.until(lambda: list(one.directory.glob("*.arrow")) and list(one.directory.glob("*.arrows")))
    segments_of(one.recorder.writer).finish()
    change(one.directory)
    with pytest.raises(oz.JournalError, match=CHANGES[change]):
        one.thread.outcome()
    there = 0 if change in (remove_the_directory, rename_the_directory, replace_the_directory) else None
    if there is None:
        there = len(intact(one.directory))
    assert one.stats.recorded == there
    assert one.stats.gone == 500 - there
    with pytest.raises(oz.JournalError):
        one.recorder.close()


def intact(directory):
    """What a repair finds to be there."""
    copy = directory.with_name("copy")
    shutil.copytree(directory, copy)
    Journal(copy).repair()
    return list(Journal(copy).read())


def test_the_command_ends_with_an_error_when_its_file_is_removed(publisher, met, tmp_path):
    pub = publisher()
    directory = tmp_path / "recorded"
    arguments = ("record", "a.>", "--journal", directory, "--connect", pub.endpoint)
    with scripts.started("-m", "oz", *arguments) as recorder:
        met(pub)
        for at in range(1000):
            pub.publish("a.1", b"%d" % at)
        pub.flush()
        waiting.until(lambda: directory.exists() and Journal(directory).end_offset == 1000)
        remove_the_stream(directory)
        _, said = recorder.communicate(timeout=waiting.DEADLINE)
    assert recorder.returncode == 1
    assert "recorded 0 messages" in said
    assert "1000 that were recorded are gone with their files" in said
    assert "removed while it was written" in said
    with Writer(directory) as writer:
        assert writer.end_offset == 1000
    assert list(Journal(directory).read()) == []
    assert len(list(Journal(directory).read(gaps=True))) == 1000


def test_a_recorder_that_is_ended_just_after_its_file_was_removed_says_so(publisher, met, tmp_path):
    pub = publisher()
    directory = tmp_path / "recorded"
    arguments = ("record", "a.>", "--journal", directory, "--connect", pub.endpoint)
    with scripts.started("-m", "oz", *arguments) as recorder:
        met(pub)
        pub.publish("a.1", b"")
        waiting.until(lambda: directory.exists() and Journal(directory).end_offset == 1)
        remove_the_stream(directory)
        recorder.send_signal(signal.SIGTERM)
        _, said = recorder.communicate(timeout=waiting.DEADLINE)
    assert recorder.returncode == 1
    assert "recorded 0 messages" in said


def test_a_mark_that_was_removed_is_made_again(recording, publisher, met):
    pub = publisher()
    one = recording("a.>", connect=pub.endpoint)
    met(pub)
    pub.publish("a.1", b"x")
    one.recorded(1)
    (one.directory / "acknowledged").unlink()
    waiting.until(lambda: (one.directory / "acknowledged").exists())
    assert [record.payload for record in one.end()] == [b"x"]


def test_a_recorder_goes_on_with_as_much_of_its_backlog_as_there_is_room_for(tmp_path):
    """RLIMIT_FSIZE stands for the disk: 60 kB, then 200 kB more, of a backlog of some MB."""
    result = scripts.run(HERE / "limited_in_part.py", tmp_path / "recorded", timeout=150)
    before, partly, backlog, after = map(int, result.split())
    assert before < partly < after
    assert (partly - before) > 500
    assert backlog > 2 * (partly - before)
    payloads = [int(record.payload[:12]) for record in Journal(tmp_path / "recorded").read()]
    assert payloads == list(range(after))
    assert Journal(tmp_path / "recorded").verify().ok
