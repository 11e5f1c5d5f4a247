"""Staged rows and the outbox: what is on disk before anything is published, and what damage does."""

import os

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

import pyarrow as pa
from pyspark.sql import types as T

from oz.errors import SinkError
from oz.spark.sink import publishing
from oz.spark.sink.columns import RowReader, find_columns
from oz.spark.sink.publishing import BatchDelivery
from oz.spark.sink.settings import read_settings
from oz.spark.sink.staging import SMALL, stage
from oz.spark.sink.writers import Outbox, StreamWriter
from spark.sink_listening import Listening

SCHEMA = T.StructType([T.StructField("subject", T.StringType()), T.StructField("payload", T.BinaryType())])
SETTINGS = read_settings({"endpoint": "tcp://hub:1"}, is_streaming=False)
BIG = b"x" * 1000


def batches(rows, payload=b"small"):
    half = rows // 2
    for first, end in ((0, half), (half, rows)):
        subjects = [f"a.{number}" for number in range(first, end)]
        yield pa.RecordBatch.from_pydict({"subject": subjects, "payload": [payload] * (end - first)})


def staged(directory, rows, payload=b"small", partition=0):
    return stage(
        RowReader(find_columns(SCHEMA), SETTINGS, partition), batches(rows, payload), str(directory), "q"
    )


def subjects(one, directory):
    return [row["subject"] for batch in one.batches(str(directory)) for row in batch.to_pylist()]


def test_few_rows_travel_in_the_message(tmp_path):
    one = staged(tmp_path / "b", 10)
    assert (one.name, one.rows) == (None, 10)
    assert not (tmp_path / "b").exists()
    assert subjects(one, tmp_path) == [b"a.%d" % number for number in range(10)]


def test_many_rows_go_to_a_file_that_only_the_owner_reads(tmp_path):
    one = staged(tmp_path / "b", 1000, BIG, partition=3)
    assert (one.data, one.rows) == (b"", 1000)
    assert os.listdir(tmp_path / "b") == [one.name]
    assert one.name.startswith("00003-")
    assert (tmp_path / "b").stat().st_mode & 0o077 == 0
    assert subjects(one, tmp_path / "b") == [b"a.%d" % number for number in range(1000)]


def test_no_row_is_no_file(tmp_path):
    one = staged(tmp_path / "b", 0)
    assert (one.rows, one.name, one.data, list(one.batches(""))) == (0, None, b"", [])


def test_a_task_that_fails_leaves_no_file(tmp_path):
    def failing():
        yield from batches(2 * SMALL // len(BIG), BIG)
        assert os.listdir(tmp_path / "b")
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError, match="the task fails"):
        stage(RowReader(find_columns(SCHEMA), SETTINGS, 0), failing(), str(tmp_path / "b"), "q")
    assert os.listdir(tmp_path / "b") == []


@pytest.mark.parametrize("at", [0, 100, -100, -1])
def test_damage_is_noticed_before_a_row_is_read(tmp_path, at):
    one = staged(tmp_path, 1000, BIG)
    path = tmp_path / one.name
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(SinkError, match="staged rows are damaged"):
        next(one.batches(str(tmp_path)))


def test_a_file_that_was_cut_is_noticed(tmp_path):
    one = staged(tmp_path, 1000, BIG)
    os.truncate(tmp_path / one.name, 50_000)
    with pytest.raises(SinkError, match="staged rows are damaged"):
        next(one.batches(str(tmp_path)))


def test_a_file_that_another_machine_has_says_what_to_do(tmp_path):
    one = staged(tmp_path / "theirs", 1000, BIG)
    with pytest.raises(SinkError, match=r"1000 staged rows cannot be read.* option staging a directory"):
        next(one.batches(str(tmp_path / "ours")))


# the outbox ----------------------------------------------------------------------------------------------


def test_what_was_written_down_first_is_what_is_published(tmp_path):
    outbox = Outbox(str(tmp_path), "q")
    first = [staged(outbox.path(4), 1000, BIG), staged(outbox.path(4), 10, partition=1)]
    assert outbox.settle(4, first) == first
    again = [staged(outbox.path(4), 7)]
    assert Outbox(str(tmp_path), "q").settle(4, again) == first
    assert subjects(first[0], outbox.path(4)) == [b"a.%d" % number for number in range(1000)]


def test_other_batches_and_queries_are_apart(tmp_path):
    outbox, one, two = Outbox(str(tmp_path), "q"), [staged(tmp_path, 1)], [staged(tmp_path, 2)]
    assert outbox.settle(4, one) == one
    assert outbox.settle(5, two) == two
    assert Outbox(str(tmp_path), "other").settle(4, two) == two


def test_what_is_withdrawn_counts_no_more(tmp_path):
    outbox = Outbox(str(tmp_path), "q")
    outbox.settle(4, [staged(tmp_path, 1)])
    outbox.withdraw(4)
    two = [staged(tmp_path, 2)]
    assert outbox.settle(4, two) == two


@pytest.mark.parametrize("was_killed", [True, False])
def test_rows_that_a_killed_run_may_have_published_stay_though_the_next_finds_nobody(tmp_path, was_killed):
    options = {"endpoint": "tcp://127.0.0.1:1", "timeout": "0.1", "staging": str(tmp_path)}
    writer = StreamWriter(read_settings(options, is_streaming=True), find_columns(SCHEMA))
    outbox = Outbox(str(tmp_path), "q")
    first, then = [staged(outbox.path(4), 10)], [staged(outbox.path(4), 7)]
    if was_killed:
        outbox.settle(4, first)
    with pytest.raises(SinkError, match="0 of 1 subscriptions"):
        writer.commit(first, 4)
    assert outbox.settle(4, then) == (first if was_killed else then)


def test_rows_that_went_out_stay_though_the_next_attempt_of_the_same_run_fails(tmp_path, monkeypatch):
    attempts = []
    whole = BatchDelivery._opened

    def opened(delivery):
        attempts.append(delivery)
        if len(attempts) > 1:
            raise SinkError("the address is held")
        return whole(delivery)

    def leave(*_):
        raise publishing._SubscriberMissing

    monkeypatch.setattr(BatchDelivery, "_opened", opened)
    monkeypatch.setattr(publishing, "_check_still_there", leave)
    with Listening() as sub:
        options = {"endpoint": sub.endpoint, "absent": "wait", "staging": str(tmp_path)}
        writer = StreamWriter(read_settings(options, is_streaming=True), find_columns(SCHEMA))
        outbox = Outbox(str(tmp_path), "q")
        first, then = [staged(outbox.path(4), 10)], [staged(outbox.path(4), 7)]
        with pytest.raises(SinkError, match="the address is held"):
            writer.commit(first, 4)
        assert len(sub.received(10)) == 10
    assert outbox.settle(4, then) == first


def test_a_crash_while_it_is_written_down_leaves_the_batch_open(tmp_path, monkeypatch):
    outbox = Outbox(str(tmp_path), "q")

    def crash(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            outbox.settle(4, [staged(tmp_path, 1)])
    two = [staged(tmp_path, 2)]
    assert outbox.settle(4, two) == two


@pytest.mark.parametrize(
    "content", [b"", b"OZBATCH1", b"OZBATCH1\0\0\0\0", b"OZBATCH1\0\0\0\0\x90", os.urandom(200)]
)
def test_a_damaged_outbox_says_so(tmp_path, content):
    outbox = Outbox(str(tmp_path), "q")
    outbox.settle(4, [staged(tmp_path, 1)])
    (tmp_path / "q" / "4" / "batch.oz").write_bytes(content)
    with pytest.raises(
        SinkError, match="is damaged: which rows of this batch may have been published is not known"
    ):
        outbox.settle(4, [staged(tmp_path, 1)])


def test_batches_before_are_removed_and_later_ones_kept(tmp_path):
    outbox = Outbox(str(tmp_path), "q")
    for batch in (3, 9, 10):
        outbox.settle(batch, [staged(outbox.path(batch), 1000, BIG)])
    outbox.forget_before(10)
    assert os.listdir(tmp_path / "q") == ["10"]


def test_what_is_discarded_is_gone_unless_it_was_written_down(tmp_path):
    outbox = Outbox(str(tmp_path), "q")
    one = staged(outbox.path(4), 1000, BIG)
    outbox.discard(4, [one, staged(outbox.path(4), 1)])
    assert os.listdir(outbox.path(4)) == []
    two = staged(outbox.path(4), 1000, BIG)
    outbox.settle(4, [two])
    outbox.discard(4, [two])
    assert subjects(two, outbox.path(4))[:1] == [b"a.0"]


def test_runs_that_were_killed_long_ago_are_removed(tmp_path):
    for name in ("run-old", "run-new", "query"):
        Outbox(str(tmp_path), name).settle(0, [staged(tmp_path, 1)])
    for name in ("run-old", "query"):
        os.utime(tmp_path / name, (1e9, 1e9))
    Outbox(str(tmp_path), "run-mine").remove_stale("run-")
    assert sorted(os.listdir(tmp_path)) == ["query", "run-new"]
