import itertools
import tempfile
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oz
from oz.journal import COLUMNS, Journal, Kind, Record, Writer
from oz.journal.manifest import LONGEST, MOST, summarise

PATTERNS = [
    "a.*",
    "a.>",
    "*.b",
    "a.b",
    "redis:[ab]*",
    "redis:*",
    "regex:(a|c)\\..*",
    "regex:[a-z].*",
    "zmq:a.",
    "mqtt:a/+",
    "raims.glob:?.b",
]
SUBJECTS = st.sampled_from(["a.b", "a.c", "b.b", "a.b.c", "a/b", "c.d", "", "ab", b"a.\xff", b"\xff"])
TIMES = st.integers(0, 50)
MESSAGES = st.tuples(SUBJECTS, TIMES).map(lambda pair: Record(pair[0], b"x", pair[1]))
GAPS = st.tuples(st.sampled_from(["a.>", "nats:b.*"]), TIMES).map(
    lambda pair: Record.of_gap(pair[0], 2, time_ns=pair[1])
)


def matches(pattern, record):
    if pattern is None:
        return True
    if record.kind == Kind.GAP:
        return oz.compile(record.subject).overlaps(oz.compile(pattern))
    try:
        return oz.compile(pattern).matches(record.subject)
    except oz.SubjectError:
        return False


@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(st.lists(MESSAGES | GAPS, max_size=6), max_size=6),
    st.none() | st.sampled_from(PATTERNS),
    st.none() | st.integers(0, 40),
    st.none() | st.integers(0, 40),
    st.booleans(),
)
def test_a_selection_is_what_looking_at_each_record_would_pick(appends, pattern, start, end, gaps):
    with tempfile.TemporaryDirectory() as directory:
        with Writer(directory, sync="never", segment_bytes=4000) as writer:
            for records in appends:
                writer.append(records)
        read = list(Journal(directory).read(pattern, start=start, end=end, gaps=gaps))
    expected = [
        at
        for at, record in enumerate(itertools.chain(*appends))
        if (start or 0) <= at < (1000 if end is None else end)
        and (gaps or record.is_message)
        and matches(pattern, record)
    ]
    assert [record.offset for record in read] == expected


def at(nanoseconds):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)


@given(st.lists(st.lists(TIMES, max_size=6), max_size=6), st.none() | TIMES, st.none() | TIMES)
def test_times_need_not_ascend_to_be_selected_by(appends, start, end):
    with tempfile.TemporaryDirectory() as directory:
        with Writer(directory, sync="never", segment_bytes=4000) as writer:
            for times in appends:
                writer.append([Record("a", time_ns=time * 1000) for time in times])
        read = Journal(directory).read(
            start=None if start is None else at(start * 1000), end=None if end is None else at(end * 1000)
        )
        found = [record.time_ns // 1000 for record in read]
    wanted = [t for t in itertools.chain(*appends) if (start or 0) <= t < (100 if end is None else end)]
    assert found == wanted


def test_a_datetime_may_be_in_any_zone_and_without_one_is_local(journal):
    moment = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    one = journal([Record("a", time_ns=int(moment.timestamp()) * 10**9 + add) for add in (-1, 0, 1)])
    assert len(list(one.read(start=moment))) == 2
    assert len(list(one.read(start=moment.astimezone(UTC)))) == 2
    assert len(list(one.read(end=moment.astimezone().replace(tzinfo=None)))) == 1


def test_columns_are_given_as_asked_for_and_nothing_else(many):
    [*batches] = many.batches("a.*", columns=["payload", "offset"])
    assert all(batch.schema.names == ["payload", "offset"] and batch.num_rows for batch in batches)
    assert sum(batch.num_rows for batch in batches) == 1000
    record = next(many.read("b.1", columns=["payload"]))
    assert record == Record("", b"1")
    assert next(many.batches()).schema.names == list(COLUMNS)


@pytest.mark.parametrize("columns", [["subject"], ["subject_raw"], ["payload", "subject"]])
def test_a_subject_is_exact_whatever_columns_are_read(journal, columns):
    found = journal([("a", b""), (b"\xff", b"")])
    assert [record.subject for record in found.read(columns=columns)] == ["a", b"\xff"]
    assert [batch.schema.names for batch in found.batches(columns=columns)] == [columns]


def test_records_without_any_column_are_as_many(many):
    assert len(list(many.read("a.>", columns=[]))) == 1000


@pytest.mark.parametrize(
    ("bounds", "count"),
    [
        ({"start": datetime.min}, 3),  # local time, and in some zones before all time in UTC
        ({"start": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))}, 3),
        ({"end": datetime.max}, 3),
        ({"end": datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))}, 3),
        ({"start": datetime(2300, 1, 1, tzinfo=UTC)}, 0),
        ({"end": datetime(1600, 1, 1, tzinfo=UTC)}, 0),
        ({"start": 2**70}, 0),
        ({"end": 2**70}, 3),
    ],
)
def test_a_bound_may_be_further_away_than_a_record_can_be(journal, bounds, count):
    found = journal([Record("a", b"", at) for at in (-5, 0, 5)])
    assert len(list(found.read(**bounds))) == count
    following = found.read(follow=True, start=0, end=2**70)
    assert next(following).offset == 0
    following.close()


@pytest.mark.parametrize("wrong", [["nothing"], "payload", ["payload", "x"]])
def test_an_unknown_column_is_refused(many, wrong):
    with pytest.raises(ValueError, match="column"):
        many.read(columns=wrong)


@pytest.mark.parametrize(("bound", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_a_bound_that_is_none_is_refused(many, bound, error):
    with pytest.raises(error):
        many.read(start=bound)
    with pytest.raises(error):
        many.read(end=bound)


def test_a_bad_pattern_is_refused_at_once(many):
    with pytest.raises(oz.PatternError):
        many.read("a..b")


def test_a_pattern_object_keeps_its_own_dialect(many):
    assert [record.offset for record in many.read(oz.compile("[ab].1", "redis"))] == [1]
    assert [record.subject for record in many.read("redis:?.2999")] == ["c.2999"]


def test_a_pattern_that_runs_out_of_time_is_said(journal):
    one = journal([("a" * 40 + "b", b"")])
    with pytest.raises(oz.PatternTimeout):
        list(one.read("regex:(a|aa)+c"))


def bytes_read(work):
    def count():
        line = Path("/proc/self/io").read_text().splitlines()[0]
        return int(line.removeprefix("rchar: "))

    before = count()
    work()
    return count() - before


@pytest.fixture
def by_subject(journal):
    """Ten segments, each with subjects and payloads of its own, the payloads incompressible."""
    import random

    noise = random.Random(5)
    appends = [
        [Record(f"part{at}.{n}", noise.randbytes(1000), time_ns=at * 10**9 + n) for n in range(1000)]
        for at in range(10)
    ]
    return journal(*appends, [("last", b"")], segment_bytes=1)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts bytes by Linux's /proc")
def test_segments_that_hold_nothing_wanted_are_not_read(by_subject):
    everything = bytes_read(lambda: list(by_subject.batches()))
    assert everything > 10_000_000
    for wanted in (
        {"pattern": "part3.>"},
        {"start": 3000, "end": 4000},
        {"start": at(3 * 10**9), "end": at(4 * 10**9)},
    ):
        found = []
        read = bytes_read(lambda wanted=wanted, found=found: found.extend(by_subject.batches(**wanted)))
        assert sum(batch.num_rows for batch in found) == 1000
        assert read < everything / 5, wanted


def test_a_segment_that_cannot_match_is_passed_by_unless_gaps_are_asked_for(by_subject, journal):
    one = journal([Record.of_gap("z.>", 1)], [("a", b"")], [("last", b"")], segment_bytes=1)
    assert [record.kind for record in one.read("z.1", gaps=True)] == [Kind.GAP]
    assert list(one.read("z.1")) == []
    assert list(one.read("y.1", gaps=True)) == []


@given(
    st.lists(st.binary(max_size=6) | st.text("ab.", max_size=200).map(str.encode), max_size=MOST + 20),
    st.sampled_from(PATTERNS),
)
def test_a_summary_never_denies_what_matches(subjects, pattern):
    summary = summarise(subjects)
    compiled = oz.compile(pattern)
    assert len(summary.prefixes) <= MOST
    assert all(len(prefix) <= LONGEST for prefix in summary.prefixes)
    assert type(summary).from_data(summary.as_data()) == summary
    if any(matches(pattern, Record(subject)) for subject in subjects):
        assert summary.may_match(compiled)


def test_a_summary_of_many_subjects_still_tells_them_from_others():
    summary = summarise(b"md.%d.%d" % (n % 7, n) for n in range(10_000))
    assert not summary.complete
    assert summary.may_match(oz.compile("md.3.>"))
    assert not summary.may_match(oz.compile("md.9.>"))
    assert not summary.may_match(oz.compile("news.>"))


def test_batches_of_one_read_all_have_the_same_schema(many):
    schemas = {batch.schema.remove_metadata().to_string() for batch in many.batches()}
    assert len(schemas) == 1
    assert isinstance(next(many.batches()), pa.RecordBatch)


def test_a_table_has_its_columns_also_without_rows(tmp_path):
    with Writer(tmp_path) as writer:
        writer.append([("md.a", b"1"), (b"md.\xff", b"2")])
    journal = Journal(tmp_path)
    names = ["payload", "subject", "subject_raw"]
    table = journal.table("redis:md.*", columns=names)
    assert table.column_names == names
    assert table.column("payload").to_pylist() == [b"1", b"2"]
    empty = journal.table("nothing", columns=names)
    assert (empty.num_rows, empty.schema) == (0, table.schema)
    assert journal.table().column_names == list(COLUMNS)
    with pytest.raises(ValueError, match="no column 'x'"):
        journal.table(columns=["x"])
