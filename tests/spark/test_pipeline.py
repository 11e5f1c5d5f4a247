"""Record, archive in a stream and report, with kill -9 of each: the result has all published messages."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")
pytest.importorskip("duckdb", reason="needs: pip install duckdb")

import duckdb

import oz
from oz.journal import Journal
from support.sizes import size
from support.waiting import until

ROUNDS = size(2, 6)
MESSAGES = 2_000  # of a round
SECONDS = 300  # until a process shows progress; Spark needs minutes on a busy machine
FEW_TASKS = ("--conf", "spark.sql.shuffle.partitions=1")


@contextmanager
def running(*arguments):
    """Run a command of oz, and kill it at the end with all its processes."""
    command = [sys.executable, "-W", "ignore", "-m", "oz", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(oz.__file__).parents[1])}
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the JVM too
        process.communicate()


def archived(path):
    """Return subject and payload of the archived messages in the order of offsets, as DuckDB reads them."""
    if not list(path.glob("**/*.parquet")):
        return []
    query = f"select subject, payload from '{path}/**/*.parquet' where kind = 0 order by \"offset\""
    return duckdb.sql(query).fetchall()


@pytest.mark.heavy
def test_what_was_published_is_in_the_archive_and_in_the_report_after_kills(tmp_path):
    journal, path, figures = tmp_path / "journal", tmp_path / "archive", tmp_path / "figures.json"
    published, recorders = [], set()
    with oz.Publisher(bind="tcp://127.0.0.1:*", on_full="block") as publisher:
        record = (
            "record",
            ">",
            "--journal",
            journal,
            "--connect",
            publisher.endpoint,
            "--filtering",
            "publisher",
        )
        archive = ("spark", "archive", journal, path, "--follow", "--interval", "0.2", *FEW_TASKS)
        for _ in range(ROUNDS):
            # The archive is killed at an arbitrary moment; its predecessor may have left an unfinished batch.
            with running(*record):
                # The session of a killed recorder waits for its return, so that only a new member counts.
                until(lambda: members(publisher) - recorders, 60)  # noqa: B023
                recorders |= members(publisher)
                until(journal.exists, 60)
                with running(*archive):
                    wanted = len(archived(path)) + 1
                    publish(publisher, published)
                    until(lambda: messages_in(journal) == len(published), 60)
                    until(lambda wanted=wanted: len(archived(path)) >= wanted, SECONDS)
            assert archived(path) == published[: len(archived(path))]
    with running("spark", "archive", journal, path, *FEW_TASKS) as process:
        assert process.wait(SECONDS) == 0, process.stderr.read()
    assert archived(path) == published
    report = ("spark", "report", path, "--json", figures, *FEW_TASKS)
    with running(*report) as process:
        until(lambda: has_children(process.pid), 60)  # Spark's JVM runs
    assert not figures.exists()
    with running(*report) as process:
        assert process.wait(SECONDS) == 0, process.stderr.read()
    found = json.loads(figures.read_text())
    assert found["total"]["messages"] == len(published)
    assert found["total"]["bytes"] == sum(len(payload) for _, payload in published)
    assert found["total"]["subjects"] == len({subject for subject, _ in published})
    assert found["losses"]["lost"] == 0


def members(publisher):
    """Return the subscribers that have declared their pattern."""
    return {one.member for one in publisher.subscribers if one.patterns}


def publish(publisher, published):
    """Publish the messages of a round, and append them to a list."""
    for _ in range(MESSAGES):
        number = len(published)
        published.append((f"{['md', 'flight', 'é'][number % 3]}.n{number % 50}", b"%d" % number))
        publisher.publish(*published[-1])
    publisher.flush()


def messages_in(journal):
    try:
        return Journal(journal).table(columns=["offset"]).num_rows
    except oz.JournalError:
        return 0  # the recorder has not created it yet


def has_children(pid):
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())
