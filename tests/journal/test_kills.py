"""Kills of a writer at each step of appending, sealing, retention and opening; see `killing.py`."""

import json
from pathlib import Path

import pytest

from support import scripts
from support.sizes import size

KILLING = Path(__file__).with_name("killing.py")


@pytest.mark.sized
@pytest.mark.timeout(1200)
def test_kills_at_each_step_lose_nothing_and_give_no_offset_twice(tmp_path):
    done = json.loads(scripts.run(KILLING, tmp_path / "journal", size(9, 1500), 1, timeout=1100))
    # The heavy form goes on until a child survives all its calls.
    assert done["calls"] > 30 or size(True, False)
    assert done["records"] > 500
