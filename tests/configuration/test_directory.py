import os
import stat
from pathlib import Path

import pytest

import oz
from oz.configuration import private_directory, resolve


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def umask():
    before = os.umask(0)
    yield os.umask
    os.umask(before)


def test_nodes_meet_in_the_runtime_directory_of_their_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/")
    monkeypatch.setattr(os, "geteuid", lambda: Path("/").stat().st_uid)
    assert resolve().directory == Path("/oz")


def test_a_runtime_directory_that_is_not_there_or_relative_does_not_count(tmp_path, monkeypatch):
    for wrong in ("/no/such/directory", "work", ""):
        monkeypatch.setenv("XDG_RUNTIME_DIR", wrong)
        assert resolve().directory == Path(f"/tmp/oz-{os.geteuid()}")


def test_the_runtime_directory_of_another_user_is_ignored(tmp_path, monkeypatch, foreign_owner):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    foreign_owner(tmp_path)
    assert resolve().directory == Path(f"/tmp/oz-{os.geteuid()}")


def test_the_variable_tmpdir_sets_the_temporary_directory(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    assert resolve().directory == Path(f"/var/tmp/oz-{os.geteuid()}")
    monkeypatch.setenv("TMPDIR", "relative")
    assert resolve().directory == Path(f"/tmp/oz-{os.geteuid()}")


def test_it_is_private_to_its_owner_for_each_umask(tmp_path, umask):
    made = private_directory(tmp_path / "a" / "b")
    assert made == tmp_path / "a" / "b"
    assert mode(made) == mode(made.parent) == 0o700
    assert private_directory(str(made)) == made


def test_another_node_may_be_faster_to_make_it(tmp_path, monkeypatch):
    look = os.path.lexists

    def look_while_another_makes_it(path):
        is_there = look(path)
        if not is_there:
            os.mkdir(path, 0o700)
        return is_there

    monkeypatch.setattr(os.path, "lexists", look_while_another_makes_it)
    assert private_directory(tmp_path / "oz") == tmp_path / "oz"


@pytest.mark.parametrize("wrong", [0o777, 0o770, 0o755, 0o701, 0o500])
def test_a_directory_that_lets_others_in_is_not_trusted(wrong, tmp_path):
    path = tmp_path / "oz"
    path.mkdir()
    path.chmod(wrong)
    with pytest.raises(oz.ConfigurationError) as caught:
        private_directory(path, source="environment variable OZ_DIRECTORY")
    assert str(caught.value) == (
        f"environment variable OZ_DIRECTORY: directory = {str(path)!r}: its mode is {wrong:04o}, "
        f"which lets other users in: chmod 700 {path}, or give another path"
    )
    assert mode(path) == wrong  # oz does not change the mode, which may be intended
    path.chmod(0o700)
    assert private_directory(path) == path


def test_a_directory_of_another_user_is_not_trusted(tmp_path, foreign_owner):
    path = private_directory(tmp_path / "oz")
    owner = foreign_owner(path)
    with pytest.raises(oz.ConfigurationError, match=f"it belongs to user {owner}, who could impersonate"):
        private_directory(path)


def test_a_symbolic_link_is_not_trusted(tmp_path):
    private_directory(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for path in (tmp_path / "link", f"{tmp_path / 'link'}/"):
        with pytest.raises(oz.ConfigurationError, match="symbolic link"):
            private_directory(path)
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    with pytest.raises(oz.ConfigurationError, match="symbolic link"):
        private_directory(tmp_path / "dangling")


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "oz").touch(0o700)
    with pytest.raises(oz.ConfigurationError, match="not a directory"):
        private_directory(tmp_path / "oz")
    with pytest.raises(oz.ConfigurationError, match="Not a directory"):
        private_directory(tmp_path / "oz" / "below")


def test_a_directory_that_other_users_can_replace_is_not_trusted(tmp_path):
    above = tmp_path / "shared"
    above.mkdir()
    above.chmod(0o777)
    with pytest.raises(oz.ConfigurationError, match=f"all users can replace it.*chmod \\+t {above}"):
        private_directory(above / "deep" / "oz")
    above.chmod(0o1777)  # sticky, as /tmp is
    assert private_directory(above / "deep" / "oz") == above / "deep" / "oz"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_where_this_user_may_not_write_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(oz.ConfigurationError, match="Permission denied; give a directory"):
        private_directory(tmp_path / "oz")


def test_a_directory_for_all_users_is_refused_with_one_to_give(tmp_path):
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o1777)  # as /tmp, whose mode must not change
    with pytest.raises(oz.ConfigurationError) as refused:
        private_directory(path)
    assert f"give {path / f'oz-{os.getuid()}'}" in str(refused.value)
    assert "chmod" not in str(refused.value)
    assert "remove" not in str(refused.value)
