"""Whatever befalls a journal: what was acknowledged is read or reported, and no offset is given twice."""

import logging

import pytest

import oz
from oz.journal import Journal, Writer
from oz.services.replayer import replay
from support import waiting
from support.journal_damage import (
    ACKNOWLEDGED,
    CASES,
    END,
    OPTIONS,
    check_prefix,
    group,
    make,
    read_all,
)
from support.sizes import one_of_each


def name_of(one):
    return getattr(one, "name", one)


def in_cases(first):
    """Try a law on each second case in the suite, so that half of them have each; the heavy run on all."""
    params = [
        pytest.param(case, id=case.name, marks=() if at % 2 == first else pytest.mark.heavy)
        for at, case in enumerate(CASES)
    ]
    return pytest.mark.parametrize("case", params)


NEW = [payload for _, payload in group(0, 5, "second")]


@pytest.fixture
def made(tmp_path, case):
    logging.getLogger("oz.journal").setLevel(logging.CRITICAL)
    yield make(tmp_path)
    logging.getLogger("oz.journal").setLevel(logging.NOTSET)


def check_all(directory, case, new=()):
    found = read_all(directory)
    assert [offset for offset, _ in found] == list(range(case.end + len(new)))
    assert {offset for offset, payload in found if payload is None} == set(case.lost)
    kept = {offset: payload for offset, payload in found[: case.end] if payload is not None}
    assert kept == {offset: ACKNOWLEDGED[offset] for offset in range(case.end) if offset in kept}
    assert [payload for _, payload in found[case.end :]] == list(new)
    assert Journal(directory).verify().ok


@in_cases(0)
def test_a_writer_goes_on_behind_what_was_acknowledged(made, case):
    case.befalls(made)
    with Writer(made.directory, **OPTIONS) as writer:
        assert writer.end_offset == case.end
        assert writer.append(group(0, 5, "second")) == case.end + 5
        told = {
            at
            for one in writer.findings
            for at in range(one.first_offset or 0, (one.first_offset or 0) + one.records)
        }
    if case.name != "sealed_rotten":  # which nobody looks at who only appends
        assert told == set(case.lost)
        check_all(made.directory, case, NEW)
    Journal(made.directory).repair()
    check_all(made.directory, case, NEW)


@in_cases(1)
def test_verify_says_what_is_lost_and_repair_mends_it(made, case):
    case.befalls(made)
    report = Journal(made.directory).verify()
    assert report.ok == (
        case.reads and not case.name.startswith(("mark_d", "mark_r", "manifest", "epochs_r"))
    )
    if case.lost:
        assert any((one.first_offset or 0) <= case.lost.start for one in report.findings)
    Journal(made.directory).repair()
    check_all(made.directory, case)
    with Writer(made.directory, **OPTIONS) as writer:
        assert writer.append(group(0, 5, "second")) == case.end + 5
    check_all(made.directory, case, NEW)


@pytest.mark.parametrize(("case", "way"), one_of_each(CASES, ["read", "batches", "replay"]), ids=name_of)
def test_a_reader_gets_each_record_or_an_error_that_names_the_offset(made, case, way):
    case.befalls(made)
    found, error = [], None
    try:
        if way == "read":
            for record in Journal(made.directory).read():
                found.append((record.offset, record.payload))
        elif way == "batches":
            for batch in Journal(made.directory).batches(columns=["offset", "payload"]):
                found += zip(
                    batch.column("offset").to_pylist(), batch.column("payload").to_pylist(), strict=True
                )
        else:
            published = Published()
            replay(Journal(made.directory), published, speed=None)
            found = published.found
    except oz.JournalError as caught:
        error = caught
    if way != "replay" or error is None:
        check_prefix(found, error, case)
    assert (error is None) == case.reads


class Published:
    """A publisher that keeps what a replay publishes."""

    def __init__(self):
        self.found = []
        self.stats = None

    def publish(self, subject, payload, **options):
        self.found.append((len(self.found), payload))

    def flush(self, *_):
        pass


@in_cases(0)
def test_a_follower_goes_on_with_the_next_records_or_says_why_not(made, case):
    """It has read everything when it happens, and then another writer appends."""
    followed = Journal(made.directory).read(follow=True, end=END + 5, gaps=True)
    found = [next(followed) for _ in range(END)]
    assert [record.payload for record in found] == list(ACKNOWLEDGED.values())
    case.befalls(made)
    with Writer(made.directory, **OPTIONS) as writer:
        writer.append(group(0, 5, "second"))
        has_failed = False
        try:
            rest = [
                (record.offset, record.payload) for record in waiting.Thread(lambda: list(followed)).outcome()
            ]
        except oz.JournalError:
            has_failed = True
    if has_failed:
        assert case.is_restored or case.lost
        return
    assert not case.is_restored
    expected = [(END + at, payload) for at, payload in enumerate(NEW)]
    assert rest == (expected if case.end == END else [(at, b"") for at in range(END, END + 5)])


@in_cases(1)
def test_a_follower_that_waits_says_when_nothing_can_come(made, case):
    followed = Journal(made.directory).read(follow=True, end=END + 1)
    for _ in range(END):
        next(followed)
    case.befalls(made)
    if case.name.startswith("stream_d") or case.name in (
        "restored",
        "sealed_and_stream_deleted",
        "all_segments_deleted",
    ):
        with pytest.raises(oz.JournalError, match="removed or replaced while it was followed"):
            waiting.Thread(lambda: next(followed)).outcome()
    followed.close()
