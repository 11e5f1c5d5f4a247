"""The tests in examples/testing pass."""

import subprocess
import sys
from pathlib import Path

import pytest

# Seconds; it takes one or two on a quiet machine.
DEADLINE = 110

DIRECTORY = Path(__file__).parents[2] / "examples" / "testing"


@pytest.mark.documents
def test_examples_of_tests_pass():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "pytest_oz",
        "-c",
        "/dev/null",
        "-p",
        "no:cacheprovider",
    ]
    found = subprocess.run(
        [*command, "test_shop.py"], cwd=DIRECTORY, capture_output=True, text=True, timeout=100
    )
    assert "4 passed" in found.stdout, found.stdout + found.stderr
