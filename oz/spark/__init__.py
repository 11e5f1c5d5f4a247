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

from oz.spark.columns import PythonWarning, depth, matches, prefix, token
from oz.spark.many import join_patterns, match_all
from oz.spark.session import session

__all__ = ["PythonWarning", "depth", "join_patterns", "match_all", "matches", "prefix", "session", "token"]
