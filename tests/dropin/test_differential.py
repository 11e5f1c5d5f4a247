"""The random comparison of `differential.py`, for some seeds."""

import pytest

from dropin.differential import run_round
from support.sizes import size


@pytest.mark.sized
@pytest.mark.parametrize("first", range(0, size(40, 2_000), 20))
def test_sockets_agree_with_a_plain_sub_and_patterns_in_python(first):
    for seed in range(first, first + 20):
        run_round(seed)
