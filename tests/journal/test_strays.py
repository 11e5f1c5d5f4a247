"""Files that only have names like a journal's: nobody takes them for its own, and nobody touches them.

The journal is that of `journal_damage`: sealed segments 0, 30 and 60, and the stream 90, up to offset 120.
"""

import json
import logging
import os
import shutil
from dataclasses import dataclass

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import oz
from oz.cli import main
from oz.journal import Journal, Writer
from oz.journal.own import segments
from support import waiting
from support.inside import segments_of
from support.journal_damage import ACKNOWLEDGED, END, OPTIONS, group, make, read_all
from support.sizes import one_of_each

NEW = [payload for _, payload in group(0, 5, "second")]
FAR = 9_999_999_999


@dataclass(frozen=True)
class Stray:
    """A file of no journal, or of another.

    Attributes:
        name: the name of the file.
        content: `"empty"`, `"garbage"`, `"other"` (another journal's segment), `"own"` (one of this one,
            of another offset), `"directory"`, `"dangling"` or `"pipe"`.
    """

    name: str
    content: str

    def put(self, made):
        path = made.directory / self.name
        if self.content == "directory":
            path.mkdir()
        elif self.content == "dangling":
            path.symlink_to(made.directory / "nowhere")
        elif self.content == "pipe":
            os.mkfifo(path)
        elif self.content == "own":
            shutil.copy(made.sealed(0) if path.suffix == ".arrow" else made.stream, path)
        elif self.content == "other":
            shutil.copy(_OTHER[0] / f"{0 if path.suffix == '.arrow' else 90:020d}{path.suffix}", path)
        else:
            path.write_bytes(b"" if self.content == "empty" else b"?" * 3000)

    def is_as_it_was(self, directory):
        path = directory / self.name
        if self.content == "directory":
            return path.is_dir()
        if self.content == "dangling":
            return path.is_symlink()
        return path.exists()


_OTHER = []


@pytest.fixture(scope="module", autouse=True)
def other(tmp_path_factory):
    """Another journal, of the same records."""
    _OTHER[:] = [tmp_path_factory.mktemp("another") / "journal"]
    with Writer(_OTHER[0], **OPTIONS) as writer:
        for first in range(0, END, 10):
            writer.append(group(first))


def named(base, sealed=True):
    return f"{base:020d}.arrow" + ("" if sealed else "s")


STRAYS = [
    *(Stray(named(FAR), content) for content in ("empty", "other", "own", "directory")),
    *(Stray(named(FAR, sealed=False), content) for content in ("empty", "own")),
    Stray(f"{'9' * 20}.arrow", "own"),
    Stray(f"{'9' * 20}.arrows", "empty"),
    *(Stray(named(45), content) for content in ("empty", "own")),  # within a sealed segment
    Stray(named(105), "empty"),  # within the stream
    Stray(named(105, sealed=False), "own"),
    *(Stray(named(END), content) for content in ("empty", "other", "directory")),  # where it ends
    *(Stray(named(END, sealed=False), content) for content in ("garbage", "other")),
    *(Stray(named(90), content) for content in ("empty", "other", "own", "dangling")),  # beside a stream
    *(Stray(named(30, sealed=False), content) for content in ("empty", "other", "pipe")),
]


def put(tmp_path, stray):
    made = make(tmp_path)
    stray.put(made)
    return made.directory


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("oz.journal").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("oz.journal").setLevel(logging.NOTSET)


def of_strays(law):
    """Try a law on each sixth stray in the suite, so that one law has each, and the heavy run on all."""
    params = [
        pytest.param(
            stray,
            marks=() if at % 6 == law else pytest.mark.heavy,
            id=f"{stray.name.lstrip('0')}-{stray.content}",
        )
        for at, stray in enumerate(STRAYS)
    ]
    return pytest.mark.parametrize("stray", params)


@pytest.fixture
def directory(tmp_path, stray):
    return put(tmp_path, stray)


def is_kept(directory, stray):
    """It is there as it was, or beside what took its place."""
    return (
        stray.is_as_it_was(directory) and stray.name not in [one.name for one in segments(directory)]
    ) or any(one.name.startswith(f"{stray.name}.damaged") for one in directory.iterdir())


def check(directory, stray, more=()):
    expected = [*ACKNOWLEDGED.items(), *((END + at, payload) for at, payload in enumerate(more))]
    assert read_all(directory) == expected
    assert is_kept(directory, stray)


@of_strays(0)
def test_readers_and_commands_pass_a_stray_by_and_verify_names_it(directory, stray, tmp_path):
    before = sorted(os.listdir(directory))
    journal = Journal(directory)
    assert (journal.first_offset, journal.end_offset) == (0, END)
    assert journal.table(start=20, end=110, columns=["offset"])["offset"].to_pylist() == list(range(20, 110))
    assert [one.offset for one in journal.read(start=106)] == list(range(106, END))
    (directory / "acknowledged").rename(tmp_path / "acknowledged")  # so that what is intact counts
    assert journal.end_offset == END
    check(directory, stray)
    (tmp_path / "acknowledged").rename(directory / "acknowledged")
    [finding] = journal.verify().findings
    assert finding.file == stray.name
    run = CliRunner().invoke
    assert run(main, ["journal", "info", "--json", str(directory)]).exit_code == 0
    listed = json.loads(run(main, ["journal", "ls", "--json", str(directory)]).stdout)
    assert [row["first"] for row in listed] == [0, 30, 60, 90]
    exported = run(main, ["journal", "export", str(directory)])
    assert exported.stdout.count("\n") == END
    verified = run(main, ["journal", "verify", str(directory)])
    assert (verified.exit_code, stray.name in verified.stdout) == (1, True)
    assert sorted(os.listdir(directory)) == before


@of_strays(1)
def test_a_writer_goes_on_beside_a_stray_and_a_follower_too(directory, stray):
    followed = Journal(directory).read(follow=True, end=END + 5)
    found = [next(followed).payload for _ in range(END)]
    with Writer(directory, **OPTIONS) as writer:
        assert any(one.file == stray.name for one in writer.findings)
        assert not any(one.records for one in writer.findings)
        assert writer.append(group(0, 5, "second")) == END + 5
        rest = waiting.Thread(lambda: [one.payload for one in followed]).outcome()
        writer.check_files()
    assert found + rest == [*ACKNOWLEDGED.values(), *NEW]
    check(directory, stray, NEW)


@of_strays(2)
def test_a_stray_where_a_later_segment_begins_is_kept_beside_it(directory, stray):
    with Writer(directory, segment_bytes=1, sync="never") as writer:
        for at, payload in enumerate(NEW):
            assert writer.append([("a.0", payload)]) == END + at + 1
    Writer(directory).close()
    check(directory, stray, NEW)


@of_strays(3)
def test_retention_removes_no_stray(directory, stray):
    with Writer(directory, segment_bytes=1, sync="never", retain_bytes=1) as writer:
        for payload in NEW:
            writer.append([("a.0", payload)])
        segments_of(writer).finish()
        segments_of(writer).make_room()
    assert Journal(directory).first_offset == END + 4
    assert [one.payload for one in Journal(directory).read()] == NEW[4:]
    assert is_kept(directory, stray)


@of_strays(4)
def test_repair_touches_no_stray(directory, stray):
    result = CliRunner().invoke(main, ["journal", "repair", str(directory)])
    assert result.exit_code == 0
    assert stray.name in result.stdout
    check(directory, stray)
    Journal(directory).repair()
    check(directory, stray)


@of_strays(5)
def test_without_its_manifest_a_journal_is_told_from_strays_too(directory, stray):
    (directory / "manifest.json").unlink()
    check(directory, stray)
    assert Journal(directory).repair().segments == 4
    check(directory, stray)


# What stands in the place of a segment -------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "name", "manifest"),
    one_of_each(
        ["other", "own", "empty", "directory", "pipe"],
        [named(0), named(30), named(90, sealed=False)],
        [True, False],
    ),
)
def test_what_stands_where_a_segment_was_is_not_read_and_kept(tmp_path, name, content, manifest):
    made = make(tmp_path)
    path = made.directory / name
    stray = Stray(name, content)
    aside = path.rename(tmp_path / "aside")
    if content == "own":
        shutil.copy(made.sealed(60), path)
    else:
        stray.put(made)
    aside.unlink()
    if not manifest:
        (made.directory / "manifest.json").unlink()
    lost = range(int(path.stem), min(END, int(path.stem) + 30))
    if manifest or lost.start:
        with pytest.raises(oz.JournalError):
            read_all(made.directory)
    assert any(one.file == name for one in Journal(made.directory).verify().findings)
    Journal(made.directory).repair()
    found = dict(read_all(made.directory))
    first = 0 if manifest or content in ("empty", "garbage") else min(found)
    assert list(found) == list(range(first, END))
    assert all(found[at] == ACKNOWLEDGED[at] for at in found if at not in lost)
    assert not any(found.get(at) for at in lost)
    assert [one for one in os.listdir(made.directory) if one == name or one.startswith(f"{name}.damaged")]


def test_files_of_two_journals_without_a_note_are_not_touched(tmp_path):
    made = make(tmp_path)
    made.sealed(0).unlink()
    Stray(named(0), "other").put(made)
    for name in ("manifest.json", "acknowledged", "epochs.json"):
        (made.directory / name).unlink()
    before = {path.name: path.read_bytes() for path in made.directory.iterdir() if path.name != "writer.lock"}
    journal = Journal(made.directory)
    for work in (
        lambda: list(journal.read()),
        journal.verify,
        journal.repair,
        lambda: Writer(made.directory),
    ):
        with pytest.raises(oz.JournalError, match="nothing tells which journal this is"):
            work()
    left = {path.name: path.read_bytes() for path in made.directory.iterdir() if path.name != "writer.lock"}
    assert left == before


def test_a_manifest_of_another_journal_counts_nothing(tmp_path):
    made = make(tmp_path)
    shutil.copy(_OTHER[0] / "manifest.json", made.directory)
    assert read_all(made.directory) == list(ACKNOWLEDGED.items())
    assert [one.file for one in Journal(made.directory).verify().findings] == ["manifest.json"]
    with Writer(made.directory, **OPTIONS) as writer:
        assert [one.file for one in writer.findings] == ["manifest.json"]
    assert Journal(made.directory).verify().ok
    assert read_all(made.directory) == list(ACKNOWLEDGED.items())


# Notes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["deep", "directory", "dangling", "pipe"])
@pytest.mark.parametrize("name", ["manifest.json", "epochs.json", "acknowledged"])
def test_what_stands_in_the_place_of_a_note_counts_as_damaged(tmp_path, name, way):
    made = make(tmp_path)
    (made.directory / name).unlink()
    if way == "deep":
        (made.directory / name).write_text("[" * 200_000)
    else:
        Stray(name, way).put(made)
    journal = Journal(made.directory)
    assert read_all(made.directory) == list(ACKNOWLEDGED.items())
    assert journal.end_offset == END
    assert [one.file for one in journal.verify().findings] == [name]
    with Writer(made.directory, **OPTIONS) as writer:
        assert {one.file for one in writer.findings} == {name}
        assert writer.append(group(0, 5, "second")) == END + 5
    assert journal.verify().ok
    assert os.path.lexists(made.directory / f"{name}.damaged") == (way != "deep")


@pytest.mark.parametrize("work", [Writer, lambda directory: Journal(directory).repair()])
def test_a_directory_in_the_place_of_the_lock_is_said(tmp_path, work):
    made = make(tmp_path)
    (made.directory / "writer.lock").unlink()
    (made.directory / "writer.lock").mkdir()
    with pytest.raises(oz.JournalError, match=r"writer\.lock is a directory"):
        work(made.directory)
    assert read_all(made.directory) == list(ACKNOWLEDGED.items())


def test_a_fault_of_the_system_in_a_repair_is_a_journal_error(tmp_path):
    made = make(tmp_path)
    (made.directory / "manifest.json.tmp").mkdir()
    with pytest.raises(oz.JournalError, match="cannot be repaired"):
        Journal(made.directory).repair()


# At random -----------------------------------------------------------------------------------------

bases = st.one_of(st.integers(0, 200), st.sampled_from([0, 30, 60, 90, END]), st.integers(0, 10**20 - 1))
contents = st.sampled_from(["empty", "garbage", "other", "own", "directory", "dangling", "pipe"])


@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(st.tuples(bases, st.booleans(), contents), min_size=1, max_size=6), st.booleans(), st.booleans()
)
def test_any_strays_together_neither_hide_nor_add_a_record(tmp_path_factory, some, manifest, repairs):
    made = make(tmp_path_factory.mktemp("strays"))
    added = []
    for base, sealed, content in some:
        stray = Stray(named(base, sealed), content)
        if not os.path.lexists(made.directory / stray.name):
            stray.put(made)
            added.append(stray)
    if not manifest:
        (made.directory / "manifest.json").unlink()
    assert read_all(made.directory) == list(ACKNOWLEDGED.items())
    if repairs:
        Journal(made.directory).repair()
    with Writer(made.directory, **OPTIONS) as writer:
        assert writer.append(group(0, 5, "second")) == END + 5
    assert [payload for _, payload in read_all(made.directory)] == [*ACKNOWLEDGED.values(), *NEW]
    for stray in added:
        assert is_kept(made.directory, stray)
