"""The table of subjects counts each message once in each branch above, and is bounded."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from oz.explorer import subject_table
from oz.explorer.pattern_filter import PatternFilter
from oz.explorer.subject_table import BRANCH_ROWS, MAX_LEVELS, MAX_ROWS, SubjectTable
from oz.subjects.pattern import compile as compile_pattern

SUBJECTS = st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=4).map(".".join)


def fill(table, *subjects):
    for subject in subjects:
        table.put(subject, subject.encode(), 1)


def every_path(table):
    paths, found = set(), {}
    while True:
        rows = table.rows(paths)
        found = {row.path: row.entry for row in rows}
        opened = paths | {row.path for row in rows if row.entry.children}
        if opened == paths:
            return found
        paths = opened


@given(st.lists(st.tuples(SUBJECTS, st.booleans()), max_size=60))
def test_each_branch_has_the_messages_and_the_rate_of_the_subjects_below_it(steps):
    table, counts, fresh = SubjectTable(), Counter(), Counter()
    for subject, is_tick in steps:
        fill(table, subject)
        fresh[subject] += 1
        if is_tick:
            table.tick(2.0)
            counts += fresh
            fresh.clear()
    table.tick(2.0)
    counts += fresh
    for path, entry in every_path(table).items():
        below = [name for name in counts if name == path or name.startswith(f"{path}.")]
        assert entry.messages == sum(counts[name] for name in below)
        assert entry.rate == sum(fresh[name] for name in below) / 2
    assert table.root.messages == counts.total()
    assert {entry.subject for entry in table.subjects} == set(counts)


def test_rate_is_zero_after_an_interval_without_messages():
    table = SubjectTable()
    fill(table, "a.b", "a.b")
    table.tick(1.0)
    assert [row.entry.rate for row in table.rows({"a"})] == [2.0, 2.0]
    table.tick(1.0)
    assert [row.entry.rate for row in table.rows({"a"})] == [0.0, 0.0]


def test_branch_shows_its_busiest_entries_by_name():
    table = SubjectTable()
    names = [f"a.{number:03}" for number in range(BRANCH_ROWS + 30)]
    fill(table, *names, *names[10:], *names[20:])
    table.tick(1.0)
    head, *below = table.rows({"a"})
    assert (head.shown, len(head.entry.children)) == (BRANCH_ROWS, BRANCH_ROWS + 30)
    assert [row.path for row in below] == sorted(row.path for row in below)
    assert {row.path for row in below} <= set(names[20:])


def test_rows_are_bounded():
    table = SubjectTable()
    fill(table, *(f"{one}.{other}" for one in range(20) for other in range(60)))
    table.tick(1.0)
    assert len(table.rows({str(number) for number in range(20)})) == MAX_ROWS


def test_messages_beyond_the_bound_of_subjects_are_counted_as_others():
    table = SubjectTable(max_subjects=2)
    fill(table, "a", "b", "c", "c", "a", "x" * 1_001)
    table.tick(1.0)
    assert (table.others, table.root.messages, len(table.subjects)) == (3, 6, 2)
    assert table.find("c") is None


def test_subject_with_many_levels_ends_in_one_label():
    table = SubjectTable()
    subject = ".".join("a" * (MAX_LEVELS + 5))
    fill(table, subject)
    entry, levels = table.find(subject), 0
    while entry.parent is not None:
        entry, levels = entry.parent, levels + 1
    assert levels == MAX_LEVELS


def test_payloads_are_bounded(monkeypatch):
    monkeypatch.setattr(subject_table, "TOTAL_BYTES", 1_000)
    table = SubjectTable()
    for subject in "abcd":
        table.put(subject, bytes(900), 1)
    kept = [(len(entry.payload), entry.payload_bytes) for entry in table.subjects]
    assert kept == [(900, 900), (256, 900), (256, 900), (256, 900)]
    for number in range(5):
        table.put("a", bytes(number), 1)
    table.put("b", bytes(200), 1)
    assert len(table.find("b").payload) == 200


def test_filter_tests_new_subjects_only_and_stops_in_time():
    table = SubjectTable()
    fill(table, *(f"md.{number}.x" for number in range(250)), "other")
    found = PatternFilter(compile_pattern("md.*.x"), table)
    ticks = iter(range(100))
    found.advance(lambda: next(ticks), 2.5)
    assert found.summary()["tested"] == 200
    found.advance(lambda: 0.0, 1.0)
    fill(table, "md.new.x", "md.new.y")
    found.advance(lambda: 0.0, 1.0)
    table.tick(1.0)
    summary = found.summary()
    assert (summary["tested"], summary["crossed"], summary["matched"]) == (253, 252, 251)
    assert (summary["crossed_messages"], summary["matched_messages"]) == (252, 251)
    assert summary["prefixes"] == ["md."]
