"""Kills of a writer at random moments and at each step of sealing; see `killing.py`."""

import json
from pathlib import Path

import pytest

from support import scripts
from support.sizes import size

KILLING = Path(__file__).with_name("killing.py")

pytestmark = [pytest.mark.sized, pytest.mark.timeout(1200)]


def kill(mode, directory, rounds, seed):
    return json.loads(scripts.run(KILLING, mode, directory, rounds, seed, timeout=1100))


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(5))
def test_killed_writers_lose_no_acknowledged_record_and_give_no_offset_twice(tmp_path, seed):
    done = kill("random", tmp_path / "journal", 20, seed)
    assert done["records"] > 100
    assert max(done["seen"]) == done["records"]


def test_kills_at_each_step_of_sealing_lose_nothing(tmp_path):
    done = kill("sealing", tmp_path / "journal", size(5, 1000), 1)
    # The heavy form goes on until a child survives all its calls.
    assert done["calls"] > 30 or size(True, False)
    assert done["records"] > 500
