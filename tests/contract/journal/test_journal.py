"""Journal, recorder and replay."""

from datetime import UTC, datetime
from os import urandom

import pytest

pytest.importorskip("pyarrow")

from contract.adapter import (
    Api,
    errors,
    follow_journal,
    is_journal_intact,
    journal_error,
    journal_records,
    journal_table,
    journal_writer,
    record_node,
    recorder,
    replay,
)
from contract.promises import promise
from support.waiting import Thread, until

RECORDS = [(f"md.{at % 3}.x", b"%d" % at) for at in range(100)]


@promise("A journal returns its records in order, with subject and payload.")
@pytest.mark.parametrize("sync", ["batch", 0.01, "none"])
def test_records_come_back_in_order(tmp_path, sync):
    with journal_writer(tmp_path, sync=sync) as writer:
        assert writer.append(RECORDS[:60]) == 60
        assert journal_records(tmp_path) == RECORDS[:60]
        assert writer.append(RECORDS[60:]) == 100
        assert writer.end_offset == 100
    assert journal_records(tmp_path) == RECORDS


@promise("Patterns of any dialect, ranges of offsets and ranges of time select records.")
def test_patterns_and_ranges_select(tmp_path):
    with journal_writer(tmp_path, segment_bytes=4096) as writer:
        for at in range(0, 50, 5):
            writer.append(RECORDS[at : at + 5])
        middle = datetime.now(UTC)
        writer.append(RECORDS[50:])
    for pattern in ("md.1.*", "redis:md.1*", "regex:md[.]1[.].*"):
        assert journal_records(tmp_path, pattern) == [record for record in RECORDS if record[0] == "md.1.x"]
    for start, end in (
        (10, 20),
        (0, 1),
        (3, 7),
        (7, 7),
        (5, None),
        (None, 5),
        (98, 100),
        (99, 1000),
        (100, None),
    ):
        assert journal_records(tmp_path, start=start, end=end) == RECORDS[start:end]
    assert journal_records(tmp_path, start=middle) == RECORDS[50:]
    assert journal_records(tmp_path, end=middle) == RECORDS[:50]
    assert journal_records(tmp_path, "md.1.*", start=40, end=middle) == RECORDS[40:50:3]


@promise("A table has the chosen columns of the selected records, and no others.")
def test_table_has_the_chosen_columns(tmp_path):
    with journal_writer(tmp_path) as writer:
        writer.append(RECORDS[:50])
        middle = datetime.now(UTC)
        writer.append(RECORDS[50:])
    payloads = [payload for _, payload in RECORDS]
    assert journal_table(tmp_path, columns=["payload"]) == {"payload": payloads}
    assert journal_table(tmp_path, columns=["payload"], start=middle) == {"payload": payloads[50:]}
    assert journal_table(tmp_path, columns=["payload"], end=middle) == {"payload": payloads[:50]}
    assert journal_table(tmp_path, "md.1.*", columns=["payload"], start=90) == {"payload": payloads[91::3]}
    found = journal_table(tmp_path, columns=["offset", "subject"], start=98)
    assert found == {"offset": [98, 99], "subject": ["md.2.x", "md.0.x"]}


@promise("An append that raises an error adds no record, and the writer remains usable.")
def test_refused_append_adds_nothing(tmp_path):
    with journal_writer(tmp_path) as writer:
        writer.append(RECORDS[:10])
        with pytest.raises((TypeError, ValueError)):
            writer.append([*RECORDS[10:20], ("md.1.x", object())])
        assert writer.append(RECORDS[10:]) == 100
    assert journal_records(tmp_path) == RECORDS
    with pytest.raises(errors.ClosedError):
        writer.append(RECORDS)


@promise("A second writer of a journal is refused while the first one is open.")
def test_second_writer_is_refused(tmp_path):
    with journal_writer(tmp_path) as writer:
        writer.append(RECORDS)
        with pytest.raises(journal_error()):
            journal_writer(tmp_path)
    journal_writer(tmp_path).close()


@promise("A killed writer loses no acknowledged record, and the next writer continues the journal.")
def test_killed_writer_loses_nothing_acknowledged(tmp_path, program):
    code = (
        "import sys\n"
        "writer = journal_writer(sys.argv[1], segment_bytes=65536)\n"
        "number = 0\n"
        "while True:\n"
        "    end = writer.append((f'a.{number + at}', b'x' * 100) for at in range(50))\n"
        "    number += 50\n"
        "    say(end)\n"
    )
    with program(code, tmp_path) as process:
        for _ in range(40):
            acknowledged = int(process.stdout.readline())
        process.kill()
        process.wait()
        acknowledged = max([acknowledged, *map(int, process.stdout.read().split("\n")[:-1])])
    with journal_writer(tmp_path) as writer:
        end = writer.append([("next", b"")])
    assert end > acknowledged
    subjects = [subject for subject, _ in journal_records(tmp_path)]
    assert subjects == [*(f"a.{at}" for at in range(end - 1)), "next"]


@promise("A full disk loses no acknowledged record: the append raises an error, and readers still work.")
def test_full_disk_loses_nothing_acknowledged(tmp_path, program):
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "writer = journal_writer(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "end = 0\n"
        "try:\n"
        "    while True:\n"
        "        end = writer.append([(f'a.{end}', bytes([end % 251]) * 5_000)])\n"
        "except errors.OzError as error:\n"
        "    say(f'{type(error).__name__} {end}')\n"
        "sys.stdin.read()\n"
    )
    with program(code, tmp_path) as process:
        name, end = process.stdout.readline().split()
    assert name == "JournalFull"
    found = journal_records(tmp_path)
    assert found == [(f"a.{at}", bytes([at % 251]) * 5_000) for at in range(int(end))]


@promise("Retention by size removes the oldest records, and keeps the newest without a gap.")
def test_retention_keeps_the_newest(tmp_path):
    with journal_writer(tmp_path, segment_bytes=8192, retain_bytes=40_000) as writer:
        for at in range(100):
            writer.append([(f"a.{at}", urandom(1000))])
    subjects = [subject for subject, _ in journal_records(tmp_path)]
    assert 10 < len(subjects) < 60
    assert [subject for subject, _ in journal_records(tmp_path, start=0)] == subjects
    assert is_journal_intact(tmp_path)
    assert subjects == [f"a.{at}" for at in range(100 - len(subjects), 100)]


@promise("Retention by age removes old records, and keeps the records that are newer.")
def test_retention_by_age(tmp_path):
    with journal_writer(tmp_path, segment_bytes=4096) as writer:
        writer.append((f"a.{at}", urandom(1000)) for at in range(20))
        writer.append((f"a.{at}", urandom(1000)) for at in range(20, 40))
    with journal_writer(tmp_path, segment_bytes=4096, retain_seconds=3600) as writer:
        writer.append([("next", b"")])
    assert len(journal_records(tmp_path)) == 41

    def append():
        with journal_writer(tmp_path, segment_bytes=4096, retain_seconds=0.001) as writer:
            writer.append([("last", b"")])
        subjects = [subject for subject, _ in journal_records(tmp_path)]
        assert subjects[-1] == "last"
        return "a.0" not in subjects and "a.39" not in subjects

    until(append)


@promise("A reader that follows a journal receives each record once, also while segments are sealed.")
def test_follower_receives_each_record_once(tmp_path):
    with journal_writer(tmp_path, segment_bytes=4096) as writer:
        writer.append(RECORDS[:1])
        follower = follow_journal(tmp_path)

        def read():
            return [next(follower) for _ in range(150)]

        work = Thread(read)
        for at in range(1, 150):
            writer.append([("a.b", b"%d" % at)])
        assert work.outcome() == [b"%d" % at for at in range(150)]
        follower.close()


@promise("verify finds a flipped bit, and a reader raises an error in place of wrong bytes.")
def test_flipped_bit_is_found(tmp_path):
    with journal_writer(tmp_path, segment_bytes=4096) as writer:
        writer.append(("a.b", bytes([at]) * 100) for at in range(100))
    assert is_journal_intact(tmp_path)
    damaged = max(tmp_path.iterdir(), key=lambda item: item.stat().st_size)
    data = bytearray(damaged.read_bytes())
    at = data.index(bytes([7]) * 50) if bytes([7]) * 50 in data else len(data) // 2
    data[at] ^= 16
    damaged.write_bytes(data)
    assert not is_journal_intact(tmp_path)
    with pytest.raises(journal_error()):
        journal_records(tmp_path)


@promise("A recorder writes each matching message of a publisher, and replay publishes them in order.")
def test_recorded_messages_are_replayed(tmp_path, api):
    publisher = api.publisher("tcp://127.0.0.1:*")
    recording = recorder(tmp_path / "journal", "md.>", publisher.endpoint)
    work = Thread(recording.run)
    publisher.wait_for_subscribers("md.x")
    for subject, payload in RECORDS:
        publisher.publish(subject, payload)
        publisher.publish("other.x", payload)
    publisher.flush()
    until(lambda: recording.writer.end_offset >= len(RECORDS))
    recording.stop()
    work.outcome()
    recording.close()
    assert journal_records(tmp_path / "journal") == RECORDS


@promise("replay publishes the records of a journal in order.")
def test_replay_publishes_in_order(tmp_path, replayed):
    publisher, subscriber = replayed
    with journal_writer(tmp_path) as writer:
        writer.append(RECORDS)
    assert replay(tmp_path, publisher) == len(RECORDS)
    assert [
        (message.subject, message.payload) for message in (subscriber.receive() for _ in RECORDS)
    ] == RECORDS


@pytest.fixture
def replayed():
    """Publisher, and a subscriber that is ready."""
    with Api("sync") as api:
        publisher = api.publisher("tcp://127.0.0.1:*")
        subscriber = api.subscriber(publisher.endpoint, filtering="publisher")
        subscriber.subscribe("md.>")
        subscriber.wait_ready()
        yield publisher, subscriber


@promise(
    "A recorder records a bus.",
    not_for={"asyncio": "A recorder has threads of its own."},
    small=1,
)
def test_bus_can_be_recorded(tmp_path, nodes):
    node, speaker = nodes.node("recorder"), nodes.node("speaker")
    recording = record_node(tmp_path / "journal", "md.>", node)
    work = Thread(recording.run)
    speaker.wait_for_subscribers("md.x")
    for subject, payload in RECORDS:
        speaker.publish(subject, payload)
        speaker.publish("other.x", payload)
    until(lambda: recording.writer.end_offset >= len(RECORDS))
    recording.stop()
    work.outcome()
    recording.close()
    # A bus encodes its payloads, by default with MessagePack.
    assert journal_records(tmp_path / "journal", codec="msgpack") == RECORDS
