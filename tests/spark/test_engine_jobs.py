"""The source, the sink and every job on a real standalone cluster, and in local-cluster mode."""

import json

import pytest

import oz

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import cluster_jobs as jobs
import pyarrow.parquet as pq
from sink_listening import Listening

from oz.journal import Journal, Record, Writer

pytestmark = pytest.mark.timeout(600)

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


AGAIN = sorted((f"again.{RECORDS[number].subject}", RECORDS[number].payload) for number in MESSAGES)


def test_a_batch_reads_the_journal_on_executors(engine, journal):
    assert engine.run(jobs.read, journal, "flight.*.LAX.>") == (expected("flight.*.LAX.>"), 4)


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


def test_the_archive_holds_each_record_once(engine, journal, tmp_path):
    lake = tmp_path / "lake"
    runs, offsets, found = engine.run(jobs.archive, journal, str(lake))
    assert runs == [COUNT, 0]
    assert offsets == list(range(COUNT))
    assert found == len(expected("flight.*.LAX.>"))
    # Whoever knows nothing of Spark sees the same.
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in lake.rglob("*.parquet")) == COUNT


def test_the_report_is_that_of_one_process(engine, spark, journal):
    here, there = jobs.report(spark, journal), engine.run(jobs.report, journal)
    differing = {name for name in here.keys() | there.keys() if here.get(name) != there.get(name)}
    assert differing <= {"made"}  # when it was made


def test_subscriptions_are_explained_as_in_one_process(engine, spark, journal):
    patterns = ["flight.*.LAX.>", "flight.JFK.>", "redis:*BOS*"]
    there = engine.run(jobs.explain, journal, patterns)
    assert there == jobs.explain(spark, journal, patterns)


def test_a_journal_is_replayed(engine, journal, tmp_path):
    with Listening("flight.>", filtering="publisher") as listening:
        published = engine.run(jobs.replay, journal, listening.endpoint, str(tmp_path / "staging"))
        assert published == len(MESSAGES)
        received = listening.received(published)
    assert [message.payload for message in received] == [RECORDS[number].payload for number in MESSAGES]
