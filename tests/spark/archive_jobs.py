"""Jobs for a driver on a cluster, which kill parts of it while they archive."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import oz.spark
from oz.spark import LakeLayout


def executors_of(spark):
    """The process numbers of the executors on this machine that work for a session."""
    mark = (
        f"CoarseGrainedScheduler@127.0.0.1:{spark.sparkContext.getConf().get('spark.driver.port')}".encode()
    )
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:  # it has ended
            continue
        if (
            b"CoarseGrainedExecutorBackend" in command
            and mark in command
            and b"java" in command.split(b"\0")[0]
        ):
            found.append(int(path.parent.name))
    return found


def archive_while_executors_are_killed(spark, journal, lake, step_rows, kills):
    """Archive; in each of the first steps an executor is killed with -9 once files are being staged."""
    killed = []
    staging = Path(f"{lake}.staging")

    def kill_when_staged(before):
        ends = time.monotonic() + 120
        while time.monotonic() < ends:
            if set(staging.glob("oz-*/_temporary/*/_temporary/*/*/*/*.parquet")) - before:
                pids = executors_of(spark)
                if pids:
                    os.kill(pids[0], signal.SIGKILL)
                    killed.append(pids[0])
                return
            time.sleep(0.001)

    threads = []

    def on_progress(_done, _total, what):
        if what != "done" and len(threads) < kills:
            before = set(staging.glob("oz-*/_temporary/*/_temporary/*/*/*/*.parquet"))
            threads.append(threading.Thread(target=kill_when_staged, args=(before,), daemon=True))
            threads[-1].start()

    done = oz.spark.archive(
        spark, journal, lake, layout=LakeLayout(step_rows=step_rows), unsealed=True, on_progress=on_progress
    )
    for thread in threads:
        thread.join(130)
    return killed, done.rows


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
