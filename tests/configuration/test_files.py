import os
from pathlib import Path

import pytest

import oz
from oz.configuration import resolve, resolve_limits, security_source, survey


def states():
    return {candidate.path: candidate.state for candidate in survey().candidates}


WORK, USER = "work/oz.toml", "home/.config/oz/config.toml"


@pytest.mark.parametrize(
    ("files", "variables", "read"),
    [
        ([WORK, USER], {}, WORK),
        ([USER], {}, USER),
        ([USER, "xdg/oz/config.toml"], {"XDG_CONFIG_HOME": "{}/xdg"}, "xdg/oz/config.toml"),
        # A relative path does not count.
        ([USER, "work/xdg/oz/config.toml"], {"XDG_CONFIG_HOME": "xdg"}, USER),
        ([WORK, "elsewhere/my.toml"], {"OZ_CONFIG": "{}/elsewhere/my.toml"}, "elsewhere/my.toml"),
        ([WORK, "elsewhere/my.toml"], {"OZ_CONFIG": "../elsewhere/my.toml"}, "elsewhere/my.toml"),
        ([WORK, "elsewhere/my.toml"], {"OZ_CONFIG": "~/../elsewhere/my.toml"}, "elsewhere/my.toml"),
    ],
)
def test_one_file_is_read(tmp_path, monkeypatch, write_file, files, variables, read):
    for number, name in enumerate(files):
        write_file(f'[node]\nbus = "bus-{number}"\n', name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    assert resolve().bus == f"bus-{files.index(read)}"
    assert resolve().sources["bus"] == f"file {tmp_path / read}"
    assert [path for path, state in states().items() if state == "read"] == [tmp_path / read]


def test_oz_config_can_name_no_file_at_all(monkeypatch, write_file):
    write_file("[node]\nthreads = 0\n")
    monkeypatch.setenv("OZ_CONFIG", "/dev/null")
    assert resolve().name is None


def test_a_file_that_oz_config_names_must_be_there(tmp_path, monkeypatch):
    monkeypatch.setenv("OZ_CONFIG", str(tmp_path / "gone.toml"))
    with pytest.raises(oz.ConfigurationError, match=r"gone\.toml: No such file.*OZ_CONFIG"):
        resolve()
    assert states() == {tmp_path / "gone.toml": "wrong"}


def test_a_directory_is_no_file(tmp_path, monkeypatch):
    (tmp_path / "work" / "oz.toml").mkdir()
    assert resolve().bus == "default"
    monkeypatch.setenv("OZ_CONFIG", "oz.toml")
    with pytest.raises(oz.ConfigurationError, match=r"oz\.toml: Is a directory"):
        resolve()


BROKEN = [
    b"[node\n",
    b"[node]\nbus = default\n",
    b'[node]\nbus = "\xff"\n',
    b"[node]\nthreads = " + b"9" * 5_000 + b"\n",
    b"[node]\nthreads = " + b"[" * 5_000 + b"\n",
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_an_error_of_toml_names_the_file_and_the_remedy(text, write_file):
    path = write_file(text)
    with pytest.raises(oz.ConfigurationError) as caught:
        resolve()
    assert str(caught.value).startswith(f"file {path}: not TOML: ")
    assert "OZ_CONFIG" in str(caught.value)
    assert caught.value.setting is None


def test_an_unknown_key_is_refused_with_a_suggestion(write_file):
    path = write_file('[node]\nconect = "tcp://ns1:5756"\n')
    with pytest.raises(oz.ConfigurationError) as caught:
        resolve()
    assert str(caught.value) == (
        f"file {path}: conect = 'tcp://ns1:5756': no setting has this name; did you mean connect?"
    )
    write_file("[node]\nxyzzy = 1\n")
    with pytest.raises(
        oz.ConfigurationError, match="xyzzy = 1: no setting has this name; the settings are bus, name"
    ):
        resolve()


def test_settings_belong_to_their_table(write_file):
    write_file('bus = "trading"\n')
    with pytest.raises(oz.ConfigurationError, match=r"bus = 'trading': write it below a line \[node\]"):
        resolve()
    write_file('node = "trading"\n')
    with pytest.raises(
        oz.ConfigurationError, match=r"node = 'trading': write settings below a line \[node\]"
    ):
        resolve()


def test_tables_of_other_programs_are_ignored(write_file):
    write_file('[tool]\nbus = "theirs"\n[node]\nbus = "ours"\n')
    assert resolve().bus == "ours"


@pytest.mark.parametrize(("name", "meant"), [("securty", "security"), ("Limit", "limits"), ("nodes", "node")])
@pytest.mark.parametrize("ask", [resolve, resolve_limits, security_source])
def test_a_table_that_is_nearly_one_of_ours_is_refused(ask, name, meant, write_file):
    write_file(f'[{name}]\nkey = "feed.key_secret"\n')
    with pytest.raises(oz.ConfigurationError, match=rf"\[{name}\].* did you mean \[{meant}\]"):
        ask()


def test_a_file_of_another_user_in_a_shared_directory_is_refused(write_file, monkeypatch, foreign_owner):
    path = write_file('[node]\nbus = "theirs"\n')
    path.parent.chmod(0o1777)
    assert resolve().bus == "theirs"
    foreign_owner(path)
    with pytest.raises(oz.ConfigurationError, match=r"another user created it.*OZ_CONFIG="):
        resolve()
    monkeypatch.setenv("OZ_CONFIG", str(path))
    assert resolve().bus == "theirs"


def test_a_working_directory_that_was_removed_holds_no_file(tmp_path, monkeypatch, write_file):
    write_file('[node]\nbus = "user"\n', "home/.config/oz/config.toml")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert resolve().bus == "user"
    monkeypatch.chdir(Path("/"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_named(write_file):
    path = write_file('[node]\nbus = "theirs"\n')
    path.chmod(0)
    with pytest.raises(oz.ConfigurationError, match=r"oz\.toml: Permission denied; make it readable"):
        resolve()


def fault(monkeypatch, path):
    monkeypatch.setenv("OZ_CONFIG", str(path))
    [said] = survey().faults
    return said.rule


def test_a_pipe_or_a_device_is_no_file_and_is_not_waited_for(monkeypatch, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        assert "pipe or a device" in fault(monkeypatch, path)


def test_a_file_is_read_to_a_bound(monkeypatch, tmp_path):
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 34)
    assert "larger than 65,536 bytes" in fault(monkeypatch, tmp_path / "sparse")


def test_a_key_of_ten_thousand_parts_is_not_parsed(monkeypatch, write_file):
    assert "more than 1000 dots" in fault(monkeypatch, write_file(f"a{'.a' * 10_000} = 1"))
