"""Columns, `read`, source, sink and archive with two executors in processes of their own.

Executors read the files of the journal under the path of the driver.
"""

import sys
from collections import Counter

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from oz.journal import Writer
from spark import cluster_jobs as jobs
from spark.sink_listening import Listening

ROWS = 4000


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    directory = tmp_path_factory.mktemp("journals") / "recorded"
    with Writer(directory) as writer:
        for first in range(0, ROWS, 500):
            writer.append([(f"a.{at % 10}", b"%d" % at) for at in range(first, first + 500)])
            if first < ROWS // 2:
                writer.roll()
        writer.wait_sealed()
        yield str(directory)


def test_two_executors_run_the_python_of_the_driver(engine):
    places = engine.run(jobs.worker_places)
    assert len({parent for parent, _ in places}) == 2
    assert {program for _, program in places} == {sys.executable}


def test_executors_read_sealed_and_active_segments(engine, journal):
    assert engine.run(jobs.count_by_both, journal, "a.3") == (ROWS // 10, ROWS // 10, 0)


def test_executors_write_an_archive(engine, journal, tmp_path):
    found = engine.run(jobs.archive, journal, str(tmp_path / "archive"))
    assert found == ([ROWS, 0], list(range(ROWS)), ROWS)


def test_a_stream_reads_each_record_once(engine, journal, tmp_path):
    assert engine.run(jobs.stream_into_parquet, journal, str(tmp_path)) == (ROWS, ROWS)


def test_rows_of_tasks_that_fail_at_first_are_delivered_once(engine, journal):
    with Listening(dedupe=True) as sub:
        engine.run(jobs.publish_though_first_attempts_fail, journal, sub.endpoint)
        sub.received(ROWS)
    assert Counter(int(message.payload) for message in sub.messages) == Counter(range(ROWS))


def test_pattern_that_java_cannot_evaluate_runs_in_python_on_executors(engine):
    assert engine.run(jobs.matching, "flight.JFK.>") == ["flight.JFK.LAX.AA", "flight.JFK.LAX.B6"]
    assert engine.run(jobs.matching, r"regex:.*\bLGA\b.*") == ["flight.LGA.BOS.DL"]
