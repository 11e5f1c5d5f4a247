"""Source, sink, columns and archive on two executors in processes of their own, and with Spark Connect."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from oz.journal import Writer
from spark.journals import append_numbers
from spark.sink_listening import Listening
from support.scripts import ENVIRONMENT


@pytest.mark.heavy
@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "sc:local[2]"])
def test_each_record_and_each_message_is_there_once(master, tmp_path):
    is_connect = master.startswith("sc:")
    if is_connect:
        pytest.importorskip("grpc", reason="needs: pip install 'pyspark[connect]'")
    with Writer(tmp_path / "journal") as writer, Listening(dedupe=True) as sub:
        append_numbers(writer, 0, 50)
        append_numbers(writer, 50, 70, roll=False)
        driver = Path(__file__).with_name("masters_driver.py")
        ran = subprocess.run(
            [sys.executable, driver, master, tmp_path / "journal", tmp_path, sub.endpoint],
            env={**ENVIRONMENT, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=1_000,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-4000:]
        sub.received(70)
    found = json.loads(ran.stdout.splitlines()[-1])
    if is_connect:
        assert "run `oz spark archive` on the machine of the server" in found.pop("archive")
    else:
        assert found.pop("archive") == [70, 0, 70]
    assert found.pop("workers") == (1 if is_connect else 2)
    assert found == {
        "programs": 1, "source": 70, "read": 14, "matches": 14, "in python": 14, "match_all": 70, "report": 70,
        "stream": 70,
    }  # fmt: skip
    assert Counter(int(message.payload) for message in sub.messages) == Counter(range(70))
