"""Have Spark's Python daemons import oz once, and not each of the hundreds of workers that they fork.

A worker that a test has fail ends with its error, so that the next one is a new process.
"""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import oz.spark.registration
    import oz.spark.sink.writers
    import oz.spark.source.stream  # noqa: F401
