"""The journal: an append-only record of messages, in files that other tools read as they are.

`Writer` appends, `Journal` reads, any number of readers beside one writer; docs/journal.md has the format and
the guarantees. Needs `pip install '.[journal]'` in a checkout; `import oz` alone loads none of it.
"""

from oz.errors import JournalMissing

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise JournalMissing(error.name or "pyarrow") from None

from oz.journal.archived import Archived
from oz.journal.reader import Journal
from oz.journal.record import Kind, Record
from oz.journal.report import Finding, Report
from oz.journal.schema import COLUMNS
from oz.journal.writer import Writer

__all__ = ["COLUMNS", "Archived", "Finding", "Journal", "Kind", "Record", "Report", "Writer"]
