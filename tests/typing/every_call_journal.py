"""Every public call of `oz.journal` once, with every argument. They are checked, not run."""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import assert_type

import oz
from oz import journal as oz_journal


def journals(journal: oz_journal.Journal) -> None:
    print(
        journal.batches(
            pattern=["a.>", oz.compile("b")],
            start=datetime.now(),
            end="-1h",
            columns=["subject", "payload"],
            follow=True,
            gaps=True,
        )
    )
    assert_type(
        journal.read(pattern=oz.compile("a.>"), start=1, end="2026-03-01", follow=True),
        Iterator[oz_journal.Record | oz_journal.JournalGap],
    )
    assert_type(journal.repair(), oz_journal.Report)
    assert_type(journal.segments, list[oz_journal.Segment])
    assert_type(journal.first_offset + journal.end_offset, int)
    print(journal.table(pattern="a.>", start=1, end=2, columns=["subject"], gaps=True))
    print(journal.to_pandas(pattern="a.>", start=1, end=2, columns=["subject"], gaps=True))
    assert_type(journal.verify(progress=lambda done, total: None), oz_journal.Report)
    assert_type(oz_journal.Journal(Path("there"), codec="json"), oz_journal.Journal)


def writers(writer: oz_journal.Writer) -> None:
    assert_type(writer.append([("a.b", b"x"), {"subject": "a", "payload": b"x"}]), int)
    assert_type(writer.append({"subject": ["a"], "payload": [b"x"]}), int)
    assert_type(writer.findings, tuple[oz_journal.Finding, ...])
    writer.roll()
    writer.wait_sealed(timeout=1.0)
    writer.close()
    with oz_journal.Writer(
        Path("there"),
        sync=1.0,
        segment_bytes=1,
        segment_seconds=1.0,
        retain_bytes=1,
        retain_seconds=1.0,
    ) as made:
        assert_type(made, oz_journal.Writer)
