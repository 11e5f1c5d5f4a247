"""Ids are remembered exactly, as long as there are not too many."""

from hypothesis import given
from hypothesis import strategies as st

from oz.protocol.subscriber import dedupe
from oz.protocol.subscriber.dedupe import Repeats, Spans

IDS = st.binary(min_size=1, max_size=2) | st.tuples(st.sampled_from([b"s", b"t"]), st.integers(0, 40))


@given(st.lists(IDS, max_size=120))
def test_an_id_is_new_once(drawn):
    remembered, naive = Repeats(), set()
    for one in drawn:
        assert remembered.add(one) is (one not in naive)
        naive.add(one)


@given(st.lists(st.integers(0, 60), max_size=100))
def test_consecutive_numbers_are_one_span(numbers):
    spans = Spans()
    for number in numbers:
        spans.add(number)
    known = set(numbers)
    assert len(spans) == sum(number - 1 not in known for number in known)


def test_a_million_numbers_in_a_row_are_one_span():
    spans = Spans()
    assert all(spans.add(number) for number in range(1_000_000))
    assert len(spans) == 1
    assert not any(spans.add(number) for number in range(0, 1_000_000, 1000))


def test_the_oldest_ids_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(dedupe, "SINGLES", 3)
    remembered = Repeats()
    for one in (b"a", b"b", b"c", b"d"):
        remembered.add(one)
    assert not remembered.add(b"b")
    assert remembered.add(b"a")


def test_the_series_that_was_used_least_lately_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(dedupe, "SERIES", 2)
    remembered = Repeats()
    for one in ((b"a", 0), (b"b", 0), (b"a", 1), (b"c", 0)):
        remembered.add(one)
    assert not remembered.add((b"a", 0))
    assert remembered.add((b"b", 0))


def test_spans_are_bounded_over_all_series(monkeypatch):
    monkeypatch.setattr(dedupe, "SPANS", 10)
    remembered = Repeats()
    for number in range(0, 40, 2):
        remembered.add((b"a", number))
        remembered.add((b"b", number))
    assert remembered.spans <= 11
    assert remembered.add((b"c", 0))
    assert not remembered.add((b"c", 0))
