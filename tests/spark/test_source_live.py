"""A query straight from the bus: its recorder ends with it, and the next run takes over."""

import json
import os
import signal
import subprocess
import sys

import pytest

from support.scripts import ENVIRONMENT
from support.waiting import until

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable

import oz
from oz.journal import Journal, Writer
from oz.spark.source.options import read_options
from oz.spark.source.stream import JournalStreamReader
from spark.source_journals import begun, rows_of
from spark.source_schema import SCHEMA


def live(endpoint, **options):
    return JournalStreamReader(read_options({"endpoint": endpoint, **options}), SCHEMA)


def publish(pub, numbers):
    for number in numbers:
        pub.publish(f"live.{number % 3}", b"%d" % number)
    pub.flush()


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_query_reads_what_is_published_while_it_runs(spark, tmp_path, filtering):
    with oz.Publisher("tcp://127.0.0.1:*", on_full="block") as pub:
        frame = spark.readStream.format("oz").option("endpoint", pub.endpoint).option("filtering", filtering)
        frame = frame.option("journal", str(tmp_path / "journal")).option("subject", "live.>").load()
        writing = frame.writeStream.format("parquet").option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        query = begun(writing.option("path", str(tmp_path / "rows")))
        try:
            pub.wait_for_subscribers(timeout=30)
            publish(pub, range(500))
            until(lambda: Journal(tmp_path / "journal").end_offset == 500, 60)
            query.processAllAvailable()
        finally:
            query.stop()
        rows = rows_of(spark, tmp_path, "payload", "sequence")
        assert sorted(int(row.payload) for row in rows) == list(range(500))
        assert all((row.sequence is not None) == (filtering == "publisher") for row in rows)
    # Its process is gone, and with it the lock.
    until(lambda: is_free(tmp_path / "journal"), 60)


def is_free(directory):
    try:
        Writer(directory).close()
    except oz.JournalError:
        return False
    return True


# without Spark: what the reader does in the process that Spark keeps for it ---------------------------------


def test_recorder_starts_with_the_first_question_and_not_before(tmp_path):
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        made = live(pub.endpoint, journal=str(tmp_path / "journal"))
        assert not (tmp_path / "journal").exists()
        start = made.initialOffset()
        assert start["offset"] == 0
        pub.wait_for_subscribers(timeout=20)
        publish(pub, range(10))
        until(lambda: made.latestOffset(start, ReadAllAvailable())["offset"] == 10)
        made.stop()
    until(lambda: is_free(tmp_path / "journal"))


def test_what_was_published_between_two_runs_is_a_gap_of_unknown_size(tmp_path):
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        for run in range(2):
            made = live(pub.endpoint, journal=str(tmp_path / "journal"), gaps="true")
            start = made.initialOffset()
            pub.wait_for_subscribers(timeout=20)
            publish(pub, range(3))
            until(
                lambda made=made, start=start, run=run: (
                    made.latestOffset(start, ReadAllAvailable())["offset"] == 3 + 4 * run
                )
            )
            made.stop()
            until(lambda: not pub.interest("live.0"))
    kinds = [(record.kind, record.lost) for record in Journal(tmp_path / "journal").read(gaps=True)]
    assert kinds == [(0, None)] * 3 + [(1, None)] + [(0, None)] * 3


def test_what_a_publisher_repeats_is_dropped_on_request(tmp_path):
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        made = live(pub.endpoint, journal=str(tmp_path / "journal"), filtering="publisher", dedupe="true")
        start = made.initialOffset()
        pub.wait_for_subscribers(timeout=20)
        for numbers in (range(5), range(8)):  # as a batch of the sink that runs again
            for number in numbers:
                pub.publish("live.n", b"%d" % number, message_id=(b"batch", number))
            pub.flush()
        pub.publish("live.end", b"")
        until(lambda: made.latestOffset(start, ReadAllAvailable())["offset"] == 9)
        made.stop()
    payloads = [record.payload for record in Journal(tmp_path / "journal").read()]
    assert payloads == [b"%d" % number for number in range(8)] + [b""]


def test_without_a_journal_it_is_private_and_says_so(caplog):
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        options = read_options({"endpoint": pub.endpoint})
        made = JournalStreamReader(options, SCHEMA)
        made.initialOffset()
        assert Journal(options.journal).end_offset == 0
        assert f"no option journal: what is received goes to {options.journal}" in caplog.text
        made.stop()
        assert not options.journal.exists()


def test_a_second_query_on_the_same_journal_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("oz.spark.source.stream._TAKEOVER", 0.2)
    with (
        oz.Publisher("tcp://127.0.0.1:*") as pub,
        Writer(tmp_path / "journal"),
        pytest.raises(oz.JournalError, match=r"a writer is at work .*give the option endpoint to one query"),
    ):
        live(pub.endpoint, journal=str(tmp_path / "journal")).initialOffset()


def test_the_next_run_takes_over_from_a_process_that_was_killed(tmp_path):
    program = (
        "import sys, time\nfrom spark.test_source_live import live\n"
        "made = live(sys.argv[1], journal=sys.argv[2]); print(made.initialOffset(), flush=True)\n"
        "time.sleep(600)"
    )
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        command = [sys.executable, "-c", program, pub.endpoint, str(tmp_path / "journal")]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        try:
            assert "'offset': 0" in child.stdout.readline()
            pub.wait_for_subscribers(timeout=20)
            publish(pub, range(5))
            until(lambda: Journal(tmp_path / "journal").end_offset == 5)
            assert not is_free(tmp_path / "journal")
            os.kill(child.pid, signal.SIGKILL)
            made = live(pub.endpoint, journal=str(tmp_path / "journal"))
            start = made.initialOffset()
            assert start["offset"] == 0
            until(lambda: made.latestOffset(start, ReadAllAvailable())["offset"] == 6)  # with the gap
            made.stop()
        finally:
            child.kill()
            child.communicate()


def test_a_recorder_that_fails_fails_the_query(tmp_path):
    with oz.Publisher("tcp://127.0.0.1:*") as pub:
        made = live(pub.endpoint, journal=str(tmp_path / "journal"))
        start = made.initialOffset()
        pub.wait_for_subscribers(timeout=20)
        made._live._recorder.writer._fault = OSError(5, "the disk is gone")
        publish(pub, range(3))

        def failed():
            try:
                made.latestOffset(start, ReadAllAvailable())
            except oz.JournalError as error:
                return json.dumps(str(error))
            return None

        assert "the disk is gone" in until(failed)
        made.stop()
