"""The page about limits: it has each, with its default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from oz.security.limits import Limits

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"


def test_the_page_names_each_limit_and_its_default():
    rows = re.findall(r"^\| `(\w+)` \| ([\d.,]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    shown = {name: float(number.replace(",", "")) for name, number in rows}
    assert shown == {one.name: float(getattr(Limits(), one.name)) for one in fields(Limits)}
