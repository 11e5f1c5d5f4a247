import os
import signal
import threading

import pytest
import zmq

import oz
from oz.journal import Journal, JournalGap, Writer
from oz.services.recorder import Recorder, spanning_pattern
from support import scripts, waiting
from support.sizes import size


def is_gap(record):
    return isinstance(record, JournalGap)


def count_losses(records):
    """Check that messages and gaps together are one series of numbers; return how many each are."""
    following = got = lost = 0
    for record in records:
        if not is_gap(record):
            assert int(record.payload[:12]) == following
            following += 1
            got += 1
        elif record.count is not None:
            following += record.count
            lost += record.count
    return got, lost


# messages ---------------------------------------------------------------------------------------------------


def test_headers_and_ids_are_kept(recording, publisher, met):
    pub = publisher()
    run = recording("a.>", source=pub.endpoint, filtering="publisher")
    met(pub)
    pub.publish("a.1", b"1", headers={"trace": "7f", "n": 4, "raw": b"\xff"})
    pub.publish("a.2", b"2", headers={"trace": "x"}, id=(b"s", 3))
    pub.publish("a.3", b"3", id=b"single")
    pub.publish("a.4", b"4")
    pub.flush()
    run.recorded(4)
    records = run.end()
    assert [record.payload for record in records] == [b"1", b"2", b"3", b"4"]
    assert [dict(record.headers) for record in records] == [
        {"trace": "7f", "n": 4, "raw": b"\xff"},
        {"trace": "x"},
        {},
        {},
    ]
    assert [record.id for record in records] == [None, (b"s", 3), b"single", None]
    assert [record.sequence for record in records] == list(range(4))
    assert {len(record.origin) for record in records} == {16}


@pytest.mark.sized
def test_any_bytes_of_a_plain_publisher_are_recorded_exactly(recording, context):
    with context.socket(zmq.XPUB) as pub:
        pub.setsockopt(zmq.XPUB_NODROP, 1)
        port = pub.bind_to_random_port("tcp://127.0.0.1")
        run = recording("zmq:", source=f"tcp://127.0.0.1:{port}")
        assert pub.poll(60_000)
        count, sent = size(1_000, 3_000), []
        for at in range(count):
            # Subjects do not begin with the two bytes that open oz's own keys.
            subject = bytes([1 + at % 255]) + os.urandom(at % 40)
            sent.append([subject, *(os.urandom(at % 90) for _ in range(at % 4))])
            pub.send_multipart(sent[-1])
        run.recorded(count)
    for record, (subject, *frames) in zip(run.end(), sent, strict=True):
        assert [record.subject_bytes, *record.frames[1:]] == [subject, *(frames or [b""])]


def test_a_lone_message_is_durable_at_once_and_many_share_an_append(recording, publisher, met, monkeypatch):
    monkeypatch.setattr("oz.services.recorder.COMMIT_SECONDS", 0.2)
    pub = publisher()
    run = recording("a.>", source=pub.endpoint)
    met(pub)
    pub.publish("a.1")
    run.recorded(1)
    assert Journal(run.directory).end_offset == 1
    for _ in range(5000):
        pub.publish("a.1", b"x")
    run.recorded(5001)
    assert run.stats.commits < 50


def test_a_fast_publisher_does_not_keep_a_recorder_from_stopping(recording, publisher, met, monkeypatch):
    # On a busy machine 64 full reads and their appends take longer than the deadline of the test.
    monkeypatch.setattr("oz.services.recorder.FULL_QUEUE", 2)
    pub = publisher(on_full="drop")
    run = recording("a.>", source=pub.endpoint)
    met(pub)
    over = threading.Event()

    def flood():
        while not over.is_set():
            pub.publish("a.1", b"x")

    flooding = waiting.Thread(flood)
    waiting.until(lambda: run.stats.recorded > 100)
    run.recorder.stop()
    run.thread.outcome()
    # The flood takes processor time from the close of the journal.
    over.set()
    flooding.outcome()
    run.recorder.close()
    records = run.records()
    assert [record.first if is_gap(record) else record.offset for record in records] == list(
        range(len(records))
    )


# sources ----------------------------------------------------------------------------------------------------


def test_a_given_subscriber_is_recorded_and_left_open(recording, publisher, met):
    pub = publisher()
    with oz.Subscriber(pub.endpoint) as sub:
        run = recording("a.>", source=sub)
        met(pub)
        pub.publish("a.1", b"1")
        pub.flush()
        run.recorded(1)
        assert [record.payload for record in run.end()] == [b"1"]
        waiting.until(lambda: not pub.has_subscribers("a.1"))
        sub.subscribe("b")
        met(pub)
        pub.publish("b", b"2")
        assert sub.receive(timeout=waiting.DEADLINE).payload == b"2"


@pytest.mark.parametrize(
    ("patterns", "options", "error"),
    [
        ([], {}, ValueError),
        ("a..b", {}, oz.PatternError),
        ("a", {"sync": "often"}, ValueError),
        ("a", {"source": "tcp//x"}, (ValueError, zmq.ZMQError)),
        ("a", {"subscriber": {"filtering": "nobody"}}, ValueError),
    ],
)
def test_wrong_arguments_leave_the_journal_unlocked(tmp_path, patterns, options, error):
    with pytest.raises(error):
        Recorder(tmp_path / "journal", patterns, **{"source": "tcp://127.0.0.1:9", **options})
    Writer(tmp_path / "journal").close()


def test_options_of_a_subscriber_are_refused_for_a_given_one(tmp_path, publisher):
    with oz.Subscriber(publisher().endpoint) as sub, pytest.raises(TypeError, match="subscriber="):
        Recorder(tmp_path / "journal", "a", source=sub, subscriber={"options": oz.Options(dedupe=True)})


def test_a_repeat_is_recorded_once_also_after_a_restart_of_the_recorder(recording, publisher, met):
    pub = publisher()
    for first in (0, 50):
        run = recording(source=pub.endpoint, subscriber={"options": oz.Options(dedupe=True)})
        met(pub)
        for number in range(first, first + 100):
            pub.publish("a", b"%d" % number, id=(b"s", number))
        pub.publish("end", b"")
        run.recorded(101 if not first else 51)
        records = run.end()
        waiting.until(lambda: not pub.has_subscribers("a"))
    payloads = [record.payload for record in records if not is_gap(record) and record.subject == "a"]
    assert payloads == [b"%d" % at for at in range(150)]


# losses -----------------------------------------------------------------------------------------------------


def test_messages_dropped_on_a_full_disk_are_a_gap_at_their_place(recording, publisher, met, monkeypatch):
    pub = publisher()
    run = recording("a.>", source=pub.endpoint, filtering="publisher", max_pending_bytes=200_000)
    met(pub)
    real, full = run.recorder.writer.append, True

    def append(rows):
        if full:
            raise oz.JournalFull(
                str(run.directory), run.recorder.writer.end_offset, "No space left on device"
            )
        return real(rows)

    monkeypatch.setattr(run.recorder.writer, "append", append)
    for at in range(20_000):
        pub.publish("a.1", b"%012d" % at)
    pub.flush()
    waiting.until(lambda: run.stats.dropped + run.recorder.pending == 20_000)
    assert run.stats.is_full
    assert run.stats.recorded == 0
    assert run.recorder.pending < 10_000, "memory is bounded"
    full = False
    waiting.until(lambda: not run.stats.is_full and not run.recorder.pending)
    for at in range(20_000, 25_000):
        pub.publish("a.1", b"%012d" % at)
    pub.flush()
    waiting.until(lambda: run.stats.recorded + run.stats.lost == 25_000)
    records = run.end()
    got, lost = count_losses(records)
    assert (got + lost, lost) == (25_000, run.stats.dropped)
    assert lost > 1000
    assert {gap.pattern for gap in records if is_gap(gap)} == {"nats:a.>"}


def test_a_disk_that_fails_ends_run_with_the_error(recording, publisher, monkeypatch, met):
    pub = publisher()
    run = recording("a.>", source=pub.endpoint)
    met(pub)

    def broken(_):
        raise oz.JournalError("the disk is broken")

    monkeypatch.setattr(run.recorder.writer, "append", broken)
    pub.publish("a.1", b"x")
    with pytest.raises(oz.JournalError, match="broken"):
        run.thread.outcome()


def test_a_message_that_cannot_be_stored_becomes_a_gap(recording, publisher, monkeypatch, met):
    pub = publisher()
    run = recording("a.>", source=pub.endpoint)
    met(pub)
    real = run.recorder.writer.append

    def append(rows):
        if any(not isinstance(row, dict) and len(row.payload) > 50_000 for row in rows):
            raise ValueError("too large")
        return real(rows)

    monkeypatch.setattr(run.recorder.writer, "append", append)
    for at in range(2000):
        pub.publish("a.1", b"x" * (60_000 if at % 500 == 77 else 5))
    run.recorded(1996)
    waiting.until(lambda: run.stats.lost == 4)
    records = run.end()
    assert [at for at, record in enumerate(records) if is_gap(record)] == [77, 577, 1077, 1577]
    assert len(records) == 2000


KILLED = """
import os, signal, sys
from oz.services.recorder import Recorder

directory, endpoint, most, ack = sys.argv[1:]
options = {"filtering": "publisher"}
recorder = Recorder(directory, "a.>", source=endpoint, group="recorders", ack=ack, subscriber=options)
append, left = recorder.writer.append, int(most)

def append_or_die(rows):
    global left
    if len(rows) >= left:
        append(rows[:left])
        os.kill(os.getpid(), signal.SIGKILL)
    left -= len(rows)
    return append(rows)

recorder.writer.append = append_or_die
recorder.run()
"""
"""Program of a recorder that is killed when it has written `maximum` records."""


def test_a_killed_recorder_with_handled_messages_loses_nothing(tmp_path):
    directory, count = tmp_path / "recorded", 2000
    options = oz.Options(resume_seconds=300)
    with oz.Publisher("tcp://127.0.0.1:*", options=options) as pub:

        def recorder(maximum):
            return scripts.started("-c", KILLED, directory, pub.endpoint, maximum, "handled")

        with recorder(count // 4) as killed:
            pub.wait_for_subscribers("a.1", timeout=waiting.DEADLINE)
            for at in range(count):
                pub.publish("a.1", b"%d" % at)
            assert killed.wait(60) == -signal.SIGKILL
        assert Journal(directory).end_offset == count // 4
        with recorder(10 * count):

            def missing():
                found = {record.payload for record in Journal(directory).read() if not is_gap(record)}
                return count - len(found)

            waiting.until(lambda: not missing(), 60)


@pytest.mark.parametrize("source", ["node", "endpoint"])
def test_handled_messages_need_a_group_and_links(tmp_path, source):
    with oz.Node("a", bus="handled") as node:
        options = {"source": node, "group": "g"} if source == "node" else {"source": "tcp://127.0.0.1:9"}
        with pytest.raises(oz.ConfigurationError, match="ack = 'handled': the recorder needs group="):
            Recorder(tmp_path / "recorded", "a.>", ack="handled", **options)


@pytest.mark.parametrize(
    ("patterns", "text"),
    [
        (["nats:a.*"], "nats:a.*"),
        (["regex:^a|b"], "regex:^a|b"),
        (["md.x.*", "md.y.>"], "zmq:md."),
        (["md.x.*", "*.y"], "zmq:"),
        (["a", "a"], "zmq:a"),
        (["zmq:\udcff\udcfe"], "zmq:"),
        (["zmq:é", "zmq:è"], "zmq:"),
    ],
)
def test_the_pattern_of_a_gap_matches_every_subject_that_may_be_lost(patterns, text):
    assert spanning_pattern([oz.compile(pattern) for pattern in patterns]) == text
    assert oz.compile(text).prefixes
