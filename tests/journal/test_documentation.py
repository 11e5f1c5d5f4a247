import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "journal.md"


def test_every_guarantee_names_tests_that_there_are():
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text("utf-8")))
    there = {
        name
        for directory in ("journal", "services", "cli")
        for path in (HERE.parent / directory).glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.M)
    }
    assert len(named) > 15
    assert named - there == set()
