"""Source, sink and columns in a session of Spark Connect."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")
pytest.importorskip("grpc", reason="needs: pip install 'pyspark[connect]'")

from oz.journal import Writer
from spark.journals import append_numbers
from support.scripts import ENVIRONMENT


@pytest.mark.heavy
def test_a_connect_server_runs_source_sink_and_columns(tmp_path):
    with Writer(tmp_path / "journal") as writer:
        append_numbers(writer, 0, 50)
        append_numbers(writer, 50, 70, roll=False)
        driver = [
            sys.executable,
            Path(__file__).with_name("connect_driver.py"),
            tmp_path / "journal",
            tmp_path,
        ]
        ran = subprocess.run(
            list(map(str, driver)),
            env={**ENVIRONMENT, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=1_000,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr[-4000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert "run `oz spark archive` on the machine of the server" in found.pop("archive")
    assert found == {"source": 70, "read": 14, "matches": 14, "match_all": 70, "stream": 70, "report": 70}
