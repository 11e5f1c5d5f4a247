"""Last values of patterns that take long: by a clock that each pattern moves as it is tried."""

from __future__ import annotations

import oz
from oz.errors import PatternTimeout
from oz.protocol.publisher.last_value_cache import ALLOWANCE, FOR_EACH, LastValueCache
from oz.subjects.index import buckets
from protocol.publisher.matching import matches

SUBJECTS = 100


def test_what_takes_long_is_cut_short_and_the_rest_is_given(monkeypatch):
    now = [0.0]

    def decides(pattern, subject, seconds):
        cost = 0.01 if "aa" in pattern.text else 1e-6
        now[0] += min(cost, seconds)
        if cost >= seconds:
            raise PatternTimeout(pattern.text, subject, seconds)
        return pattern.matches(subject)

    monkeypatch.setattr(buckets, "decides", decides)
    cache = LastValueCache(lambda: now[0])
    for number in range(SUBJECTS):
        cache.put(b"md.%d" % number, number, 0)
    patterns = [oz.compile("md.7"), oz.compile("md.*"), oz.compile("md.(a|aa)+", "regex")]

    assert [payload for _, payload in matches(cache, patterns)] == list(range(SUBJECTS))
    assert now[0] <= ALLOWANCE + FOR_EACH * SUBJECTS + 1e-9
    now[0] = 0.0
    found = matches(cache, [oz.compile(r"md\.[0-9]+", "regex")])
    assert [payload for _, payload in found] == list(range(SUBJECTS))


def test_what_is_not_text_is_none_of_a_text_dialects():
    cache = LastValueCache(lambda: 0.0)
    cache.put(b"md.\xff", 1, 0)
    assert matches(cache, [oz.compile("md.*")]) == []
    assert matches(cache, [oz.compile("md.*", "redis")]) == [(b"md.\xff", 1)]
