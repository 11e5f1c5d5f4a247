"""A pattern that backtracks for ever costs the other patterns of an index little."""

from __future__ import annotations

import pytest

import oz
from oz.subjects.index.buckets import RETRY, STRIKES

HOSTILE = oz.compile("(a|aa)+$", "regex")


def hostile_subjects(count):
    return ["a" * (40 + number) + "b" for number in range(count)]


def test_a_hostile_pattern_is_soon_tried_on_few_subjects_only(monkeypatch):
    tries = []
    matches = oz.Pattern.matches
    monkeypatch.setattr(oz.Pattern, "matches", lambda *given: tries.append(1) or matches(*given))
    index = oz.PatternIndex()
    index.add(HOSTILE)
    index.add(oz.compile("*", "nats"), "good")
    for subject in hostile_subjects(200):
        found = index._find(subject)
        assert found.values == ("good",)
        assert found.timed_out == (HOSTILE,)
    assert STRIKES <= len(tries) <= STRIKES + 200 / RETRY + 1


def test_a_pattern_that_recovers_is_tried_again_on_every_subject():
    index = oz.PatternIndex()
    index.add(HOSTILE)
    for subject in hostile_subjects(STRIKES - 1):
        with pytest.raises(oz.PatternTimeout):
            index.match(subject)
    assert index.match("aaa") == (HOSTILE,)
    for number in range(2 * STRIKES):
        assert index.match("a" * (3 + number)) == (HOSTILE,)
