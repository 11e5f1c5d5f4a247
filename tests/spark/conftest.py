"""One Spark session for all, on two cores."""

import pytest


@pytest.fixture(scope="session")
def spark():
    import oz.spark

    session = oz.spark.session("local[2]", **{"spark.sql.shuffle.partitions": 2})
    yield session
    session.stop()
