"""A program: Spark's own standalone master and workers on this machine, until stdin ends.

    python cluster_daemons.py DIRECTORY WORKERS CORES MEMORY

It writes one line of JSON when the master says that all workers are there: the master's URL, the address of
its web page, and the process ids of the workers. If the parent is killed,
stdin ends too.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

START_SECONDS = 500.0
DEPLOY = "org.apache.spark.deploy"
HERE = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


class Daemons:
    """Processes of the cluster."""

    def __init__(self, home, directory):
        self._home = home
        self._directory = directory
        self._lock = threading.Lock()
        self.processes = []

    def start(self, name, *arguments):
        """Start a process in its own process group. Its output goes to a file."""
        place = self._directory / name
        place.mkdir(parents=True)
        environment = {
            **os.environ,
            "SPARK_HOME": self._home,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(place / "local"),
            "SPARK_CONF_DIR": str(place),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        command = [f"{self._home}/bin/spark-class", *arguments]
        with self._lock, (place / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=place,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self.processes.append(process)

    def end(self):
        """Kill the processes and their children. Later starts wait for ever."""
        self._lock.acquire()
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def wait(self, name, look):
        """Read the log of a process until a function finds a value in it."""
        log = self._directory / name / "log"
        ends = time.monotonic() + START_SECONDS
        while not (found := look(log.read_text(errors="replace"))):
            if time.monotonic() > ends or any(process.poll() is not None for process in self.processes):
                raise SystemExit(f"{name} came to nothing:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.05)
        return found


def alive_workers(page):
    with urllib.request.urlopen(f"{page}/json/", timeout=30) as answer:
        return json.load(answer)["aliveworkers"]


def run(daemons, workers, cores, memory):
    daemons.start("master", f"{DEPLOY}.master.Master", *HERE)
    url = daemons.wait("master", re.compile(r"Starting Spark master at (spark://\S+)\s").search)[1]
    port = daemons.wait("master", re.compile(r"MasterWebUI.* started at http://\S+:(\d+)\s").search)[1]
    page = f"http://127.0.0.1:{port}"
    for number in range(workers):
        options = ("--cores", str(cores), "--memory", memory)
        daemons.start(f"worker{number}", f"{DEPLOY}.worker.Worker", *HERE, *options, url)
    daemons.wait("master", lambda _: alive_workers(page) >= workers)
    return {"url": url, "page": page, "workers": [process.pid for process in daemons.processes[1:]]}


def main():
    """Start them, say so, and end them when stdin ends."""
    from pyspark.find_spark_home import _find_spark_home

    from oz.spark.session import require_java

    directory, workers, cores, memory = sys.argv[1:]
    require_java()
    daemons = Daemons(_find_spark_home(), Path(directory))

    def end_with_stdin():
        sys.stdin.read()
        daemons.end()
        os._exit(0)

    threading.Thread(target=end_with_stdin, daemon=True).start()
    try:
        print(json.dumps(run(daemons, int(workers), int(cores), memory)), flush=True)
    except BaseException:
        daemons.end()
        raise
    threading.Event().wait()


if __name__ == "__main__":
    main()
