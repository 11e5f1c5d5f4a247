import json

import pytest
import zmq

from oz.transport import capabilities


def test_it_shows_each_feature_and_the_line_that_adds_a_missing_feature(oz):
    result = oz("doctor")
    assert result.exit_code == 0
    for name in (
        "pyzmq",
        "libzmq",
        "pgm",
        "curve",
        "ipc",
        "draft",
        "pyarrow",
        "pyspark",
        "java",
        "open-files",
    ):
        assert f" {name} " in result.stdout or f" {name}\n" in result.stdout
    if not zmq.has("pgm"):
        assert f"\n      add it: {capabilities.pgm_line()}\n" in result.stdout


def test_missing_requirements_are_named_and_exit_1(oz, monkeypatch):
    monkeypatch.setattr(zmq, "has", lambda feature: feature != "pgm")
    assert oz("doctor", "--require", "curve").exit_code == 0
    result = oz("doctor", "--require", "pgm", "--require", "curve")
    assert result.exit_code == 1
    assert result.stderr == "oz doctor: missing: pgm\n"


def test_json_says_all_that_is_shown(oz, monkeypatch):
    monkeypatch.setattr(zmq, "has", lambda feature: feature != "pgm")
    result = oz("doctor", "--json", "--require", "pgm")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert data["ok"] is False
    found = {item["name"]: item for item in data["findings"]}
    assert found["pgm"]["state"] == "no"
    assert found["pgm"]["add"] == capabilities.pgm_line()
    assert set(found["pgm"]) == {"name", "group", "state", "value", "note", "add"}


@pytest.mark.parametrize("columns", [36, 80])
def test_it_folds_for_a_narrow_screen_all_but_the_lines_to_paste(oz, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("JAVA_HOME", "")
    lines = [line for line in oz("doctor").stdout.splitlines() if "add it: " not in line and "/" not in line]
    assert max(map(len, lines)) <= columns
