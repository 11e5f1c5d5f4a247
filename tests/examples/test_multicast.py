import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import zmq

from oz.transport.capabilities import pgm_line

PROGRAM = Path(__file__).parents[2] / "examples" / "multicast" / "ticker.py"
DEADLINE = 50.0

pytestmark = pytest.mark.timeout(180)


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
    # A machine that is too busy for its watchdog loses some, and says so; not time and again.
    assert any(gets_all(run(tmp_path)) for _ in range(3))
    assert not list(tmp_path.iterdir())


def gets_all(done):
    assert done.returncode == 0, done.stderr
    quotes, trades = sorted(done.stdout.splitlines())
    for name, line in (("quotes", quotes), ("trades", trades)):
        found = re.fullmatch(rf"{name} got (\d+) of 200 {name}, lost (\d+)", line)
        assert found, line
        got, lost = int(found[1]), int(found[2])
        assert got <= 200 <= got + lost
    return quotes.endswith("got 200 of 200 quotes, lost 0") and trades.endswith("lost 0")


@pytest.mark.skipif(zmq.has("pgm"), reason="this libzmq has PGM")
@pytest.mark.documents
def test_without_pgm_it_names_the_line_that_adds_it(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 1
    assert pgm_line() in done.stderr
    assert "Traceback" not in done.stderr


def test_the_list_of_examples_has_it():
    listed = (PROGRAM.parents[1] / "README.md").read_text("utf-8")
    assert "](multicast/README.md)" in listed
