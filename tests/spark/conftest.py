"""The Spark sessions of the tests, each started by the first test that uses it, and who shares one.

With `pytest -n 2 --dist loadgroup` the tests of a module run in one process, and all those of clusters too,
from whatever module: each process then has one local session, and each cluster is started once.
"""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LONG = (
    "clusters",
    "test_flight_year",
    "test_archive_kills",
    "test_sink_kills",
    "test_source_exactly_once",
    "test_source_stream",
    "test_report_figures",
    "test_matches",
    "test_vectors",
    "test_sink_stream",
    "test_demo",
    "test_archive_job",
)
"""Groups that begin first, since what takes long and comes last has all others wait for it."""

SECONDS = 1_200
"""The limit of a test that says no other: it may be the one that starts the session or a cluster, which takes
half a minute, and ten times that on a machine that is busy with something else."""

PRELOADING = HERE / "preloading"
"""Its `sitecustomize` has Spark's Python daemons import oz once, for all the workers that they fork."""

if str(PRELOADING) not in sys.path:
    sys.path.append(str(PRELOADING))  # which programs of the tests get as their PYTHONPATH
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(PRELOADING)]))

REPORTS = ("test_report_command", "test_report_figures", "test_report_page")
"""Modules whose queries are many, and mostly made once."""

INTERPRETED = {"spark.sql.codegen.wholeStage": False, "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

CONF = {"spark.sql.shuffle.partitions": 2, "spark.python.authenticate.socketTimeout": "300s"}
"""Spark gives Java and Python 15 s to find each other, unless told otherwise."""


def is_here(item):
    # Asked thousands of times in each process of the tests: Path.parents takes ten times as long.
    return str(item.path).startswith(f"{HERE}{os.sep}")


def needs_standalone(item):
    """Tell whether it waits for a cluster of its own to start; the suite has Spark's pretended one."""
    return "standalone" in item.fixturenames or re.search(r"[\[-]standalone[\]-]", item.name)


def group_of(nodeid):
    """Name the group of a test: that of the clusters, or its module."""
    module = Path(nodeid.split("::")[0]).stem
    is_of_cluster = module == "test_engine_submit" or re.search(
        r"[\[-](standalone|local-cluster)[\]-]", nodeid
    )
    return "clusters" if is_of_cluster else module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Go by our groups: pytest-xdist 3.8 cannot hand on those of its marks under pytest 9.2."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

    return GroupScheduling(config, log)


def pytest_collection_modifyitems(items):
    """Give each test a limit, mark what needs the real cluster, and put the long groups in front."""
    here = [item for item in items if is_here(item)]
    for item in here:
        if needs_standalone(item):
            item.add_marker(pytest.mark.heavy)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))
    rank = {name: place for place, name in enumerate(LONG)}
    ordered = iter(sorted(here, key=lambda item: rank.get(group_of(item.nodeid), len(rank))))
    items[:] = [next(ordered) if is_here(item) else item for item in items]


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """Spark in this process, on two cores."""
    import oz.spark

    usual = signal.getsignal(signal.SIGINT)
    session = oz.spark.session(
        "local[2]", **CONF, **{"spark.sql.warehouse.dir": tmp_path_factory.mktemp("warehouse")}
    )
    signal.signal(signal.SIGINT, usual)  # Spark's own cancels all jobs, and then calls this one
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def interpreting(request):
    """Have Spark interpret the queries of reports, some thirty for each, and not compile what runs once."""
    if request.module.__name__.rpartition(".")[2] not in (*REPORTS, "test_engine_jobs"):
        yield
        return
    session = request.getfixturevalue("spark")
    for name, value in INTERPRETED.items():
        session.conf.set(name, value)
    yield
    for name in INTERPRETED:
        session.conf.unset(name)


@pytest.fixture(scope="session")
def standalone(tmp_path_factory):
    """Give a real cluster on this machine: `.url` is its master's."""
    from spark.cluster import standalone_cluster

    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture(scope="session", params=["standalone", "local-cluster"])
def engine(request, tmp_path_factory):
    """Give a driver on a real cluster, and one on Spark's pretended one: `engine.run(job, …)`."""
    from spark.cluster import LOCAL_CLUSTER, Driver

    is_real = request.param == "standalone"
    master = request.getfixturevalue("standalone").url if is_real else LOCAL_CLUSTER
    driver = Driver(master, tmp_path_factory.mktemp(request.param))
    yield driver
    driver.close()
