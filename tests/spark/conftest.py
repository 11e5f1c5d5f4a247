"""The Spark sessions of the tests: each is started by the first test that uses it."""

import pytest


@pytest.fixture(scope="session")
def spark():
    """Spark in this process, on two cores."""
    import oz.spark

    session = oz.spark.session("local[2]", **{"spark.sql.shuffle.partitions": 2})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def standalone(tmp_path_factory):
    """Give a real cluster on this machine: `.url` is its master's."""
    from cluster import standalone_cluster

    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture(scope="session", params=["standalone", "local-cluster"])
def engine(request, tmp_path_factory):
    """Give a driver on a real cluster, and one on Spark's pretended one: `engine.run(job, …)`."""
    from cluster import LOCAL_CLUSTER, Driver

    is_real = request.param == "standalone"
    master = request.getfixturevalue("standalone").url if is_real else LOCAL_CLUSTER
    driver = Driver(master, tmp_path_factory.mktemp(request.param))
    yield driver
    driver.close()
