"""The compiled model of ZeroMQ does what the other does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = "--seeds", "40", "--jobs", "1"


def run(module):
    """Return what a run prints, but for how long it took."""
    paths = {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", module, *SEEDS]
    done = subprocess.run(command, env={**os.environ, **paths}, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[:-1]


@pytest.mark.heavy
def test_a_compiled_model_counts_the_same():
    pytest.importorskip("mypyc")
    counts = run("simulation.compiled")
    assert len(counts) > 40
    assert counts == run("simulation")
