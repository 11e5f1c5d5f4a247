"""The source, the sink and every job on a real standalone cluster, and in local-cluster mode."""

import json

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import pyarrow.parquet as pq

from oz.journal import Journal, Record, Writer
from spark import cluster_jobs as jobs
from spark.sink_listening import Listening

COUNT = 3_000
LOST_AT = 1_500
START = 1_772_366_400_000_000_000
ROUTES = [f"flight.{origin}.{dest}.AA" for origin in ("JFK", "EWR") for dest in ("LAX", "ORD", "BOS")]
ORIGIN = b"\x01" * 16


def record_of(number):
    if number == LOST_AT:
        return Record.of_gap("nats:>", 5, origin=ORIGIN, sequence=number, time_ns=START + number)
    payload = json.dumps({"n": number}).encode()
    sequence = number if number < LOST_AT else number + 4
    return Record(ROUTES[number % 6], payload, START + number * 10**9, ORIGIN, sequence)


RECORDS = [record_of(number) for number in range(COUNT)]
MESSAGES = [number for number in range(COUNT) if number != LOST_AT]


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """A journal of several segments, with one gap."""
    directory = tmp_path_factory.mktemp("recorded") / "journal"
    with Writer(directory, sync="never", segment_bytes=64 << 10) as writer:
        for start in range(0, COUNT, 100):
            writer.append(RECORDS[start : start + 100])
    assert len(list(Journal(directory).segments())) > 2
    return str(directory)


def expected(pattern):
    compiled = oz.compile(pattern)
    return [number for number in MESSAGES if compiled.matches(RECORDS[number].subject)]


def as_published(messages):
    return sorted((message.subject, bytes(message.payload)) for message in messages)


@pytest.fixture(scope="module")
def lake(engine, journal, tmp_path_factory):
    """Give the lake that an engine makes of the journal, in two runs."""
    path = tmp_path_factory.mktemp("archived") / "lake"
    return path, engine.run(jobs.archive, journal, str(path))


@pytest.fixture(scope="module")
def reported(spark, journal):
    """Give what report says of the journal in one process."""
    return jobs.report(spark, journal)


AGAIN = sorted((f"again.{RECORDS[number].subject}", RECORDS[number].payload) for number in MESSAGES)


def test_a_batch_reads_the_journal_on_executors(engine, journal):
    assert engine.run(jobs.read, journal, "flight.*.LAX.>") == (expected("flight.*.LAX.>"), 4)
    # One of bytes and several prefixes, one of another dialect, one that Python decides.
    for pattern in ("redis:flight.[EL]*.BOS.*", "rv:flight.JFK.>", r"regex:flight\.(J|E).*\b\p{Lu}{2}S\..*"):
        assert engine.run(jobs.read, journal, pattern)[0] == expected(pattern) != [], pattern


@pytest.mark.heavy
def test_a_stream_of_micro_batches_is_complete(engine, journal, tmp_path):
    rows = engine.run(jobs.stream_into_parquet, journal, str(tmp_path))
    assert rows == [(number, number) for number in MESSAGES]


def test_a_batch_is_published(engine, journal, tmp_path):
    with Listening("again.>", filtering="publisher") as listening:
        engine.run(jobs.publish, journal, listening.endpoint, str(tmp_path / "staging"))
        assert as_published(listening.received(len(MESSAGES))) == AGAIN


def test_a_stream_is_published(engine, journal, tmp_path):
    with Listening("again.>", filtering="publisher") as listening:
        engine.run(jobs.stream_to_the_bus, journal, listening.endpoint, str(tmp_path))
        assert as_published(listening.received(len(MESSAGES))) == AGAIN


def test_the_archive_holds_each_record_once(lake):
    path, (runs, offsets, found) = lake
    assert runs == [COUNT, 0]
    assert offsets == list(range(COUNT))
    assert found == len(expected("flight.*.LAX.>"))
    # Whoever knows nothing of Spark sees the same.
    assert sum(pq.ParquetFile(file).metadata.num_rows for file in path.rglob("*.parquet")) == COUNT


@pytest.mark.heavy  # thirty queries
@pytest.mark.parametrize("recorded", ["journal", "lake"])
def test_the_report_is_that_of_one_process(engine, journal, lake, reported, recorded):
    source = journal if recorded == "journal" else str(lake[0])
    here, there = reported, engine.run(jobs.report, source)
    differing = {name for name in here.keys() | there.keys() if here.get(name) != there.get(name)}
    # When it was made, and of what.
    assert differing <= {"made", "source"}
