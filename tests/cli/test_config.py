import json
import os

import pytest


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("OZ_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def row(result, name):
    return next(line.split(maxsplit=2) for line in result.stdout.splitlines() if line.startswith(f"{name} "))


def test_it_shows_each_value_and_where_it_came_from(oz, work, monkeypatch):
    (work / "oz.toml").write_text('[node]\nconnect = ["tcp://ns1:5756"]\nname = "desk"\n')
    monkeypatch.setenv("OZ_BUS", "trading")
    result = oz("config", "show")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert row(result, "bus") == ["bus", "trading", "environment variable OZ_BUS"]
    assert row(result, "name") == ["name", "desk", f"file {work / 'oz.toml'}"]
    assert row(result, "connect") == ["connect", "tcp://ns1:5756", f"file {work / 'oz.toml'}"]
    assert row(result, "bind") == ["bind", "-", "default"]


def test_json_says_all_that_is_shown(oz, work):
    (work / "oz.toml").write_text('[node]\nconnect = ["tcp://h:1", "tcp://h:2"]\n')
    data = json.loads(oz("config", "show", "--json").stdout)
    assert data["ok"] is True
    found = {item["name"]: item for item in data["settings"]}
    source = f"file {work / 'oz.toml'}"
    assert found["connect"] == {
        "name": "connect",
        "value": ["tcp://h:1", "tcp://h:2"],
        "source": source,
        "ok": True,
    }
    assert found["name"]["value"] is None
    assert found["bus"]["value"] == "default"
    assert [item["state"] for item in data["files"]] == ["read", "not needed"]
    assert (data["faults"], data["unused"]) == ([], {})


def test_a_broken_file_is_named_and_the_rest_is_shown(oz, work, monkeypatch):
    (work / "oz.toml").write_text("[node\n")
    monkeypatch.setenv("OZ_BUS", "trading")
    result = oz("config", "show")
    assert result.exit_code == 1
    assert row(result, "bus") == ["bus", "trading", "environment variable OZ_BUS"]
    assert f"wrong       {work / 'oz.toml'}" in result.stdout
    assert result.stderr.startswith(f"oz config show: file {work / 'oz.toml'}: not TOML: ")
    assert result.stderr.count("\n") == 1
    result = oz("config", "show", "--json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert data["ok"] is False
    assert "not TOML" in data["faults"][0]


def test_each_wrong_value_is_shown_as_it_was_written(oz, work, monkeypatch):
    (work / "oz.toml").write_text("[node]\nbind = nan\nname = 2000-01-01\n")
    monkeypatch.setenv("OZ_BUS", "a.b")
    result = oz("config", "show")
    assert result.exit_code == 1
    assert row(result, "bind") == ["bind", "nan", f"file {work / 'oz.toml'} (wrong)"]
    assert row(result, "bus")[1] == "a.b"
    assert len(result.stderr.splitlines()) == 3

    def refuse(constant):
        raise AssertionError(f"{constant} is not in the standard of JSON")

    data = json.loads(oz("config", "show", "--json").stdout, parse_constant=refuse)
    assert [item["name"] for item in data["settings"] if not item["ok"]] == [
        "bus",
        "name",
        "bind",
    ]


def test_control_characters_are_escaped(oz, monkeypatch):
    monkeypatch.setenv("OZ_BUS", os.fsdecode(b"\xff\x1b[31m"))
    for arguments in ([], ["--json"]):
        result = oz("config", "show", *arguments)
        assert result.exit_code == 1
        assert "\\xff" in result.stdout
        assert "\x1b" not in result.output


def test_misspelled_variable_is_a_warning(oz, monkeypatch):
    monkeypatch.setenv("OZ_CONNECTS", "tcp://ns1:5756")
    result = oz("config", "show")
    assert result.exit_code == 0
    assert result.stderr == ("oz config show: warning: OZ_CONNECTS has no effect; did you mean OZ_CONNECT?\n")


def test_sources_of_keys_and_their_faults_are_shown(oz, work, monkeypatch):
    file = work / "oz.toml"
    file.write_text('[security]\nkey = "feed.key_secret"\ntrusted = "trusted"\n')
    result = oz("config", "show")
    assert result.exit_code == 1
    assert row(result, "security.key") == ["security.key", "feed.key_secret", f"file {file}"]
    assert "feed.key_secret" in result.stderr
    monkeypatch.setenv("OZ_SECURITY", "other.toml")
    shown = json.loads(oz("config", "show", "--json").stdout)
    assert not shown["ok"]
    assert shown["security"] == [
        {"name": "file", "value": str(work / "other.toml"), "source": "environment variable OZ_SECURITY"}
    ]
