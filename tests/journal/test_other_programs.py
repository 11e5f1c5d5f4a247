"""pandas, Polars and DuckDB read a journal as docs/journal.md shows; `tox -e spark` installs them."""

import importlib.util
from pathlib import Path

import pytest

import oz
import oz.journal

PAGE = Path(__file__).parents[2] / "docs" / "journal.md"
NEEDED = ("duckdb", "pandas", "polars")


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, NEEDED)), reason=f"not all of {', '.join(NEEDED)} are installed"
)
def test_other_programs_read_a_journal_whose_writer_is_closed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = PAGE.read_text("utf-8").split("### In other programs")[1].split("\n## ")[0]
    names = {"oz": oz}
    for block in section.split("```python\n")[1:]:
        exec(block.split("```")[0], names)
    assert list(names["table"]["subject"]) == names["frame"]["subject"].to_list() == ["md.x", "md.y"]
    assert sorted(names["counts"]) == [("md.x", 1), ("md.y", 1)]
    assert names["mean"] == [(2.0,)]
