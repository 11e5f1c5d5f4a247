"""Patterns and ranges, compared with a brute-force selection."""

import datetime
import random

import pytest

import oz
from oz.journal import GAP, Journal, JournalGap, Writer
from support.sizes import size
from support.waiting import until

START = 1_700_000_000  # seconds since 1970 of the first record
SUBJECTS = [
    "md.xetra.SAP",
    "md.xetra.BMW",
    "md.nyse.IBM",
    "md",
    "md.xetra",
    "order.new.1",
    "order.fill.1",
    "a b",
    "MD.xetra",
    "sensor:a1:temp",
    "sensor:b2:temp",
    "/building/1/temp",
    "building/1/temp",
    "$SYS/x",
    "ümlaut.x",
    "_hidden.x",
    "x" * 300,
]
PATTERNS = [
    "md.>",
    "md.xetra.*",
    "*.xetra.*",
    "md",
    "order.*.1",
    "nats:>",
    "rv:MD.>",
    "rv:md.*.SAP",
    "kubemq:md.*",
    "redis:sensor:[ab]?:*",
    "redis:*",
    "redis:md.[!x]*",
    "regex:^order\\.(new|fill)\\..*$",
    "regex:xetra",
    "regex:x{300}",
    "mqtt:building/+/temp",
    "mqtt:#",
    "amqp:md.#",
    "amqp:*.xetra",
    "zmq:md.x",
    "zmq:",
    "absent.subject",
    "zmq:absent",
    "raims.sub:md.>",
    "raims.rv:md.>",
    "raims.glob:md*",
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A journal of sealed segments and an active one, whose writer stays open; its rows."""
    directory = tmp_path_factory.mktemp("mixed") / "journal"
    chance = random.Random(1)
    rows = []
    with Writer(directory, segment_bytes=20_000) as writer:
        for group in range(60):
            # Some segments have few of the subjects, so that pruning has work.
            subjects = SUBJECTS if group % 3 else SUBJECTS[: 1 + group % 5]
            some = [(chance.choice(subjects), b"%d.%d" % (group, at)) for at in range(20)]
            times = [(START + group * 60 + at) * 10**9 for at in range(20)]
            writer.append(
                {
                    "subject": [item[0] for item in some],
                    "payload": [item[1] for item in some],
                    "time_ns": times,
                }
            )
            rows += [(*item, time_ns) for item, time_ns in zip(some, times, strict=True)]
        # Another thread seals the segments.
        until(lambda: {segment.is_sealed for segment in Journal(directory).segments} == {True, False})
        yield directory, rows


def read(directory, *arguments, **bounds):
    return [
        (message.offset, message.subject, message.payload, message.time_ns)
        for message in Journal(directory).read(*arguments, **bounds)
        if not isinstance(message, JournalGap)
    ]


@pytest.mark.parametrize("text", PATTERNS)
def test_a_pattern_selects_the_records_that_it_matches(mixed, text):
    directory, rows = mixed
    pattern = oz.compile(text)
    expected = [(at, *row) for at, row in enumerate(rows) if pattern.matches(row[0])]
    for given in (text, pattern, [pattern]):
        assert read(directory, given) == expected
    table = Journal(directory).table(text, columns=["offset", "subject"])
    assert table.to_pylist() == [{"offset": item[0], "subject": item[1]} for item in expected]


@pytest.mark.parametrize("seed", range(size(10, 500)))
def test_ranges_and_patterns_together(mixed, seed):
    directory, rows = mixed
    chance = random.Random(seed)
    last = len(rows)
    by_time = chance.random() < 0.5
    if by_time:
        bounds = sorted(chance.uniform(START - 100, START + 3700) for _ in range(2))
        start, end = (datetime.datetime.fromtimestamp(bound, datetime.UTC) for bound in bounds)

        def has(at):
            moment = datetime.datetime.fromtimestamp(rows[at][2] / 1e9, datetime.UTC)
            return start <= moment < end
    else:
        start, end = sorted(chance.randrange(0, last + 10) for _ in range(2))

        def has(at):
            return start <= at < end

    text = chance.choice([None, *PATTERNS])
    matches = oz.compile(text).matches if text else lambda _: True
    expected = [(at, *row) for at, row in enumerate(rows) if has(at) and matches(row[0])]
    assert read(directory, text, start=start, end=end) == expected
    half = [(at, *row) for at, row in enumerate(rows) if at >= (0 if by_time else start) and matches(row[0])]
    if not by_time:
        assert read(directory, text, start=start) == half


def test_times_as_text(mixed):
    directory, rows = mixed
    assert len(read(directory, start="2023-11-14T22:13:20+00:00")) == len(rows)
    assert read(directory, start="-1h") == []
    assert len(read(directory, end="now")) == len(rows)
    moment = datetime.datetime.fromtimestamp(START + 60, datetime.UTC)
    assert len(read(directory, end=moment.isoformat())) == 20
    for wrong in ("yesterday", "", "12"):
        with pytest.raises(ValueError, match=repr(wrong)):
            read(directory, start=wrong)


def test_subjects_that_are_not_utf8_match_by_their_bytes(tmp_path):
    raw = [b"md.\xff.x", b"md.\xfe\x80", b"\xff", "md.ü".encode()]
    with Writer(tmp_path) as writer:
        writer.append([(subject, b"") for subject in raw])
        active = [record.subject_bytes for record in Journal(tmp_path).read()]
    for read_raw in (active, [record.subject_bytes for record in Journal(tmp_path).read()]):
        assert read_raw == raw
    found = [message.subject_bytes for message in Journal(tmp_path).read("md.>")]
    # The token dialects match text, as subscriptions do.
    assert found == [raw[3]]
    assert [message.subject_bytes for message in Journal(tmp_path).read(oz.compile(b"\xff", "zmq"))] == [
        b"\xff"
    ]
    assert [message.subject_bytes for message in Journal(tmp_path).read("zmq:md.")] == [
        raw[0],
        raw[1],
        raw[3],
    ]


def test_gap_records_are_read_with_each_pattern(tmp_path):
    def gap(pattern, lost):
        return {"subject": pattern, "payload": b"", "kind": GAP, "lost": lost, "origin": b"o" * 16}

    with Writer(tmp_path) as writer:
        writer.append([("a.1", b""), gap("nats:a.>", 3), ("b.1", b""), gap("nats:b.*", None)])
        for _ in range(2):
            everything = list(Journal(tmp_path).read())
            assert [isinstance(item, JournalGap) for item in everything] == [False, True, False, True]
            [_, gap_of_a, other] = Journal(tmp_path).read("a.1")
            assert isinstance(other, JournalGap)
            assert (gap_of_a.count, gap_of_a.reason, gap_of_a.pattern) == (3, "recorded", "nats:a.>")
            assert gap_of_a.origin == b"o" * 16
            assert everything[3].count is None
            assert Journal(tmp_path).table().num_rows == 2
            assert Journal(tmp_path).table(gaps=True).num_rows == 4
            writer.roll()
            writer.wait_sealed()
