"""The example runs from an empty directory."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

ROOT = Path(__file__).parents[2]


def test_the_example_runs_in_an_empty_directory(tmp_path):
    command = [sys.executable, "-W", "ignore", ROOT / "examples/spark/flights.py"]
    # Paths of sockets have at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="oz-") as bus:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OZ_DIRECTORY": bus}
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    assert ended.returncode == 0, ended.stderr
    assert "recorded 27,004 messages, 0 lost" in ended.stdout
    assert "archived 27,004 records up to offset 27,004" in ended.stdout
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert len(re.findall(r"^\|[A-Z]{3}\|", ended.stdout.replace(" ", ""), re.MULTILINE)) == 5, ended.stdout
    assert "|flight.JFK.>" in ended.stdout
