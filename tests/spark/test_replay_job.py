"""The job `replay`: journals, lakes and DataFrames go back to the bus; and its command."""

import time
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import msgpack
from click.testing import CliRunner
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import oz
from oz.cli.spark.replay import replay as command
from oz.errors import OptionError, SinkError
from oz.journal import Record, Writer
from oz.spark.jobs.replay import _refuse_another_machine, replay
from spark.sink_listening import Listening

SECOND = 10**9
ROWS = 3000


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """3,000 messages, one a second, the first with headers and two frames; a loss; and an odd subject."""
    directory = tmp_path_factory.mktemp("journal")
    packed = msgpack.packb({"h": 1, "oz-more": [b"second frame"]})
    with Writer(directory) as writer:
        writer.append([Record("first.0", b"0", time_ns=0, headers=packed)])
        writer.append(
            [Record(f"{'ab'[at % 2]}.{at}", b"%d" % at, time_ns=at * SECOND) for at in range(1, ROWS)]
        )
        writer.append([Record.of_gap("nats:a.>", 7, time_ns=ROWS * SECOND)])
        writer.append([Record(b"odd.\xff", b"odd", time_ns=ROWS * SECOND)])
    return directory


@pytest.fixture(scope="module")
def lake(spark, journal, tmp_path_factory):
    """The same, sorted by subject, in several files."""
    directory = str(tmp_path_factory.mktemp("lake") / "lake")
    rows = spark.read.format("oz").option("journal", str(journal)).option("gaps", "true").load()
    kind = F.col("subject").substr(1, 1)
    rows.repartitionByRange(3, "subject").withColumn("k", kind).write.partitionBy("k").parquet(directory)
    return directory


@pytest.fixture
def sub():
    with Listening("", dialect="zmq", filtering="publisher", dedupe=True) as listening:
        yield listening


@pytest.fixture(params=["journal", "lake"])
def source(request):
    return str(request.getfixturevalue(request.param))


def subjects(sub, count):
    return [message.subject for message in sub.received(count)]


EVERYTHING = ["first.0", *(f"{'ab'[at % 2]}.{at}" for at in range(1, ROWS)), "odd.\udcff"]


def test_everything_arrives_in_the_order_of_offsets(spark, source, sub):
    told = []
    done = replay(spark, source, endpoint=sub.endpoint, on_progress=lambda *facts: told.append(facts))
    assert (done.published, done.skipped, done.batches) == (ROWS + 1, 0, 1)
    assert subjects(sub, ROWS + 1) == EVERYTHING
    first = sub.messages[0]
    assert (first.payload, first.frames[2:], dict(first.headers)) == (b"0", [b"second frame"], {"h": 1})
    assert told[-1] == (ROWS + 1, ROWS + 1)


def test_a_journal_goes_piece_by_piece(spark, journal, sub):
    told = []
    done = replay(
        spark,
        journal,
        endpoint=sub.endpoint,
        rows_per_batch=1000,
        start=500,
        on_progress=lambda *f: told.append(f),
    )
    assert (done.published, done.batches) == (ROWS + 1 - 500, 4)
    assert subjects(sub, ROWS + 1 - 500) == EVERYTHING[500:]
    assert [published for published, _ in told] == sorted(published for published, _ in told)


@pytest.mark.parametrize("pattern", ["b.*", oz.compile("^b[.].*", "regex"), "redis:b*"])
def test_only_what_a_pattern_matches(spark, source, sub, pattern):
    done = replay(spark, source, endpoint=sub.endpoint, subject=pattern)
    expected = [one for one in EVERYTHING[:-1] if one.startswith("b.")]
    assert done.published == len(expected)
    assert subjects(sub, len(expected)) == expected


def test_a_byte_pattern_finds_what_is_no_utf8(spark, source, sub):
    assert replay(spark, source, endpoint=sub.endpoint, subject="redis:odd*").published == 1
    assert subjects(sub, 1) == ["odd.\udcff"]


BOUNDS = [
    (10, 20, slice(10, 20)),
    (datetime.fromtimestamp(100, UTC), datetime.fromtimestamp(200), slice(100, 200)),
    (datetime.fromtimestamp(2990, UTC), 2995, slice(2990, 2995)),
    (ROWS + 5, None, slice(0, 0)),
]


@pytest.mark.parametrize(("start", "end", "which"), BOUNDS)
def test_only_a_range_of_offsets_or_times(spark, source, sub, start, end, which):
    if isinstance(end, datetime):
        end = end.astimezone()
    done = replay(spark, source, endpoint=sub.endpoint, start=start, end=end)
    assert done.published == len(EVERYTHING[which])
    assert subjects(sub, done.published) == EVERYTHING[which]


def test_a_dataframe_goes_as_it_is(spark, sub):
    frame = spark.createDataFrame([("z", "1"), ("a", "2")], "subject string, payload string").coalesce(1)
    assert replay(spark, frame, endpoint=sub.endpoint).published == 2
    assert subjects(sub, 2) == ["z", "a"]


def test_a_run_with_the_same_name_repeats_nothing_for_who_dedupes(spark, journal, sub, tmp_path):
    # Not that of all programs: there another process that runs these tests has the same run.
    where = {"endpoint": sub.endpoint, "staging": tmp_path}
    for _ in range(2):
        assert replay(spark, journal, run="monday", **where).published == ROWS + 1
    replay(spark, journal, run="tuesday", subject="b.1", **where)
    assert subjects(sub, ROWS + 2) == [*EVERYTHING, "b.1"]
    assert sub.sub.stats.repeated == ROWS + 1


def test_a_run_that_asks_for_something_else_under_the_same_name_loses_nothing(spark, journal, sub, tmp_path):
    where = {"endpoint": sub.endpoint, "staging": tmp_path, "run": "wednesday"}
    replay(spark, journal, start=2000, **where)
    replay(spark, journal, subject="b.1", **where)
    replay(spark, journal, end=2, **where)
    assert subjects(sub, ROWS + 1 - 2000 + 3) == [*EVERYTHING[2000:], "b.1", *EVERYTHING[:2]]


def test_what_is_neither_journal_nor_lake_is_named(spark, tmp_path):
    (tmp_path / "x.txt").write_text("x")
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SinkError, match=f"{path} is neither a journal nor a lake of Parquet files"):
            replay(spark, path, endpoint="tcp://127.0.0.1:1")


def test_a_server_of_spark_connect_that_does_not_see_this_machines_files_is_refused(tmp_path):
    class Elsewhere:
        """A session whose files are those of another machine, as far as it is asked here."""

        read = property(lambda self: self)

        def format(self, _name):
            return self

        def load(self, _path):
            raise AnalysisException("PATH_NOT_FOUND")

    with pytest.raises(SinkError, match="Run `oz spark replay` on its machine"):
        _refuse_another_machine(Elsewhere(), str(tmp_path))


def test_what_the_sink_says_is_raised_as_it_says_it(spark, journal):
    with pytest.raises(SinkError, match=r"^0 of 1 subscriptions came within 0\.2 s at tcp://127\.0\.0\.1:1"):
        replay(spark, journal, endpoint="tcp://127.0.0.1:1", timeout=0.2)
    with pytest.raises(SinkError, match="there is no column 'payload'"):
        replay(spark, spark.range(1).selectExpr("'a' subject"), endpoint="tcp://127.0.0.1:1")
    with pytest.raises(OptionError, match="did you mean subscribers"):
        replay(spark, journal, endpoint="tcp://127.0.0.1:1", subscriber=1)
    with pytest.raises(OptionError, match="give where to publish to"):
        replay(spark, journal)
    with pytest.raises(OptionError, match=r"option start=.*: it names no time zone"):
        replay(spark, journal, endpoint="tcp://127.0.0.1:1", start=datetime(2026, 3, 1))
    with pytest.raises(OptionError, match=r"option subject='a.>,b.>': a comma is part of a subject"):
        replay(spark, journal, endpoint="tcp://127.0.0.1:1", subject="a.>,b.>")
    frame = spark.createDataFrame([("z", "1")], "subject string, payload string")
    with pytest.raises(SinkError, match="rows without a column 'time_ns' cannot be chosen"):
        replay(spark, frame, endpoint="tcp://127.0.0.1:1", start=datetime.now(UTC))


@pytest.fixture
def _keep_session(monkeypatch, spark):
    """The command would end its session; that of the tests goes on."""

    @contextmanager
    def engine(_master, _conf):
        yield spark

    monkeypatch.setattr(import_module("oz.cli.spark.replay"), "engine", engine)


@pytest.mark.usefixtures("_keep_session")
def test_the_command_publishes_and_says_how_much(journal, sub):
    ended = CliRunner().invoke(
        command, [str(journal), "--connect", sub.endpoint, "--subject", "b.>", "--from", "1000"]
    )
    assert ended.exit_code == 0, ended.output
    assert subjects(sub, 1000) == [f"b.{at}" for at in range(1001, ROWS, 2)]
    assert ended.stderr.startswith("replay: published 1,000 messages in ")
    assert ended.stdout == ""


@pytest.mark.usefixtures("_keep_session")
def test_the_command_reads_a_time_without_a_zone_as_local_time(journal, sub, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kolkata")  # 5:30 hours before UTC
    time.tzset()
    try:
        arguments = ["--connect", sub.endpoint, "--from", "1970-01-01T06:19:57", "--until", "3000"]
        ended = CliRunner().invoke(command, [str(journal), *arguments])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert ended.exit_code == 0, ended.output
    assert subjects(sub, 3) == EVERYTHING[2997:3000]


def test_the_command_refuses_to_guess_whether_to_bind(journal):
    ended = CliRunner().invoke(command, [str(journal), "--to", "tcp://127.0.0.1:1"])
    assert ended.exit_code == 2
    assert "--bind tcp://127.0.0.1:1 or --connect tcp://127.0.0.1:1" in ended.stderr


@pytest.mark.usefixtures("_keep_session")
def test_the_command_takes_a_range(journal, sub):
    arguments = ["--connect", sub.endpoint, "--until", "3002", "--from", "2999", "--skip-invalid"]
    ended = CliRunner().invoke(command, [str(journal), *arguments])
    assert ended.exit_code == 0, ended.output
    assert subjects(sub, 2) == EVERYTHING[-2:]
