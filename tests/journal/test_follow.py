import errno
import fcntl
import itertools
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import oz
from oz.journal import Journal, Record, Writer, files, manifest
from oz.journal.mark import read_mark
from oz.journal.retention import Retention
from oz.journal.selection import Selection
from support import scripts, waiting
from support.sizes import size

pytestmark = pytest.mark.timeout(180)


def take(iterator, count):
    return waiting.Thread(lambda: list(itertools.islice(iterator, count))).outcome()


def test_following_yields_what_is_appended_later(tmp_path):
    with Writer(tmp_path) as writer:
        writer.append([("a", b"0")])
        following = Journal(tmp_path).read(follow=True)
        assert [record.payload for record in take(following, 1)] == [b"0"]
        more = waiting.Thread(lambda: list(itertools.islice(following, 3)))
        more.wait_until_stuck()
        writer.append([("a", b"1")])
        writer.append([("a", b"2"), ("a", b"3")])
        assert [record.payload for record in more.outcome()] == [b"1", b"2", b"3"]
        following.close()


def test_following_ends_at_an_offset_or_when_its_time_has_come(tmp_path):
    with Writer(tmp_path) as writer:
        writer.append([("a", b"0"), ("a", b"1"), ("a", b"2")])
        soon = datetime.now(UTC) + timedelta(seconds=0.3)
        assert len(take(Journal(tmp_path).read(follow=True, end=2), 9)) == 2
        assert len(take(Journal(tmp_path).read(follow=True, end=soon), 9)) == 3
        following = waiting.Thread(lambda: list(Journal(tmp_path).read(follow=True, start=4, end=5)))
        following.wait_until_stuck()
        writer.append([("a", b"%d" % at) for at in range(3, 9)])
        assert [record.offset for record in following.outcome()] == [4]


def test_followers_see_every_record_once_while_segments_are_sealed_under_them(tmp_path):
    total = 6000
    with Writer(tmp_path, segment_bytes=20_000, sync="never") as writer:
        writer.append([("a.0", b"0")])
        followers = [
            waiting.Thread(lambda: list(Journal(tmp_path).read("a.>", follow=True, end=total)))
            for _ in range(3)
        ]
        for first in range(1, total, 50):
            writer.append([(f"a.{at}", b"%d" % at) for at in range(first, min(first + 50, total))])
        for follower in followers:
            assert [record.payload for record in follower.outcome()] == [b"%d" % at for at in range(total)]
    assert len(list(tmp_path.glob("*.arrow"))) > 10


def test_many_readers_read_while_another_process_writes(tmp_path):
    script = (
        "import sys; from oz.journal import Writer\n"
        "with Writer(sys.argv[1], segment_bytes=50_000) as writer:\n"
        "    writer.append([('a', b'0')]); print('ready', flush=True); sys.stdin.readline()\n"
        "    for first in range(1, 3001, 30):\n"
        "        writer.append([('a', b'%d' % at) for at in range(first, first + 30)])"
    )
    with scripts.started("-c", script, tmp_path) as process:
        assert process.stdout.readline() == "ready\n"
        readers = [
            waiting.Thread(lambda: list(Journal(tmp_path).read(follow=True, end=3001))) for _ in range(3)
        ]
        scripts.finished(process, "go\n")
    for reader in readers:
        assert [record.payload for record in reader.outcome()] == [b"%d" % at for at in range(3001)]


def test_a_follower_goes_on_when_another_writer_takes_over(tmp_path):
    with Writer(tmp_path) as first:
        first.append([("a", b"0")])
        following = Journal(tmp_path).read(follow=True)
        take(following, 1)
        more = waiting.Thread(lambda: list(itertools.islice(following, 2)))
    with Writer(tmp_path) as second:
        second.append([("a", b"1")])
    with Writer(tmp_path, segment_bytes=1) as third:
        third.append([("a", b"2")])
        assert [record.payload for record in more.outcome()] == [b"1", b"2"]
        following.close()


@pytest.mark.parametrize("look", range(1, 7))
def test_a_follower_goes_on_when_another_writer_takes_over_between_two_of_its_looks(
    tmp_path, monkeypatch, look
):
    looks = itertools.count(1)
    read = files.open_regular

    def open_regular(path):
        descriptor = read(path)
        if path.name == files.MARK and next(looks) == look:
            with Writer(tmp_path) as second:
                second.append([("a", b"1")])
        return descriptor

    with Writer(tmp_path) as first:
        first.append([("a", b"0")])
    following = Journal(tmp_path).read(follow=True)
    monkeypatch.setattr(files, "open_regular", open_regular)
    assert [record.payload for record in take(following, 2)] == [b"0", b"1"]
    with Writer(tmp_path) as third:
        third.append([("a", b"2")])
        assert [record.payload for record in take(following, 1)] == [b"2"]
        following.close()


def test_a_read_ends_where_the_journal_ended_when_it_began(tmp_path):
    with Writer(tmp_path, segment_bytes=1) as writer:
        writer.append([("a", b"0")] * 10)
        records = Journal(tmp_path).read()
        seen = 0
        for _ in records:
            seen += 1
            writer.append([("a", b"more")])
    assert seen == 10


def test_a_reader_does_not_see_what_is_not_acknowledged_yet(tmp_path, monkeypatch):
    arrived, go_on = threading.Event(), threading.Event()

    def slow_sync(self):
        arrived.set()
        assert go_on.wait(waiting.DEADLINE)

    with Writer(tmp_path) as writer:
        writer.append([("a", b"0")])
        monkeypatch.setattr("oz.journal.stream.ActiveStream.sync", slow_sync)
        append = waiting.Thread(lambda: writer.append([("a", b"1")]))
        assert arrived.wait(waiting.DEADLINE)
        assert (Journal(tmp_path).end_offset, len(list(Journal(tmp_path).read()))) == (1, 1)
        assert Journal(tmp_path).verify().ok
        follower = waiting.Thread(lambda: list(Journal(tmp_path).read(follow=True, end=2)))
        follower.wait_until_stuck()
        assert follower.is_alive()
        go_on.set()
        assert append.outcome() == 2
        assert len(follower.outcome()) == 2
        assert (Journal(tmp_path).end_offset, len(list(Journal(tmp_path).read()))) == (2, 2)


def test_without_a_mark_that_holds_what_is_intact_is_read_and_followed(tmp_path):
    with Writer(tmp_path, segment_bytes=3000) as writer:
        for at in range(10):
            writer.append([("a", b"%d" % at)])
        (tmp_path / "acknowledged").unlink()
        journal = Journal(tmp_path)
        assert journal.end_offset == 10
        assert [record.offset for record in journal.read()] == list(range(10))
        following = waiting.Thread(lambda: list(journal.read(follow=True, end=12)))
        writer.append([("a", b"10"), ("a", b"11")])
        assert [record.offset for record in following.outcome()] == list(range(12))


@pytest.mark.parametrize("start", [0, 7, 30])
def test_following_from_an_offset_that_is_still_to_come(tmp_path, start):
    with Writer(tmp_path, segment_bytes=1000) as writer:
        writer.append([("a", b"")] * 7)
        following = waiting.Thread(lambda: list(Journal(tmp_path).read(start=start, end=33, follow=True)))
        for _ in range(7):
            writer.append([("a", b"")] * 5)
        assert [record.offset for record in following.outcome()] == list(range(start, 33))


def test_a_hole_between_segments_is_an_error_and_a_repair_fills_it(many):
    lost = sorted(many.directory.glob("*.arrow"))[1]
    first = int(lost.stem)
    lost.unlink()
    records = many.read()
    with pytest.raises(oz.JournalError, match=f"from offset {first} to .* are missing"):
        list(records)
    assert not many.verify().ok
    many.repair()
    assert many.verify().ok
    found = list(many.read(gaps=True))
    assert [record.offset for record in found] == list(range(3000))
    damaged = [record for record in found if not record.is_message]
    assert damaged[0].offset == first
    assert len(list(many.read())) == 3000 - len(damaged)


def test_a_record_read_from_one_journal_may_be_appended_to_another(many, tmp_path):
    with Writer(tmp_path / "copy") as writer:
        writer.append(many.read(start=1000, end=1003))
    [first, *_] = Journal(tmp_path / "copy").read()
    [original] = many.read(start=1000, end=1001)
    assert isinstance(first, Record)
    assert first == original._replace(offset=0)


def test_a_follower_that_looked_at_what_was_taken_back_reads_what_came_in_its_place(tmp_path, monkeypatch):
    looks = itertools.count()
    looked = 0
    acknowledged = oz.journal.reading.acknowledged

    def counted(directory):
        nonlocal looked
        looked = next(looks)
        return acknowledged(directory)

    monkeypatch.setattr("oz.journal.reading.acknowledged", counted)
    sync = oz.journal.stream.ActiveStream.sync

    def full_after_a_while(self):
        seen = looked
        waiting.until(lambda: looked > seen + 2)
        monkeypatch.setattr("oz.journal.stream.ActiveStream.sync", sync)
        raise OSError(errno.ENOSPC, "full")

    with Writer(tmp_path) as writer:
        writer.append([("a", b"0")])
        follower = waiting.Thread(lambda: list(Journal(tmp_path).read(follow=True, end=2)))
        waiting.until(lambda: looked > 2)
        monkeypatch.setattr("oz.journal.stream.ActiveStream.sync", full_after_a_while)
        with pytest.raises(oz.JournalFull):
            writer.append([("a", b"taken back")])
        writer.append([("a", b"kept")])
        assert [record.payload for record in follower.outcome()] == [b"0", b"kept"]


def test_a_mark_from_before_the_machine_was_restarted_does_not_hold(journal, monkeypatch):
    one = journal([("a", b"0"), ("a", b"1")], [("a", b"2")])
    stale = oz.journal.mark.AcknowledgedMark(one.directory)
    stale.set(2, read_mark(one.directory).growing)
    stale.close()
    assert (one.end_offset, len(list(one.read()))) == (2, 2)
    monkeypatch.setattr("oz.journal.mark._this_run", lambda: b"another")
    assert (one.end_offset, len(list(one.read()))) == (3, 3)


def test_an_append_that_is_interrupted_at_its_very_end_is_taken_back(tmp_path, monkeypatch):
    note = oz.journal.mark.AcknowledgedMark.set

    def interrupted(self, end_offset, growing):
        note(self, end_offset, growing)
        monkeypatch.setattr("oz.journal.mark.AcknowledgedMark.set", note)
        raise KeyboardInterrupt

    with Writer(tmp_path) as writer:
        writer.append([("a", b"0")])
        monkeypatch.setattr("oz.journal.mark.AcknowledgedMark.set", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.append([("a", b"1")])
        assert (writer.end_offset, Journal(tmp_path).end_offset) == (1, 1)
        assert [record.payload for record in Journal(tmp_path).read()] == [b"0"]
        assert writer.append([("a", b"2")]) == 2


def test_a_read_that_passes_segments_by_goes_on_where_retention_has_overtaken_it(journal, monkeypatch):
    found = journal(*([Record("a", b"", at * 1000)] for at in range(10)), segment_bytes=1)
    wants = Selection.wants_segment

    def late(self, entry):
        Retention(1, None).apply(found.directory, manifest.load(found.directory), 4)
        return wants(self, entry)

    monkeypatch.setattr(Selection, "wants_segment", late)
    start = datetime(1970, 1, 1, 0, 0, 0, 7, UTC)
    assert [record.offset for record in found.read(start=start)] == [7, 8, 9]


def test_a_segment_that_is_removed_as_it_is_opened_is_not_there(tmp_path, monkeypatch):
    path = tmp_path / "segment"
    path.write_bytes(b"")
    lock = fcntl.flock

    def late(descriptor, operation):
        path.unlink()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    assert oz.journal.files.open_held(path) is None
    assert oz.journal.files.open_held(path) is None


@pytest.mark.sized
def test_a_journal_that_is_being_written_is_verified_and_nothing_is_found(tmp_path):
    with Writer(tmp_path, segment_bytes=3000, retain_bytes=20_000, sync="never") as writer:
        writer.append([("a", b"")])
        stop = threading.Event()

        def verify():
            found = []
            while not stop.is_set():
                found += Journal(tmp_path).verify().findings
            return found

        verifying = waiting.Thread(verify)
        for _ in range(size(100, 300)):
            writer.append([("a", b"")] * 3)
        stop.set()
        assert verifying.outcome() == []


def test_a_reader_finds_a_segment_that_is_sealed_between_its_looks(tmp_path, monkeypatch):
    with Writer(tmp_path, segment_bytes=1) as writer:
        writer.append([("a", b"0")])
        writer.append([("a", b"1")])
    looks, is_regular = Counter(), files.is_regular

    def look(path):
        looks[path.name] += 1
        # It is not sealed yet at the first look, and is by the next, at the other form.
        return looks[path.name] > 1 and is_regular(path)

    monkeypatch.setattr(files, "is_regular", look)
    assert [record.payload for record in Journal(tmp_path).read()] == [b"0", b"1"]
