import json

import pytest

from oz.transport.certificates import read_public, read_trusted

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"


@pytest.fixture
def keys(tmp_path):
    return tmp_path / "keys"


def test_a_new_key_is_shown_and_can_be_trusted_elsewhere(oz, keys, tmp_path):
    made = oz("keys", "new", "desk", "--key-directory", str(keys))
    assert made.exit_code == 0
    public = read_public(keys / "desk.key")
    assert f"public key   {public}" in made.stdout

    shown = oz("keys", "show", "--key-directory", str(keys))
    assert [line.split() for line in shown.stdout.splitlines()[1:]] == [[public, "yes", "desk"]]
    shown = oz("keys", "show", "--key-directory", str(keys), "--json")
    assert json.loads(shown.stdout) == [{"name": "desk", "public_key": public, "secret": True}]

    given = tmp_path / "given.key"
    given.write_text(oz("keys", "export", "desk", "--key-directory", str(keys)).stdout)
    trusted = tmp_path / "trusted"
    assert oz("keys", "trust", str(given), "--name", "desk", "--in", str(trusted)).exit_code == 0
    assert oz("keys", "trust", KEY, "--name", "engine", "--in", str(trusted)).exit_code == 0
    assert read_trusted(trusted) == {public: "desk", KEY: "engine"}

    # No command prints a secret.
    secret = (keys / "desk.key_secret").read_text().split('secret-key = "')[1][:40]
    named = [oz("keys", command, str(keys / "desk.key_secret")) for command in ("show", "export")]
    for result in (made, shown, *named):
        assert result.exit_code == 0
        assert secret not in result.stdout + result.stderr


def test_keys_are_in_the_users_configuration(oz, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert oz("keys", "new", "desk").exit_code == 0
    assert (tmp_path / "oz" / "keys" / "desk.key_secret").stat().st_mode & 0o777 == 0o600


def test_a_key_is_trusted_once_and_needs_a_name(oz, tmp_path):
    trusted = str(tmp_path / "trusted")
    assert oz("keys", "trust", KEY, "--in", trusted).exit_code == 2
    assert oz("keys", "trust", KEY, "--in", trusted, "--name", "desk").exit_code == 0
    assert oz("keys", "trust", KEY, "--in", trusted, "--name", "other").exit_code == 2
    assert oz("keys", "trust", "nothing.key", "--in", trusted).exit_code == 1
    secret = oz("keys", "trust", "desk.key_secret", "--in", trusted)
    assert secret.exit_code == 2
    assert "desk.key_secret has the secret key; give desk.key, the public one" in secret.stderr


@pytest.mark.parametrize("name", ["", "../evil", ".hidden", "a b", "x" * 101])
def test_invalid_name_exits_2_and_writes_nothing(oz, tmp_path, name):
    made = oz("keys", "new", name, "--key-directory", str(tmp_path))
    assert made.exit_code == 2
    assert "use letters, digits and .-_@, 100 at most, and begin with no dot" in made.stderr
    assert oz("keys", "trust", KEY, "--name", name, "--in", str(tmp_path)).exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_show_refuses_a_secret_that_others_may_read(oz, keys):
    oz("keys", "new", "desk", "--key-directory", str(keys))
    (keys / "desk.key_secret").chmod(0o644)
    result = oz("keys", "show", "desk", "--key-directory", str(keys))
    assert result.exit_code == 1
    assert "chmod 600" in result.stderr


def test_a_file_in_place_of_the_directory_of_trusted_keys_is_named(oz, tmp_path):
    (tmp_path / "trusted").write_text("")
    result = oz("keys", "trust", KEY, "--name", "desk", "--in", str(tmp_path / "trusted"))
    assert result.exit_code == 1
    assert "File exists" in result.stderr
    assert str(tmp_path / "trusted") in result.stderr
