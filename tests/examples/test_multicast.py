import os
import subprocess
import sys
from pathlib import Path

import pytest
import zmq

from oz.transport.capabilities import pgm_line

PROGRAM = Path(__file__).parents[2] / "examples" / "multicast" / "ticker.py"
DEADLINE = 50.0


def run(directory):
    return subprocess.run(
        [sys.executable, str(PROGRAM)],
        cwd=directory,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@pytest.mark.skipif(not zmq.has("pgm"), reason=f"this libzmq has no PGM: {pgm_line()}")
def test_both_receivers_get_all_that_the_ticker_sends(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "quotes got 200 of 200 quotes, lost 0",
        "trades got 200 of 200 trades, lost 0",
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(zmq.has("pgm"), reason="this libzmq has PGM")
def test_without_pgm_it_names_the_line_that_adds_it(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 1
    assert pgm_line() in done.stderr
    assert "Traceback" not in done.stderr


def test_the_list_of_examples_has_it():
    listed = (PROGRAM.parents[1] / "README.md").read_text("utf-8")
    assert "](multicast/README.md)" in listed
