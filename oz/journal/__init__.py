"""The journal: an append-only record of messages in Arrow and Parquet files, which other tools can also read.

`Writer` appends, `Journal` reads; any number of readers work beside one writer. `oz.journal.ranges` has the
functions for readers that share a journal, such as Spark. The package needs the extra `ozmq[journal]`; `import oz`
does not load it.
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

# These classes need sockets. A program that only reads and writes files does not load them.
_SERVICES = {
    "Recorder": "oz.services.recorder",
    "Replay": "oz.services.replayer",
    "replay": "oz.services.replayer",
}


def __getattr__(name: str) -> Any:
    """Import a class of `oz.services` at its first use."""
    if name not in _SERVICES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_SERVICES[name]), name)
