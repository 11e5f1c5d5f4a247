"""Somebody else may write into a journal's directory, and plants links, pipes and devices there."""

import os
import stat

import pytest
from click.testing import CliRunner

import oz
from oz.cli import main
from oz.journal import Journal, Writer
from oz.system import refuse_planted
from support.sizes import one_of_each

SECRET = b"somebody else's file\n"
FIRST = f"{0:020d}"
NOTES = ("writer.lock", "acknowledged", "manifest.json", "epochs.json")
TEMPORARY = ("manifest.json.tmp", "epochs.json.tmp", f"{FIRST}.arrow.tmp", f"{100:020d}.arrows.tmp")
SEGMENTS = (f"{FIRST}.arrow", f"{FIRST}.arrows", f"{200:020d}.arrows")


STATES = ["growing", "sealed"]


@pytest.fixture
def state():
    return "growing"


@pytest.fixture
def journal(state, tmp_path):
    directory = tmp_path / "journal"
    with Writer(directory, seal_on_close=state == "sealed") as writer:
        writer.append([(f"a.{at}", b"%d" % at) for at in range(100)])
    return directory


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_bytes(SECRET)
    yield path
    assert path.read_bytes() == SECRET
    assert stat.S_IMODE(path.stat().st_mode) != 0


def everything(directory):
    """Do all that is done to a journal; what was said by errors and by findings."""
    said = []

    def write():
        with Writer(directory, segment_bytes=1000) as writer:
            said.extend(map(str, writer.findings))
            writer.append([("b", b"x" * 600)])
            writer.append([("b", b"x" * 600)])

    def look(report):
        said.extend(map(str, report.findings))

    for step in (
        lambda: list(Journal(directory).read()),
        lambda: look(Journal(directory).verify()),
        write,
        lambda: look(Journal(directory).repair()),
        lambda: look(Journal(directory).verify()),
        lambda: list(Journal(directory).read(gaps=True)),
    ):
        try:
            step()
        except oz.JournalError as error:
            said.append(str(error))
    return said


def plant_link(path, victim):
    path.unlink(missing_ok=True)
    path.symlink_to(victim)


def plant_pipe(path, _victim):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def plant_device(path, _victim):
    path.unlink(missing_ok=True)
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero, which never ends
    except PermissionError:
        pytest.skip("only root may make a device here")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "plant", "state"),
    one_of_each([*NOTES, *SEGMENTS], [plant_link, plant_pipe, plant_device], STATES),
)
def test_what_is_no_file_is_neither_read_nor_written(journal, victim, plant, name):
    plant(journal / name, victim)
    assert [one for one in everything(journal) if name in one]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "plant", "state"), one_of_each(TEMPORARY, [plant_link, plant_pipe], STATES[::-1])
)
def test_what_stands_where_a_file_is_begun_is_removed(journal, victim, plant, name):
    plant(journal / name, victim)
    assert not [one for one in everything(journal) if "rror" in one]
    assert not os.path.lexists(journal / name) or (journal / name).is_fifo() or name.startswith(f"{100:020d}")
    with Writer(journal) as writer:
        assert writer.append([("c", b"")]) > 100
    assert Journal(journal).verify().ok


@pytest.mark.parametrize("name", ["writer.lock", "acknowledged"])
def test_a_link_that_comes_while_it_is_written_is_refused(tmp_path, victim, name):
    writer = Writer(tmp_path / "journal")
    writer.append([("a", b"1")])
    plant_link(tmp_path / "journal" / name, victim)
    with pytest.raises(oz.JournalError, match=name):
        writer.check_files()
    with pytest.raises(oz.JournalError, match=name):
        writer.close()
    assert victim.read_bytes() == SECRET


def modes(directory):
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_nobody_else_may_read_a_journal(tmp_path, umask):
    before = os.umask(umask)
    try:
        with Writer(tmp_path / "journal", segment_bytes=1000) as writer:
            for _ in range(5):
                writer.append([("a", b"x" * 600)])
        assert set(modes(tmp_path / "journal").values()) == {0o600}
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o700


def test_a_directory_that_is_there_keeps_its_mode(tmp_path):
    directory = tmp_path / "journal"
    directory.mkdir()
    directory.chmod(0o755)
    with Writer(directory) as writer:
        writer.append([("a", b"")])
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755
    assert set(modes(directory).values()) == {0o600}


def test_the_group_of_a_directory_that_is_set_up_for_one_may_read(tmp_path):
    directory = tmp_path / "journal"
    directory.mkdir()
    directory.chmod(0o2750)
    before = os.umask(0o022)
    try:
        with Writer(directory, segment_bytes=1000) as writer:
            for _ in range(5):
                writer.append([("a", b"x" * 600)])
    finally:
        os.umask(before)
    found = modes(directory)
    assert found.pop("writer.lock") == 0o600  # whoever opens it may lock it
    assert set(found.values()) == {0o640}


@pytest.fixture
def shared(tmp_path):
    """A directory that all may write to, as /tmp is."""
    if os.geteuid() != 0:
        pytest.skip("only root may plant a link as somebody else")
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


def export(journal, path):
    return CliRunner().invoke(main, ["journal", "export", str(journal), str(path), "--format", "parquet"])


def planted(shared, victim, owner):
    link = shared / "out.parquet"
    link.symlink_to(victim)
    os.chown(link, owner, owner, follow_symlinks=False)
    return link


@pytest.mark.parametrize("within", ["", "out.parquet"])
def test_nothing_is_written_where_a_stranger_has_planted_a_link(journal, shared, victim, tmp_path, within):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    link = planted(shared, folder if within else victim, 12345)
    ran = export(journal, link / within)
    assert ran.exit_code == 1, ran.output
    assert "it is a link of user 12345" in ran.stderr
    assert list(folder.iterdir()) == []


def test_a_link_of_ones_own_is_followed(journal, shared, tmp_path):
    target = tmp_path / "target.parquet"
    link = planted(shared, target, os.geteuid())
    ran = export(journal, link)
    assert ran.exit_code == 0, ran.output
    assert target.stat().st_size > 0


def test_what_writes_other_files_asks_the_same(shared, victim):
    with pytest.raises(PermissionError, match="it is a link of user 12345"):
        refuse_planted(planted(shared, victim, 12345))
