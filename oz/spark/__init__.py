"""Subject patterns as Spark columns: a pattern means in a query what it means on a socket.

Needs `pip install '.[spark]'` in a checkout and Java 17 or newer; `import oz` alone loads none of it. On a
cluster the executors need oz too.
"""

from oz.errors import SparkMissing

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    raise SparkMissing(error.name or "pyspark") from None

from oz.spark.columns import PythonWarning, depth, gaps, join_patterns, match_all, matches, prefix, token
from oz.spark.jobs.archive import Archived, archive
from oz.spark.jobs.archiving.layout import LakeLayout
from oz.spark.jobs.archiving.loading import lake_files
from oz.spark.jobs.report import Report, report
from oz.spark.payloads import from_msgpack, from_payload
from oz.spark.reading import read
from oz.spark.registration import register
from oz.spark.session import session

__all__ = [
    "Archived",
    "LakeLayout",
    "PythonWarning",
    "Report",
    "archive",
    "depth",
    "from_msgpack",
    "from_payload",
    "gaps",
    "join_patterns",
    "lake_files",
    "match_all",
    "matches",
    "prefix",
    "read",
    "register",
    "report",
    "session",
    "token",
]
