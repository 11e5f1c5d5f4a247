"""The journal: an append-only log of messages in Arrow and Parquet files, which other tools can also read.

`Writer` appends records, and `Journal` reads them. A journal has at most one writer at a time, and any number of
readers. `oz.journal.ranges` has the functions for programs such as Spark, in which several workers read one journal.
The package needs the extra `ozmq[journal]`, and `import oz` does not load it.
"""

import importlib
from typing import Any

from oz.errors import JournalError, JournalFull, missing_module

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise missing_module(error.name or "pyarrow", "journal") from None

from oz.journal.format import GAP, SCHEMA, DamageError
from oz.journal.journal import Journal, Segment
from oz.journal.records import JournalGap, Record
from oz.journal.report import Finding, Report
from oz.journal.writer import Writer

__all__ = [
    "GAP",
    "SCHEMA",
    "DamageError",
    "Finding",
    "Journal",
    "JournalError",
    "JournalFull",
    "JournalGap",
    "Record",
    "Recorder",
    "Replay",
    "Report",
    "Segment",
    "Writer",
    "replay",
]

# Names that need sockets. A program that only reads and writes files does not load their modules.
_SERVICES = {
    "Recorder": "oz.services.recorder",
    "Replay": "oz.services.replayer",
    "replay": "oz.services.replayer",
}


def __getattr__(name: str) -> Any:
    """Import a name of `oz.services` when it is first used."""
    if name not in _SERVICES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_SERVICES[name]), name)
