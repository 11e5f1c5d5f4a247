"""One Spark session for all tests of a process."""

import os
import signal
from pathlib import Path

import pytest

HERE = f"{Path(__file__).parent}{os.sep}"

TIMEOUT = 1200  # seconds; a busy machine needs minutes to start Spark

CONF = {
    "spark.sql.shuffle.partitions": 2,
    "spark.python.authenticate.socketTimeout": "300s",
    # Most test queries run once, so that compiled code costs more time than it saves.
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


# No test runs for long enough to gain by Java's second compiler and its parallel collector.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items):
    """Set the timeout of the tests of this directory."""
    for item in items:
        if not str(item.path).startswith(HERE):
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """Start Spark in this process, on two cores."""
    import oz.spark

    handler = signal.getsignal(signal.SIGINT)
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = oz.spark.session("local[2]", **CONF, **{"spark.sql.warehouse.dir": warehouse})
    signal.signal(signal.SIGINT, handler)  # PySpark replaces the handler
    yield session
    session.stop()
