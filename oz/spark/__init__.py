"""Spark for recorded messages: columns about subjects, the data source `oz`, archives and reports.

The package needs the extra `ozmq[spark]` and Java 17 or newer. `import oz` does not load it. On a cluster, oz must also
be installed for the executors.
"""

from oz.errors import SinkError, missing_module

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    raise missing_module(error.name or "pyspark", "spark") from None

from oz.spark.archive import ArchiveError, ArchiveResult, archive, archive_batch, archive_stream, read_archive
from oz.spark.columns import depth, gaps, join_patterns, match_all, matches, prefix, token
from oz.spark.payloads import PayloadError, from_msgpack
from oz.spark.reading import read
from oz.spark.registration import register
from oz.spark.report import Report, report
from oz.spark.session import session

__all__ = [
    "ArchiveError",
    "ArchiveResult",
    "PayloadError",
    "Report",
    "SinkError",
    "archive",
    "archive_batch",
    "archive_stream",
    "depth",
    "from_msgpack",
    "gaps",
    "join_patterns",
    "match_all",
    "matches",
    "prefix",
    "read",
    "read_archive",
    "register",
    "report",
    "session",
    "token",
]
