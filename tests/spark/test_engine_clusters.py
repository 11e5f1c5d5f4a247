"""Columns, archive and report with executor processes: on a standalone cluster and on local-cluster."""

import sys

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from oz.journal_new import Writer
from spark import cluster_jobs as jobs
from spark.cluster import JobFailed


@pytest.mark.heavy
def test_work_is_done_by_two_executors_and_this_python(engine):
    found = engine.run(jobs.places)
    assert len({parent for parent, _ in found}) == 2
    assert {program for _, program in found} == {sys.executable}
    assert engine.run(jobs.executors) == 2


def test_patterns_mean_there_what_they_mean_here(engine):
    assert engine.run(jobs.matching, "flight.JFK.>") == ["flight.JFK.LAX.AA", "flight.JFK.LAX.B6"]
    assert engine.run(jobs.matching, "redis:*.[LE]*.UA") == ["flight.EWR.ORD.UA"]


def test_executors_import_oz_for_what_only_python_decides(engine):
    assert engine.run(jobs.matching, r"regex:.*\bLGA\b.*") == ["flight.LGA.BOS.DL"]
    found = engine.run(jobs.matching_all, ["flight.*.LAX.>", "flight.JFK.*.B6"])
    assert found["flight.JFK.LAX.B6"] == ["flight.*.LAX.>", "flight.JFK.*.B6"]
    assert found["flight.LGA.BOS.DL"] == []
    assert found[None] is None


def test_executors_write_an_archive(engine, tmp_path):
    with Writer(tmp_path / "journal") as writer:
        writer.append([(f"a.{number % 10}", b"") for number in range(1_000)])
        writer.roll()
        writer.append([(f"a.{number % 10}", b"") for number in range(200)])
    found = engine.run(jobs.archive, str(tmp_path / "journal"), str(tmp_path / "archive"))
    assert found == ([1_200, 0], list(range(1_200)), 1_200)


def test_what_a_job_raises_reaches_the_test(engine):
    with pytest.raises(JobFailed, match=r"ValueError: of (spark://|local-cluster)"):
        engine.run(jobs.failing)
