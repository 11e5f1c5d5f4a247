"""Fuzzing of the readers of untrusted bytes by coverage, with atheris: an hour in all by `tox -e heavy`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.targets import TARGETS

SECONDS = os.environ.get("OZ_FUZZ_SECONDS", "327")
"""Duration for each target. New inputs are kept in `corpus`."""


@pytest.mark.heavy
@pytest.mark.timeout(0)
@pytest.mark.parametrize("target", TARGETS)
def test_reader_raises_no_unexpected_error(target):
    pytest.importorskip("atheris")
    program = Path(__file__).with_name("run.py")
    environment = os.environ | {"PYTHONPATH": str(program.parents[1])}
    subprocess.run([sys.executable, program, SECONDS, target], check=True, env=environment)
