import os
import threading

import msgpack
import pytest
import zmq

import oz
from oz.journal import Journal, Kind, Record, Writer
from oz.services.recorder import Recorder
from support import waiting
from support.sizes import size

FILTERINGS = ["prefix", "publisher"]

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("filtering", FILTERINGS)
def test_what_matches_is_recorded_as_it_was_published(recording, publisher, filtering, met):
    pub = publisher()
    one = recording(["a.*", "b.>"], connect=pub.endpoint, filtering=filtering)
    met(pub, 2 if filtering == "prefix" else 1)
    for at in range(3000):
        pub.publish(f"{'abc'[at % 3]}.{at % 7}", b"%d" % at)
    pub.flush()
    one.recorded(2000)
    records = one.end()
    expected = [(f"{'abc'[at % 3]}.{at % 7}", b"%d" % at) for at in range(3000) if at % 3 < 2]
    assert [(record.subject, record.payload) for record in records] == expected
    assert [record.offset for record in records] == list(range(2000))
    assert all(record.time_ns for record in records)
    if filtering == "publisher":
        assert {len(record.origin) for record in records} == {16}
        assert [record.sequence for record in records] == list(range(2000))
    assert Journal(one.directory).verify().ok


@pytest.mark.parametrize("size", [0, 1, 7, 1000, 5000])
def test_origin_sequence_and_time_are_those_of_each_message_however_they_are_grouped(
    recording, publisher, size, met
):
    """Two publishers, whose batches of any size come one among the other."""
    pubs = [publisher(), publisher()]
    one = recording("a.>", connect=[pub.endpoint for pub in pubs], filtering="publisher")
    for pub in pubs:
        met(pub)
    count = 0
    for turn in range(6):
        for number, pub in enumerate(pubs):
            with pub.batch():
                for at in range(size):
                    pub.publish(f"a.{number}", b"%d" % (turn * size + at))
                    count += 1
    one.recorded(count)
    records = one.end()
    assert len(records) == 12 * size
    origins = {}
    for number in (0, 1):
        mine = [record for record in records if record.subject == f"a.{number}"]
        assert [(record.sequence, record.payload) for record in mine] == [
            (at, b"%d" % at) for at in range(6 * size)
        ]
        assert [record.time_ns for record in mine] == sorted(record.time_ns for record in mine)
        origins[number] = {record.origin for record in mine}
    assert not size or (origins[0] != origins[1] and len(origins[0]) == len(origins[1]) == 1)


def test_headers_frames_and_what_to_reply_to_are_kept(recording, publisher, met):
    pub = publisher()
    one = recording("a.>", connect=pub.endpoint, filtering="publisher")
    met(pub)
    pub.publish("a.1", b"1", headers={"trace": "7f", "n": 4, "raw": b"\xff"})
    pub.publish("a.2", [b"first", b"second", b"third"])
    pub.publish("a.3", [b"first", b"second"], headers={"trace": "x"})
    pub.publish("a.4", b"4")
    pub.flush()
    one.recorded(4)
    records = one.end()
    assert [record.payload for record in records] == [b"1", b"first", b"first", b"4"]
    packed = [record.headers and msgpack.unpackb(record.headers) for record in records]
    assert packed == [
        {"trace": "7f", "n": 4, "raw": b"\xff"},
        {"oz-more": [b"second", b"third"]},
        {"trace": "x", "oz-more": [b"second"]},
        None,
    ]


@pytest.mark.sized
def test_any_bytes_from_a_plain_publisher_are_recorded_exactly(recording, context):
    """Random subjects, payloads and numbers of frames, through a plain PUB."""
    with context.socket(zmq.XPUB) as pub:
        pub.setsockopt(zmq.XPUB_NODROP, 1)
        port = pub.bind_to_random_port("tcp://127.0.0.1")
        one = recording("zmq:", connect=f"tcp://127.0.0.1:{port}")
        assert pub.poll(60_000)
        count, sent = size(1_000, 3_000), []
        for at in range(count):
            # Not the two bytes that open oz's own keys.
            subject = bytes([1 + at % 255]) + os.urandom(at % 40)
            sent.append([subject, *(os.urandom(at % 90) for _ in range(at % 4))])
            pub.send_multipart(sent[-1])
        one.recorded(count)
    records = one.end()
    for record, (subject, *frames) in zip(records, sent, strict=True):
        raw = record.subject if isinstance(record.subject, bytes) else record.subject.encode()
        more = msgpack.unpackb(record.headers)["oz-more"] if record.headers else []
        assert (raw, record.payload, more) == (subject, (frames or [b""])[0], frames[1:])


def test_a_lone_message_is_durable_at_once_and_many_share_a_commit(recording, publisher, met):
    pub = publisher()
    one = recording("a.>", connect=pub.endpoint, commit_seconds=0.2)
    met(pub)
    pub.publish("a.1")
    one.recorded(1)
    assert Journal(one.directory).end_offset == 1
    for _ in range(5000):
        pub.publish("a.1", b"x")
    one.recorded(5001)
    assert one.stats.commits < 50


def test_a_journal_is_gone_on_with_and_the_time_between_is_a_gap(recording, publisher, met):
    pub = publisher()
    for turn in range(3):
        one = recording(["md.x.>", "md.y.>"], connect=pub.endpoint)
        met(pub, 2)
        pub.publish("md.x.1", b"%d" % turn)
        one.recorded(1)
        records = one.end()
        waiting.until(lambda: not pub.interest("md.x.1"))
    assert [record.kind for record in records] == [0, 1, 0, 1, 0]
    assert [record.payload for record in records if record.is_message] == [b"0", b"1", b"2"]
    gaps = [record for record in records if record.kind == Kind.GAP]
    assert [(gap.subject, gap.lost) for gap in gaps] == [("zmq:md.", None)] * 2


def test_two_recorders_on_one_journal_are_refused_before_anything_is_subscribed(recording, publisher, met):
    pub = publisher()
    one = recording("a", connect=pub.endpoint)
    met(pub)
    with pytest.raises(oz.JournalError, match=f"process {os.getpid()}"):
        Recorder(one.directory, "b", connect=pub.endpoint)
    assert not pub.interest("b")
    pub.publish("a", b"1")
    one.recorded(1)


@pytest.mark.parametrize(
    ("patterns", "options", "error"),
    [([], {}, ValueError), ("a..b", {}, oz.PatternError), ("a", {"sync": "often"}, ValueError),
     ("a", {"connect": "tcp//x"}, (ValueError, zmq.ZMQError)), ("a", {"filtering": "nobody"}, ValueError)],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_and_leaves_the_journal_to_others(tmp_path, patterns, options, error):
    with pytest.raises(error):
        Recorder(tmp_path / "journal", patterns, **{"connect": "tcp://127.0.0.1:9", **options})
    Writer(tmp_path / "journal").close()


def test_a_recorder_that_cannot_begin_gives_its_endpoint_back(tmp_path):
    headers = msgpack.packb({"oz-id": b"1"})
    with Writer(tmp_path, segment_bytes=1) as writer:
        for _ in range(2):
            writer.append([Record("a", headers=headers)])
    sealed = tmp_path / f"{0:020d}.arrow"
    sealed.write_bytes(sealed.read_bytes()[:1200])
    endpoint = f"ipc://{tmp_path}/feed"
    with pytest.raises(oz.JournalError, match="repair"):
        Recorder(tmp_path, "a", bind=endpoint, filtering="publisher", subscriber={"dedupe": True})
    Journal(tmp_path).repair()
    with Recorder(tmp_path, "a", bind=endpoint, filtering="publisher", subscriber={"dedupe": True}) as one:
        assert one.subscriber.endpoint == endpoint


def test_what_arrived_before_it_was_stopped_is_recorded(recording, publisher, met):
    pub = publisher()
    one = recording("a.>", connect=pub.endpoint, filtering="publisher")
    met(pub)
    pub.publish("a.1", b"0")
    one.recorded(1)
    for at in range(1, 20_000):
        pub.publish("a.1", b"%d" % at)
    pub.flush()
    records = one.end()
    assert [record.payload for record in records] == [b"%d" % at for at in range(20_000)]


def test_a_fast_publisher_cannot_keep_a_recorder_from_stopping(recording, publisher, met):
    pub = publisher(on_full="drop")
    one = recording("a.>", connect=pub.endpoint)
    met(pub)
    over = threading.Event()

    def flood():
        while not over.is_set():
            pub.publish("a.1", b"x")

    flooding = waiting.Thread(flood)
    waiting.until(lambda: one.stats.recorded > 100)
    records = one.end()
    over.set()
    flooding.outcome()
    assert [record.offset for record in records] == list(range(len(records)))


def test_a_disk_that_fails_ends_it_with_an_error(recording, publisher, monkeypatch, met):
    pub = publisher()
    one = recording("a.>", connect=pub.endpoint)
    met(pub)

    def broken(*_):
        raise oz.JournalError("the disk is broken")

    monkeypatch.setattr(one.recorder.writer, "append_columns", broken)
    pub.publish("a.1", b"x")
    with pytest.raises(oz.JournalError, match="broken"):
        one.thread.outcome()


def test_a_message_that_cannot_be_stored_becomes_a_gap_and_the_others_stay(
    recording, publisher, monkeypatch, met
):
    monkeypatch.setattr("oz.journal.columns.MAX_PAYLOAD", 50_000)
    pub = publisher()
    one = recording("a.>", connect=pub.endpoint)
    met(pub)
    for at in range(2000):
        pub.publish("a.1", b"x" * (60_000 if at % 500 == 77 else 5))
    one.recorded(1996)
    waiting.until(lambda: one.stats.lost == 4)
    records = one.end()
    assert [at for at, record in enumerate(records) if record.lost == 1] == [77, 577, 1077, 1577]
    assert len(records) == 2000


def test_a_repeat_is_recorded_once_also_by_a_recorder_that_goes_on(recording, publisher, met):
    pub = publisher()
    for attempt in range(2):
        one = recording(connect=pub.endpoint, filtering="publisher", subscriber={"dedupe": True})
        met(pub)
        for number in range(attempt * 50, 100):
            pub.publish("a", b"%d" % number, message_id=(b"s", number))
            pub.publish("b", b"%d" % number, message_id=b"single %d" % number)
        pub.publish("end", b"")
        one.recorded((201, 1)[attempt])
        records = one.end()
        waiting.until(lambda: not pub.interest("a"))
    messages = [record for record in records if record.is_message]
    assert [int(record.payload) for record in messages if record.subject == "a"] == list(range(100))
    assert [int(record.payload) for record in messages if record.subject == "b"] == list(range(100))
    assert sum(record.subject == "end" for record in messages) == 2
