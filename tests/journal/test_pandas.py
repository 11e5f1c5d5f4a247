"""Whoever reads a journal imports no pandas where that is installed: it takes longer than many a read.

Arrow imports it to ask whether a value that it is given is one of pandas' own; here it only tries to.
"""

import pytest

from oz.journal import Record, Writer
from support import scripts

READ = """
import sys
from datetime import UTC, datetime
from oz.journal import Journal

class Tried:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            print("imported")

sys.meta_path.insert(0, Tried())
journal = Journal(sys.argv[1])
%s
"""
USES = {
    "all": "assert list(journal.read())",
    "a subject": "assert list(journal.read('a.7'))",
    "a pattern": "assert list(journal.read('*.7'))",
    "gaps of a pattern": "assert list(journal.read('*.7', gaps=True))",
    "a time": "assert list(journal.read(start=datetime.fromtimestamp(0, UTC), end=datetime.now(UTC)))",
    "segments": "assert journal.segments('a.7')",
    "verify": "assert journal.verify().ok",
}


@pytest.mark.parametrize("use", USES)
def test_reading_imports_no_pandas(tmp_path, use):
    with Writer(tmp_path / "journal") as writer:
        writer.append([Record(f"a.{number}", b"x") for number in range(100)])
        writer.append([Record.of_gap("a.*", lost=3)])
    assert scripts.run("-c", READ % USES[use], tmp_path / "journal", timeout=60) == ""
