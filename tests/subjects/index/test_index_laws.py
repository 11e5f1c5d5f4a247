"""An index gives the same answers as a loop over its patterns."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import oz
from oz.subjects.index import words as shapes
from subjects.drawn import SUBJECTS, encoded, made, matches, specs, subjects
from support.sizes import size

pytestmark = pytest.mark.sized

SMALL_POOL = {
    "nats": ["a", "a.b", "a.*", "*.b", "*", ">", "a.>", "*.*", "*.>", "b.*.a", "a*", "é.*"],
    "rv": ["a", "a.b", "a.*", ">", "*.b"],
    "kubemq": ["a*", "a*.>", "ab*.b", "a.b*", "*", "a.b"],
    "raims.rv": ["a.b", "a.*", ">a"],
    "redis": ["*", "a*", "a?b", "[ab]*", "[^a]b", "a", "a.b", b"\xff*", b"*\xff", "", r"\*"],
    "raims.glob": ["a?", "a*", "?", "[ab]?.b", "a"],
    "raims.sub": ["a", "a.*", b"\xff", ""],
    "regex": ["a.*", "(a|b).b", "a", "[ab].*", "(?i)a", "", ".*"],
    "zmq": ["", "a", "a.", b"\xff"],
    "mqtt": ["a", "a/+", "+/b", "#", "a/#", "/#", "+", "+/+", "a//b", "$a/#", "a/+/#", "+/#"],
    "amqp": [
        "", "a", "a.*", "#", "a.#", "#.b", "a.#.b", "*.#", "#.*", "#.a.#", "#.b.#.a", "*", ".#", "#.a.#.*"
    ],
}  # fmt: skip
POOL = [oz.compile(text, dialect) for dialect, texts in SMALL_POOL.items() for text in texts]
VALUES = [None, 1, 2, "x"]


class IndexMachine(RuleBasedStateMachine):
    """An index beside a dict of pairs, which tries every pattern."""

    @initialize()
    def start(self):
        self.index = oz.PatternIndex()
        self.pairs = {}

    @rule(pattern=st.sampled_from(POOL), value=st.sampled_from(VALUES))
    def add(self, pattern, value):
        self.index.add(pattern, value)
        self.pairs[pattern.dialect, encoded(pattern.text), value] = pattern

    @rule(spec=specs, value=st.sampled_from(VALUES))
    def add_any(self, spec, value):
        if spec[1] not in ("regex", "rv"):  # their text alone does not tell them apart
            self.add(made(spec), value)

    @rule(pattern=st.sampled_from(POOL), value=st.sampled_from(VALUES))
    def discard_whether_it_is_there_or_not(self, pattern, value):
        self.index.discard(pattern, value)
        self.pairs.pop((pattern.dialect, encoded(pattern.text), value), None)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def discard(self, data):
        key = data.draw(st.sampled_from(sorted(self.pairs, key=repr)))
        self.index.discard(self.pairs.pop(key), key[2])

    @rule(subject=subjects)
    def match(self, subject):
        self.check(subject)

    @rule()
    def match_the_pool(self):
        for subject in SUBJECTS:
            self.check(subject)

    @rule()
    def discard_all(self):
        for (_, _, value), pattern in self.pairs.items():
            self.index.discard(pattern, value)
        self.pairs.clear()
        assert_empty(self.index)

    @invariant()
    def counts_pairs(self):
        if hasattr(self, "index"):
            assert len(self.index) == len(self.pairs)

    def check(self, subject):
        expected = Counter(
            pattern if value is None else value
            for (_, _, value), pattern in self.pairs.items()
            if matches(pattern, subject)
        )
        assert Counter(self.index.match(subject)) == expected
        assert Counter(self.index.match(subject)) == expected, "from the cache"

    def teardown(self):
        if hasattr(self, "index"):
            self.match_the_pool()
            self.discard_all()
            for subject in SUBJECTS:
                assert list(self.index.match(subject)) == []


def assert_empty(index):
    """Check that discarded patterns leave nothing behind."""
    assert len(index) == 0
    assert index._literals == {}
    for table in index._tables.values():
        assert not table
        assert table._shapes == {}
        assert table._trie._root == {}
    assert index._buckets._buckets == {}
    assert index._buckets._lengths == {}


class CrowdedIndexMachine(IndexMachine):
    """Two shapes are allowed, so that most patterns are in tries."""

    @initialize()
    def crowd(self):
        shapes.MAX_SHAPES = 2

    def teardown(self):
        try:
            super().teardown()
        finally:
            shapes.MAX_SHAPES = MAX_SHAPES


MAX_SHAPES = shapes.MAX_SHAPES

TestTheIndexAgreesWithALoopWhenItIsCrowded = CrowdedIndexMachine.TestCase
TestTheIndexAgreesWithALoopWhenItIsCrowded.settings = settings(
    max_examples=size(3, 500), stateful_step_count=30, deadline=None
)

TestTheIndexAgreesWithALoop = IndexMachine.TestCase
TestTheIndexAgreesWithALoop.settings = settings(
    max_examples=size(8, 2000), stateful_step_count=30, deadline=None
)
