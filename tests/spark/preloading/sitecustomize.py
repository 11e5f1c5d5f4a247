"""What Spark's Python processes do first in the tests, which have this in their PYTHONPATH."""

import os
import sys

PORT, SECRET = "PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SECRET"


def import_oz_once():
    """Import in Spark's daemon what each of the hundreds of workers that it forks needs.

    A worker that a test has fail ends with its error, so that the next one is a new process.
    """
    import pyspark.logger.worker_io
    import pyspark.messages.socket.spark_socket_message_receiver
    import pyspark.sql.conversion

    import oz.spark.registration
    import oz.spark.sink
    import oz.spark.source  # noqa: F401

    if sys.orig_argv[-1] == "pyspark.worker":  # that of functions, which take pandas' arrays
        import pandas  # noqa: F401
        import pyspark.sql.streaming.stateful_processor_util  # noqa: F401


def connect_at_once():
    """Connect to Spark before anything is imported, and hand the connection over when it is asked for.

    Each streaming query has a Python process of its own, which connects when it has imported PySpark. Spark
    gives it 10 s for that, and 10 s more to say its secret, and no setting changes either: a machine that is
    busy with something else takes longer.
    """
    import socket

    connection = socket.create_connection(("127.0.0.1", int(os.environ[PORT])))
    secret = os.environ[SECRET].encode()
    connection.sendall(len(secret).to_bytes(4, "big") + secret)

    from pyspark import util

    def connected(port, secret):
        assert (str(port), secret) == (os.environ[PORT], os.environ[SECRET])
        file = connection.makefile("rwb", 65_536)
        assert util.UTF8Deserializer().loads(file) == "ok"
        return file, connection

    util.local_connect_and_auth = connected


if "pyspark.daemon" in sys.orig_argv:
    import_oz_once()
elif PORT in os.environ and sys.orig_argv[1] == "-m" and sys.orig_argv[2].startswith("pyspark."):
    connect_at_once()
