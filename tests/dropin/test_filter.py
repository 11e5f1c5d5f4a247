"""Counted patterns of one socket, and the decision which subjects match."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.dropin.filter import ANSWERS, Filter

PATTERNS = [
    *(oz.compile(text, "nats") for text in ("a.*", "a.b", ">", "*.b.>", "a.*.c")),
    *(oz.compile(text, "redis") for text in ("a*c", "[ab]?", "a.b")),
    *(oz.compile(text, "regex") for text in (r"(a|b)\.c", r"a.*")),
    *(oz.compile(text, "mqtt") for text in ("a/+", "a/#")),
    *(oz.compile(text, "zmq") for text in ("a", "b.", b"\xff")),
]
SUBJECTS = [
    *(b"a", b"b", b"ab", b"a.b", b"a.b.c", b"b.c", b"b.b.c", b"a/b", b"a/b/c", b"", b"\xff", b"\xff\xfe"),
    *(b"a.\xff", b"axc", b"a..c"),
]


def expected(counts, subject):
    """Return whether a pattern matches, by `Pattern.matches`."""

    def matches(pattern):
        try:
            return pattern.matches(subject)
        except oz.SubjectError:
            return False

    return any(matches(pattern) for pattern in counts)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(PATTERNS)), max_size=30))
def test_filter_agrees_with_its_patterns_one_by_one(steps):
    counts, filter_ = Counter(), Filter()
    filter_.add(PATTERNS[0])
    filter_.discard(PATTERNS[0])
    for is_added, pattern in steps:
        if is_added:
            counts[pattern] += 1
            filter_.add(pattern)
        else:
            assert filter_.discard(pattern) == (counts[pattern] > 0)
            counts[pattern] -= 1
        counts = +counts
        assert len(filter_) == len(counts)
        for subject in SUBJECTS:
            for _ in range(2):
                assert filter_.accepts(subject) == expected(counts, subject), (subject, counts)


def test_prefixes_alone_leave_the_decision_to_libzmq():
    filter_ = Filter()
    filter_.add(oz.compile("a", "zmq"))
    assert not filter_.is_active
    assert filter_.accepts(b"anything")
    filter_.add(oz.compile("b.*", "nats"))
    assert filter_.is_active
    assert [filter_.accepts(subject) for subject in (b"anything", b"b.c", b"other")] == [True, True, False]


def test_remembered_answers_are_bounded():
    filter_ = Filter()
    filter_.add(oz.compile("a.*", "nats"))
    for number in range(ANSWERS + 10):
        filter_.accepts(b"a.%d" % number)
    filter_.accepts(b"a." + b"x" * 1_000)
    assert len(filter_.answers) <= ANSWERS
    assert max(map(len, filter_.answers)) < 1_000
