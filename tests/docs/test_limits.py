"""The pages about limits: they have each, with its default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from oz.protocol.publisher.pattern_time import ALL_BURST, BURST, FAIR, MOST
from oz.security.limits import DEFAULT_LIMITS, Limits

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "limits.md"


def test_the_page_names_each_limit_and_its_default():
    rows = re.findall(r"^\| `(\w+)` \| ([\d.,]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    shown = {name: float(number.replace(",", "")) for name, number in rows}
    assert shown == {one.name: float(getattr(Limits(), one.name)) for one in fields(Limits)}


def test_the_budget_of_patterns_is_that_of_the_code():
    each, together = 1000 * DEFAULT_LIMITS.pattern_time, 1000 * DEFAULT_LIMITS.all_pattern_time
    text = (DOCS / "prefixes.md").read_text("utf-8")
    for row in (
        f"| {each:g} ms (`Limits.pattern_time`) | {BURST * each:g} ms |",
        f"| {together:g} ms (`Limits.all_pattern_time`) | {ALL_BURST * together:g} ms |",
        f"| one pattern | | {min(MOST * each, MOST * together):g} ms, then it is skipped",
        f"nobody is touched whose patterns took less than {FAIR * together * 1000:g} µs",
    ):
        assert row in text
