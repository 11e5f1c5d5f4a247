"""The example runs from an empty directory, in the session of the tests."""

import re
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

EXAMPLE = Path(__file__).parents[2] / "examples/spark/flights.py"


def test_the_example_runs_in_an_empty_directory(spark, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    # Paths of sockets have at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="oz-") as bus:
        monkeypatch.setenv("OZ_DIRECTORY", bus)
        # Java has the directory in which it started, so that Spark needs the whole path.
        program = EXAMPLE.read_text("utf-8").replace('"archive"', repr(str(tmp_path / "archive")))
        exec(compile(program, str(EXAMPLE), "exec"), {"__name__": "__main__"})
    out = capsys.readouterr().out
    assert "recorded 27,004 messages, 0 lost" in out
    assert "archived 27,004 records up to offset 27,004" in out
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert len(re.findall(r"^\|[A-Z]{3}\|", out.replace(" ", ""), re.MULTILINE)) == 5, out
    assert "|flight.JFK.>" in out
