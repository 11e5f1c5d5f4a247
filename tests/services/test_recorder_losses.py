"""What does not reach the journal is a record in it."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

import oz
from oz.journal import Journal, Kind
from oz.message import Gap
from oz.services.backlog import RecordBacklog
from oz.services.columns import Loss, place_of, spanning
from support import scripts, waiting
from support.inside import backlog_of
from support.ports import lasting_endpoint
from support.sizes import in_suite

HERE = Path(__file__).parent
FLOOD = HERE / "flooding.py"

pytestmark = pytest.mark.timeout(180)


def end_of(directory):
    """How far a journal goes that may not have been begun yet."""
    try:
        return Journal(directory).end_offset
    except oz.JournalError:
        return 0


def accounted(records):
    """Check that messages and gaps together are one row of numbers; how many each are."""
    following = got = lost = 0
    for record in records:
        if record.is_message:
            assert int(record.payload[:12]) == following == record.sequence
            following += 1
            got += 1
        elif record.lost is not None:
            assert record.sequence == following
            following += record.lost
            lost += record.lost
    return got, lost


def test_what_a_publisher_dropped_is_a_gap_between_the_messages_around_it(recording, publisher, met):
    """The recorder is held up until its publisher has dropped some, and again at the very end."""
    pub = publisher(on_full="drop", high_water_mark=4)
    one = recording(
        "a.>",
        connect=pub.endpoint,
        filtering="publisher",
        most_waiting=1,
        subscriber={"high_water_mark": 4},
    )
    met(pub)
    real, gate = one.recorder._writing._commit, threading.Event()
    one.recorder._writing._commit = lambda items: (gate.wait(100), real(items))
    payload = bytes(2000)
    count = 0
    while pub.stats.missed < 1000:
        for _ in range(1000):
            pub.publish("a.1", b"%012d" % count + payload)
            count += 1
    gate.set()
    pub.flush()
    waiting.until(lambda: one.stats.recorded + one.stats.lost == count)
    got, lost = accounted(one.end())
    assert got + lost == count
    assert lost == pub.stats.missed > 0


def test_what_finds_no_room_is_a_gap_where_it_would_have_been(recording, publisher, met):
    pub = publisher()
    one = recording("a.>", connect=pub.endpoint, filtering="publisher", most_waiting=200_000)
    met(pub)
    writer, real = one.recorder.writer, one.recorder.writer.append_columns
    full = True

    def append(*columns):
        if full:
            raise oz.JournalFull(str(one.directory), writer.end_offset, "No space left on device")
        return real(*columns)

    writer.append_columns = append
    for at in range(20_000):
        pub.publish("a.1", b"%012d" % at)
    pub.flush()
    waiting.until(lambda: backlog_of(one.recorder).discarded + one.recorder.waiting == 20_000)
    assert one.stats.is_full
    assert one.stats.recorded == 0
    assert backlog_of(one.recorder).bytes < 3_000_000, "what is held in memory is bounded"
    full = False
    waiting.until(lambda: not one.stats.is_full and not one.recorder.waiting)
    for at in range(20_000, 25_000):
        pub.publish("a.1", b"%012d" % at)
    pub.flush()
    waiting.until(lambda: one.stats.recorded + one.stats.lost == 25_000)
    records = one.end()
    got, lost = accounted(records)
    assert (got + lost, lost) == (25_000, backlog_of(one.recorder).discarded)
    assert lost > 1000
    assert [record.subject for record in records if not record.is_message] == ["nats:a.>"]


def test_a_full_disk_is_said_once_and_what_waits_at_the_end_is_an_error(recording, publisher, met, caplog):
    pub = publisher()
    one = recording("a.>", connect=pub.endpoint)
    met(pub)

    def full(*_):
        raise oz.JournalFull(str(one.directory), 0, "No space left on device")

    one.recorder.writer.append_columns = full
    pub.publish("a.1", b"x")
    waiting.until(lambda: one.stats.is_full)
    pub.publish("a.1", b"y")
    waiting.until(lambda: one.recorder.waiting == 2)
    with pytest.raises(oz.JournalFull):
        one.end()
    assert one.recorder.waiting == 2
    assert [line for line in caplog.messages if "No space left" in line] == caplog.messages[:1]
    assert "it tries again by itself" in caplog.messages[0]  # `append` is for programs
    assert "append again" not in caplog.messages[0]


def test_a_disk_without_room_in_earnest(tmp_path):
    """RLIMIT_FSIZE: segments stop growing at 60 kB, until the limit is lifted."""
    result = scripts.run(HERE / "limited.py", tmp_path / "recorded", timeout=150)
    recorded, lost = map(int, result.split())
    records = list(Journal(tmp_path / "recorded").read(gaps=True))
    assert accounted(records) == (recorded, lost)
    assert recorded + lost == 50_000
    assert lost > 1000
    assert Journal(tmp_path / "recorded").verify().ok


@pytest.mark.timeout(300)
@pytest.mark.parametrize("filtering", in_suite(["publisher"], ["prefix"]))
def test_a_recorder_that_is_killed_under_traffic_keeps_what_was_durable(tmp_path, filtering):
    """Three times; the journal goes on each time, with a gap in between."""
    directory = tmp_path / "recorded"
    with scripts.started(FLOOD) as flood:
        endpoint = flood.stdout.readline().strip()
        arguments = ("-m", "oz", "record", "a.>", "--journal", directory, "--connect", endpoint)
        before = 0
        for _ in range(3):
            with scripts.started(*arguments, "--filtering", filtering, "--segment-bytes", "300K") as recorder:
                waiting.until(lambda past=before + 2000: end_of(directory) > past, 60)
                durable = Journal(directory).end_offset
                recorder.send_signal(signal.SIGKILL)
                recorder.wait(60)
            # More may be there than was durable, and must not look like what the next one records.
            before = end_of(directory)
            assert before >= durable
        with scripts.started(*arguments, "--filtering", filtering) as recorder:
            waiting.until(lambda: end_of(directory) > before + 2000, 60)
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(60) == 0
        flood.stdin.write("\n")
        flood.stdin.flush()
    journal = Journal(directory)
    records = list(journal.read(gaps=True))
    assert [record.offset for record in records] == list(range(journal.end_offset))
    # Nobody knows how much a recorder has missed while there was none; and one that gets no processor for
    # seconds takes the publisher for silent.
    assert sum(record.kind == Kind.GAP and record.lost is None for record in records) >= 3
    last, is_told = -1, True
    for record in records:
        if not record.is_message:
            is_told = True
            continue
        number = int(record.payload)
        assert number > last
        assert number == last + 1 or is_told, f"nothing is said of what is missing before {number}"
        last, is_told = number, False
    assert journal.verify().ok


@pytest.mark.timeout(300)
def test_a_recorder_that_was_suspended_accounts_for_everything(tmp_path):
    directory = tmp_path / "recorded"
    with scripts.started(FLOOD, "--drop") as flood:
        endpoint = flood.stdout.readline().strip()
        arguments = ("record", "a.>", "--journal", directory, "--connect", endpoint)
        with scripts.started("-m", "oz", *arguments, "--filtering", "publisher") as recorder:
            waiting.until(lambda: end_of(directory) > 1000, 60)
            os.kill(recorder.pid, signal.SIGSTOP)
            time.sleep(1.0)  # not to wait for anything: for as long as that it is away
            os.kill(recorder.pid, signal.SIGCONT)
            end = Journal(directory).end_offset
            waiting.until(lambda: Journal(directory).end_offset > end + 1000, 60)
            flood.stdin.write("\n")
            flood.stdin.flush()
            count = int(flood.stdout.readline())
            waiting.until(lambda: sum(accounted(Journal(directory).read(gaps=True))) == count, 60)
            recorder.send_signal(signal.SIGTERM)
            _, said = recorder.communicate(timeout=60)
    assert recorder.returncode == 0
    got, lost = accounted(Journal(directory).read(gaps=True))
    assert f"recorded {got} messages" in said
    assert f"{lost} known to be lost" in said


def test_a_publisher_that_was_restarted_is_recorded_further(recording, publisher, met):
    endpoint = lasting_endpoint()
    pub = publisher(bind=endpoint)
    one = recording("a.>", connect=endpoint, filtering="publisher")
    met(pub)
    pub.publish("a.1", b"1")
    one.recorded(1)
    pub.close()
    again = publisher(bind=endpoint)
    met(again)
    again.publish("a.1", b"2")
    one.recorded(2)
    first, second = one.end()
    assert (first.payload, second.payload) == (b"1", b"2")
    assert first.origin != second.origin
    assert first.sequence == second.sequence == 0


class Received:
    def __init__(self, origin, sequence):
        self.origin, self.sequence = origin, sequence


@pytest.mark.parametrize(
    ("gap", "sequences", "place"),
    [
        (Gap(b"a", None, 3, sequence=5), [("a", 3), ("a", 4), ("a", 8), ("a", 9)], 2),
        (Gap(b"a", None, 3, sequence=5), [("a", 3), ("b", 9), ("a", 4)], 3),
        (Gap(b"a", None, 3, sequence=0), [("a", 3), ("a", 4)], 0),
        (Gap(b"a", None, None), [("a", 7), ("b", 1), ("a", 0), ("a", 1)], 2),
        (Gap(b"a", None, None), [("b", 7), ("a", 0)], 1),
        (Gap(b"a", None, None), [("b", 7)], 1),
        (Gap(b"a", None, 1, sequence=0), [], 0),
    ],
)
def test_a_gap_is_recorded_before_the_first_message_behind_it(gap, sequences, place):
    loss = Loss(gap.count, 0, gap.origin, gap.sequence)
    assert place_of(loss, [Received(name.encode(), number) for name, number in sequences]) == place


def test_what_was_dropped_is_recorded_before_what_is_taken_in_after_it():
    backlog = RecordBacklog(1000)
    backlog.discard([Received(b"a", 5), Received(b"b", 1), Received(b"a", 6)])
    backlog.put(Loss(None, 1))
    found = [(one.origin, one.sequence, one.count) for one in backlog.take()]
    assert found == [(b"a", 5, 2), (b"b", 1, 1), (None, None, None)]


@pytest.mark.parametrize(
    ("patterns", "spec"),
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
def test_the_pattern_of_a_loss_matches_whatever_may_have_been_lost(patterns, spec):
    assert spanning([oz.compile(pattern) for pattern in patterns]) == spec
    assert oz.compile(spec).prefixes
