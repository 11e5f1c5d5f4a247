"""Random patterns and subjects: `oz.PatternIndex` beside a plain trie of dicts, for `curves` and `test_parts`.

A pattern has four tokens, one of them a wildcard. About one pattern matches each subject.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable
from typing import Any

import oz

ROUNDS = 7
SUBJECTS = 5_000

Trie = dict[Any, Any]


class Case:
    """An index and a trie with the same patterns, and subjects to match."""

    def __init__(self, count: int) -> None:
        words = [f"w{number}" for number in range(max(10, round(count ** (1 / 3))))]
        draw = random.Random(count)
        texts: dict[str, None] = {}
        while len(texts) < count:
            tokens = draw.choices(words, k=4)
            tokens[draw.randrange(4)] = "*"
            texts[".".join(tokens)] = None
        self.index, self.trie = oz.PatternIndex(), Trie()
        for text in texts:
            self.index.add(oz.compile(text), text)
            node = self.trie
            for token in text.split("."):
                node = node.setdefault(token, {})
            node[None] = text
        draw = random.Random(7)
        self.subjects = list({".".join(draw.choices(words, k=4)) for _ in range(2 * SUBJECTS)})[:SUBJECTS]
        self._other = oz.compile("no.such.subject.>")
        if any(len(self.find(subject)) != len(self.index.match(subject)) for subject in self.subjects):
            raise SystemExit("index and trie do not agree")

    def match_new(self) -> None:
        """Match each subject, without cached answers."""
        self.index.add(self._other)
        self.index.discard(self._other)
        for subject in self.subjects:
            self.index.match(subject)

    def match_again(self) -> None:
        """Match subjects whose answers are cached."""
        for subject in self.subjects[:1_000]:
            self.index.match(subject)

    def walk(self) -> None:
        """Match each subject by the trie."""
        for subject in self.subjects:
            self.find(subject)

    def find(self, subject: str) -> list[object]:
        """Return the patterns of the trie that match."""
        nodes = [self.trie]
        for token in subject.split("."):
            nodes = [node[key] for node in nodes for key in (token, "*") if key in node]
        return [node[None] for node in nodes if None in node]


def rates(count: int) -> dict[str, float]:
    """Return the subjects a second of index and trie, in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_rates, (count,))


def _rates(count: int) -> dict[str, float]:
    case = Case(count)
    new, trie = [], []
    for _ in range(ROUNDS):
        new.append(_seconds(case.match_new))
        trie.append(_seconds(case.walk))
    seen = min(_seconds(case.match_again) for _ in range(ROUNDS))
    number = len(case.subjects)
    return {
        "seen before": min(1_000, number) / seen,
        "new": number / min(new),
        "new, a plain trie": number / min(trie),
    }


def _seconds(function: Callable[[], None]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
