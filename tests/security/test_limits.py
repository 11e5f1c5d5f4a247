"""Limits: what may be one."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest

from oz.security.limits import Limits
from support.cases import each


def test_no_limit_is_infinity() -> None:
    assert Limits(streams=math.inf).streams == math.inf


@each("name", [one.name for one in fields(Limits)])
def test_a_limit_is_above_zero(name: str) -> None:
    for wrong in (0, -1, math.nan):
        with pytest.raises(ValueError, match=f"^{name} is a number above 0"):
            replace(Limits(), **{name: wrong})
    for wrong in (None, "1", True):
        with pytest.raises(TypeError, match=f"^{name} is a number above 0"):
            replace(Limits(), **{name: wrong})
