"""A driver in its own process, whose executors are processes too.

A process has one Spark at a time. The tests use `local[2]`, so that the driver needs another process.
"""

import multiprocessing
import os
import threading
import traceback
from concurrent.futures import ProcessPoolExecutor

CLUSTER = "local-cluster[2,1,1024]"
"""Master with two executors of one core and 1,024 MiB. Spark starts a process for each executor."""
START_SECONDS = 600.0
JOB_SECONDS = 1_000.0

CONF = {
    "spark.executor.memory": "1g",
    "spark.sql.shuffle.partitions": 2,
    "spark.ui.enabled": False,
    "spark.python.authenticate.socketTimeout": "300s",
    # The name of this machine need not lead to it.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


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
    # Executors work in the folder `work` of the installed PySpark all the same.
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
