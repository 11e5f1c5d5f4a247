"""A standalone cluster of Spark on this machine, and a driver in its own process.

A process has one Spark at a time. The tests use `local[2]`, so that the driver needs another process.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DAEMONS = Path(__file__).with_name("cluster_daemons.py")
START_SECONDS = 600.0
JOB_SECONDS = 1_000.0

CONF = {
    # Two executors, one on each worker, though the cluster has room for those of another application.
    "spark.executor.cores": 1,
    "spark.cores.max": 2,
    "spark.executor.memory": "1g",
    "spark.sql.shuffle.partitions": 2,
    "spark.ui.enabled": False,
    "spark.python.authenticate.socketTimeout": "300s",
    # The name of this machine need not lead to it.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@dataclass
class Standalone:
    """A cluster of one master and two workers, each with room for an executor of two applications."""

    url: str
    page: str
    workers: list[int]


@contextmanager
def standalone_cluster(directory):
    """Start Spark's own master and two workers; they are gone at the end, or when this process is."""
    process = subprocess.Popen(
        [sys.executable, str(DAEMONS), str(directory), "2", "2", "2g"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # In its own session, because Ctrl-C would end the program before it ends its cluster.
        start_new_session=True,
    )
    try:
        line = process.stdout.readline()
        assert line, f"no cluster: exit code {process.wait(START_SECONDS)}"
        yield Standalone(**json.loads(line))
    finally:
        process.communicate(timeout=START_SECONDS)  # ends its stdin


class JobFailed(Exception):
    """Exception of a job, as text."""


class Driver:
    """A process with a Spark session on some master.

    Attributes:
        master: where its jobs run.
    """

    def __init__(self, master, directory, **conf):
        """Start the process; the session is made by the first job."""
        self.master = master
        self._pool = ProcessPoolExecutor(
            1,
            multiprocessing.get_context("spawn"),
            initializer=_set_up,
            initargs=(master, str(directory), {**CONF, **conf}),
        )

    def run(self, job, *arguments, timeout=JOB_SECONDS):
        """Call `job(spark, *arguments)` in the driver. Return its result, or raise `JobFailed` with the traceback.

        Args:
            job: a function of a module that can be imported by name: of tests/spark, not of a test module.
            arguments: values that can be pickled.
            timeout: seconds.
        """
        return self._pool.submit(_call, job, arguments).result(timeout)

    def close(self):
        """End it, the session included, busy or not."""
        processes = list(self._pool._processes.values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.join(START_SECONDS / 4)
            process.kill()


def _set_up(master, directory, conf):
    # Executors of local-cluster work in the folder `work` of the PySpark that is installed all the same.
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": directory}
    threading.Thread(target=_end_with_the_tests, daemon=True).start()
    global _start
    _start = (master, conf)


def _end_with_the_tests():
    # They may be killed; a worker of a pool does not notice, and would keep its Spark for ever.
    multiprocessing.parent_process().join()
    os._exit(1)


def _call(job, arguments):
    import oz.spark

    master, conf = _start
    try:
        # The session that there is already, from the second job on.
        return job(oz.spark.session(master, **conf), *arguments)
    except Exception:
        # Errors of PySpark cannot be pickled.
        raise JobFailed(traceback.format_exc()) from None
