"""Jobs for a driver on a cluster, which kill parts of it while they archive."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import oz.spark
from oz.spark import LakeLayout
from spark import archive_lakes
from spark.cluster import driver_port, executors_of
from support.waiting import Thread, until

KILL_SECONDS = 1_000.0


def executor_that_writes(spark, staging):
    """The process number of one that has a file of a lake open; None when no one has."""
    for executor in executors_of(driver_port(spark)):
        with suppress(OSError):  # it has ended, or has just closed one
            for descriptor in Path(f"/proc/{executor}/fd").iterdir():
                path = os.readlink(descriptor)
                if path.startswith(staging) and path.endswith(".parquet"):
                    return executor
    return None


def archive_while_an_executor_is_killed(spark, journal, lake, step_rows):
    """Archive; an executor is killed with -9 while it writes a file. Gives the records that were archived.

    Records are added for as long as no such moment was met.
    """

    def kill_when_it_writes():
        staging = os.path.realpath(f"{lake}.staging") + os.sep
        os.kill(until(lambda: executor_that_writes(spark, staging), KILL_SECONDS), signal.SIGKILL)

    layout, rows = LakeLayout(step_rows=step_rows), 0
    killing = Thread(kill_when_it_writes)
    while True:
        is_met = not killing.is_alive()
        rows += oz.spark.archive(spark, journal, lake, layout=layout, unsealed=True).rows
        if is_met:
            killing.outcome()
            return rows
        archive_lakes.write_journal(journal, [archive_lakes.numbered(rows, rows + step_rows)])


def archive(spark, journal, lake, compact=False):
    done = oz.spark.archive(spark, journal, lake, unsealed=True, compact=compact)
    return done.rows, done.merged


def main(journal, lake, step_rows):
    """Archive and compact in this process, saying each step on stdout, to be killed at any moment."""

    def say(done, _total, what):
        print(done, what, flush=True)

    spark = oz.spark.session("local[2]")
    layout = LakeLayout(step_rows=int(step_rows))
    oz.spark.archive(spark, journal, lake, layout=layout, unsealed=True, compact=True, on_progress=say)
    print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
