"""The page about nodes has each advisory, and the class that it is of."""

from __future__ import annotations

import re
from pathlib import Path

from oz.protocol.node.advisories import SEVERITIES, advise
from oz.protocol.node.reserved_subjects import ADVISORY

PAGE = Path(__file__).parents[2] / "docs" / "node.md"


def test_the_page_names_each_advisory_and_its_class():
    text = PAGE.read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `((?:INFO|WARN|ERROR)\.\w+)` \| (\w+) \|", text, re.MULTILINE))
    [set_aside] = re.findall(r"^`(ERROR\.\w+)` is a name set aside", text, re.MULTILINE)
    advised = (advise(kind, "") for kind in SEVERITIES)
    known = {one.subject.removeprefix(ADVISORY): one.severity for one in advised}
    assert shown | {set_aside: "error"} == known
