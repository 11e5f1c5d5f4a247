"""The journal: an append-only record of messages in Arrow and Parquet files, which other tools read too.

`Writer` appends, `Journal` reads; any number of readers work beside one writer. `oz.journal.ranges` has the
functions for readers that share a journal, such as Spark. Needs the extra `ozmq[journal]`; `import oz` alone
loads nothing of it.
"""

from oz.errors import JournalError, JournalFull, JournalMissing

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise JournalMissing(error.name or "pyarrow") from None

from oz.journal_new.format import COLUMNS, GAP, MESSAGE, SCHEMA, DamageError
from oz.journal_new.journal import Journal, Segment
from oz.journal_new.records import JournalGap, Record
from oz.journal_new.report import Finding, Report
from oz.journal_new.writer import Writer

__all__ = [
    "COLUMNS",
    "GAP",
    "MESSAGE",
    "SCHEMA",
    "DamageError",
    "Finding",
    "Journal",
    "JournalError",
    "JournalFull",
    "JournalGap",
    "Record",
    "Report",
    "Segment",
    "Writer",
]
