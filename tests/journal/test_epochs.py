"""What tells a reader that comes back whether offsets stand for the same records yet."""

import shutil

import pytest

import oz
from oz.journal import Journal, Writer
from oz.journal.epochs import history_of


def test_each_writer_that_appends_begins_an_epoch_and_others_do_not(tmp_path):
    for appended in (2, 0, 3, 0, 1):
        with Writer(tmp_path) as writer:
            for _ in range(appended):
                writer.append([("a", b"")])
    found = history_of(tmp_path).epochs
    assert [one.first_offset for one in found] == [0, 0, 2, 5]
    assert len({one.id for one in found}) == 4


def test_offsets_are_told_from_those_of_another_copy(tmp_path):
    with Writer(tmp_path / "one") as writer:
        writer.append([("a", b"")] * 10)
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    for name in ("one", "other"):
        with Writer(tmp_path / name) as writer:
            writer.append([("a", name.encode())] * 5)
    one, other = history_of(tmp_path / "one"), history_of(tmp_path / "other")
    assert one.agreed(one.epoch_before(15), 15) == 15
    assert other.agreed(one.epoch_before(15), 15) is None
    assert other.agreed(one.epoch_before(10), 10) == 10


def test_the_present_epoch_is_known_without_the_file_and_earlier_ones_are_not(tmp_path):
    for _ in range(3):
        with Writer(tmp_path) as writer:
            writer.append([("a", b"")])
    before = history_of(tmp_path)
    (tmp_path / "epochs.json").unlink()
    assert history_of(tmp_path).epochs == before.epochs[-1:]
    assert history_of(tmp_path).agreed(before.epoch_before(3), 3) == 3
    assert history_of(tmp_path).agreed(before.epoch_before(1), 1) is None
    with Writer(tmp_path) as writer:
        writer.append([("a", b"")])
    assert history_of(tmp_path).epochs[:-1] == before.epochs[-1:]


def test_epochs_that_retention_has_removed_are_forgotten(tmp_path):
    for _ in range(6):
        with Writer(tmp_path, segment_bytes=1, retain_bytes=6000) as writer:
            writer.append([("a", b"")])
            writer.append([("a", b"")])
    first = Journal(tmp_path).first_offset
    epochs = history_of(tmp_path).epochs
    assert first > 4
    assert len(epochs) < 7
    assert history_of(tmp_path).agreed(epochs[0].id, first) is not None


def test_a_note_of_another_journal_says_nothing_to_a_writer(tmp_path):
    for name, count in (("one", 5), ("other", 500)):
        with Writer(tmp_path / name) as writer:
            writer.append([("a", b"")] * count)
    shutil.copy(tmp_path / "other" / "acknowledged", tmp_path / "one" / "acknowledged")
    with Writer(tmp_path / "one") as writer:
        assert writer.end_offset == 5
        assert [finding.file for finding in writer.findings] == ["acknowledged"]


def test_a_record_that_a_reader_may_have_seen_and_that_is_taken_back_ends_its_epoch(tmp_path, monkeypatch):
    """A signal comes between the note and the return of `append`."""
    note = oz.journal.mark.AcknowledgedMark.set

    def interrupted(self, *arguments):
        note(self, *arguments)
        monkeypatch.setattr("oz.journal.mark.AcknowledgedMark.set", note)
        raise KeyboardInterrupt

    with Writer(tmp_path) as writer:
        writer.append([("a", b"0")])
        follower = Journal(tmp_path).read(follow=True)
        next(follower)
        monkeypatch.setattr("oz.journal.mark.AcknowledgedMark.set", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.append([("a", b"1")])
        seen = history_of(tmp_path).epoch_before(2)
        writer.append([("a", b"2"), ("a", b"3")])
        assert history_of(tmp_path).agreed(seen, 2) == 1
        assert next(follower).payload == b"2"
        follower.close()


@pytest.mark.parametrize("follow", [False, True])
def test_a_reader_that_retention_overtakes_goes_on_in_the_epoch_of_another_writer(tmp_path, follow):
    with Writer(tmp_path) as writer:
        writer.append([("a", b"")])
    reading = Journal(tmp_path).batches(follow=follow)
    with Writer(tmp_path, segment_bytes=1, retain_bytes=1) as writer:
        for _ in range(3):
            writer.append([("a", b"")])
    assert (first := Journal(tmp_path).first_offset) > 1
    if follow:
        assert next(reading)["offset"][0].as_py() == first
    else:
        assert list(reading) == []
    reading.close()
