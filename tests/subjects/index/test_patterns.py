"""Patterns and cached answers of an index."""

from weakref import WeakSet

import regex

import oz
from oz.subjects.index import words
from oz.subjects.index.patterns import AnswerCache
from oz.subjects.index.words import Shape, shape_of
from support.cases import each


def test_literal_changes_only_the_answer_of_its_subject():
    index = oz.PatternIndex()
    index.add(oz.compile("a.*"))
    answers = {subject: index._find(subject) for subject in ("a.1", "a.2")}
    index.add(oz.compile("a.1"))
    assert index._find("a.2") is answers["a.2"]
    assert len(index.match("a.1")) == 2
    index.discard(oz.compile("a.1"))
    assert index._find("a.2") is answers["a.2"]
    assert len(index.match("a.1")) == 1


def test_cache_is_bounded_and_keeps_recent_answers():
    memory = AnswerCache(10)
    for number in range(1_000):
        memory.put(number, str(number))
        assert memory.newer.get(number) == str(number)
        assert len(memory) <= 10
        if "kept" not in memory.newer and memory.find("kept") is None:
            assert number < 5
            memory.put("kept", "kept")
    assert memory.find(0) is None


class Answer:
    """Cached answer. A weak reference shows whether the cache still has it."""


def test_dropped_answers_are_freed_in_steps():
    memory, held = AnswerCache(100), WeakSet()

    def fill(count):
        for number in range(count):
            answer = Answer()
            held.add(answer)
            memory.put(number, answer)

    for turn in range(50):
        fill(turn)
        memory.clear()
        assert len(memory) == 0
        assert len(held) <= 100
    fill(400)
    memory.clear()
    fill(60)
    assert len(held) == len(memory) == 60


@each(
    ("text", "dialect", "shape"),
    [
        ("a.*.c", "nats", Shape((0, 2), 3, False, False)),
        ("*.*", "nats", Shape((), 2, False, True)),
        ("a.>", "nats", Shape((0,), 2, True, False)),
        ("a/#", "mqtt", Shape((0,), 1, True, False)),
        ("#", "mqtt", Shape((), 0, True, True)),
        ("a.#.*.c", "amqp", Shape((0, -1), 3, True, False)),
        ("#.a", "amqp", Shape((-1,), 1, True, True)),
        ("#.a.#", "amqp", None),
        ("a*.b", "kubemq", None),
    ],
)
def test_the_shape_of_a_pattern(text, dialect, shape):
    pattern = oz.compile(text, dialect)
    assert shape_of(pattern._compiled.tokens or pattern._compiled.words) == shape


def test_a_pattern_in_the_trie_is_found_when_its_shape_has_room_again(monkeypatch):
    monkeypatch.setattr(words, "MAX_SHAPES", 1)
    index = oz.PatternIndex()
    first, second = oz.compile("a.*"), oz.compile("*.b")
    index.add(first)
    index.add(second)
    index.discard(first)
    index.add(second)
    index.add(oz.compile("*.c"))
    assert len(index) == 2
    assert list(index.match("a.b")) == [second]
    index.discard(second)
    assert list(index.match("a.b")) == []
    assert len(index.match("a.c")) == 1


def test_a_pattern_with_many_values_and_prefixes_is_tried_once(monkeypatch):
    tried = []
    pattern = oz.compile("(ab|cd).*", "regex")
    assert len(pattern.prefixes) == 2
    index = oz.PatternIndex()
    for value in range(5):
        index.add(pattern, value)
    index.add(oz.compile("ab", "zmq"), "zmq")
    matches = oz.Pattern.matches
    monkeypatch.setattr(
        oz.Pattern, "matches", lambda self, subject: tried.append(1) or matches(self, subject)
    )
    assert sorted(map(str, index.match("abc"))) == ["0", "1", "2", "3", "4", "zmq"]
    assert len(tried) == 1


def test_patterns_do_not_compile_a_regex_before_one_is_asked_for(monkeypatch):
    compiled, compile_regex = [], regex.compile
    monkeypatch.setattr(regex, "compile", lambda *how: compiled.append(how) or compile_regex(*how))
    for text, dialect in (("a.*", "nats"), ("a/+", "mqtt"), ("a.#", "amqp")):
        pattern = oz.compile(text, dialect)
        index = oz.PatternIndex()
        index.add(pattern)
        assert index.match("a/b" if dialect == "mqtt" else "a.b")
        assert compiled == []
        assert pattern.regex is pattern.regex
        assert len(compiled) == 1
        compiled.clear()
