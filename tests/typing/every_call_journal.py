"""Every public call of `oz.journal` once, with every argument. They are checked, not run."""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import assert_type

import oz
import oz.journal
from oz.journal import Record


def journals(journal: oz.journal.Journal) -> None:
    assert_type(journal.archive(lake="s3://bucket/lake"), oz.journal.Archived)
    print(
        journal.batches(
            pattern=oz.compile("a.>"),
            start=datetime.now(),
            end=datetime.now(),
            columns=["subject", "payload"],
            follow=True,
            gaps=True,
        )
    )
    assert_type(
        journal.read(
            pattern=oz.compile("a.>"),
            start=datetime.now(),
            end=datetime.now(),
            columns=["subject", "payload"],
            follow=True,
            gaps=True,
        ),
        Iterator[oz.journal.Record],
    )
    assert_type(journal.repair(), oz.journal.Report)
    print(journal.segments(pattern="a.>"))
    print(
        journal.table(
            pattern=oz.compile("a.>"),
            start=datetime.now(),
            end=datetime.now(),
            columns=["subject", "payload"],
            gaps=True,
        )
    )
    assert_type(journal.verify(), oz.journal.Report)
    assert_type(oz.journal.Journal(Path("there")), oz.journal.Journal)


def records(record: oz.journal.Record) -> None:
    assert_type(oz.journal.Record.of_gap("a.b", 1, origin=b" ", sequence=1, time_ns=1), oz.journal.Record)


def writers(writer: oz.journal.Writer) -> None:
    assert_type(writer.append([("a.b", b"x"), Record(b"raw")]), int)
    assert_type(writer.append_columns({"subject": ["a"], "payload": [b"x"]}), int)
    writer.check_files()
    writer.close()
    writer.sync()
    with oz.journal.Writer(
        Path("there"),
        sync="interval",
        sync_seconds=1.0,
        segment_bytes=1,
        segment_seconds=1.0,
        retain_bytes=1,
        retain_seconds=1.0,
    ) as made:
        assert_type(made, oz.journal.Writer)
