"""Spark Connect: what works with a server, and what is refused with a reason."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")
pytest.importorskip("grpc", reason="needs: pip install 'pyspark[connect]'")

import oz
from oz.journal_new import Writer

HERE = Path(__file__).parent


@pytest.mark.heavy
def test_a_connect_server_runs_all_but_what_needs_its_files(tmp_path):
    with Writer(tmp_path / "journal") as writer:
        writer.append([(f"n.{number % 7}", b"%d" % number) for number in range(70)])
    paths = [str(Path(oz.__file__).parents[1]), str(HERE.parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
    driver = [sys.executable, HERE / "connect_driver.py", tmp_path / "journal", tmp_path]
    ran = subprocess.run(
        list(map(str, driver)), env=environment, capture_output=True, text=True, timeout=1_000, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    assert "run `oz spark archive` on the machine of the server" in told.pop("archive")
    assert told == {"read": 70, "native": 10, "by Python": 70, "stream": 70, "report": 70}
