"""Spark for recorded traffic: subject columns, the data source `oz`, archives and reports.

Needs the extra `ozmq[spark]` and Java 17 or newer. `import oz` does not load this package. On a cluster the
executors need oz too.
"""

from oz.errors import SparkMissing

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    raise SparkMissing(error.name or "pyspark") from None

from oz.spark.columns import depth, gaps, join_patterns, match_all, matches, prefix, token
from oz.spark.payloads import from_msgpack
from oz.spark.registration import register
from oz.spark.session import session
from oz.spark.sink.publishing import publish_batches

__all__ = [
    "depth",
    "from_msgpack",
    "gaps",
    "join_patterns",
    "match_all",
    "matches",
    "prefix",
    "publish_batches",
    "register",
    "session",
    "token",
]
