"""`oz.PatternIndex` beside a plain dict trie and a loop over compiled regexes, from 1,000 patterns on.

Patterns are random: four tokens, one of them a wildcard. There are as many words as make about one pattern
match a subject, whatever their number. Each number is measured in a process of its own. Index and trie are
timed in turn on the same subjects, and the best of the rounds counts: what disturbs a round only adds to it.
A loop over regexes is timed on a sample and multiplied.

Run it as `python benchmarks/pattern_index.py`, with `--full` for a million patterns.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import machine

import oz

ROUNDS = 7
SUBJECTS = 5_000
SAMPLE = 200
"""How many regexes are tried in a loop, on a tenth as many subjects."""

Trie = dict[Any, Any]


def main(full: bool = False) -> None:
    """Print the tables.

    Args:
        full: with a million patterns too, which takes minutes and a gigabyte.
    """
    print(machine.describe())
    print("   patterns | uncached   trie  regexes* | cached |  compile  add  discard | bytes/pattern  trie")
    for count in (1_000, 10_000, 100_000, *([1_000_000] if full else [])):
        print(_apart(measure, "nats", count), flush=True)
    print("times in µs; * extrapolated from a sample\n")
    print("    100,000 patterns of | uncached µs | cached µs")
    for dialect in ("kubemq", "mqtt", "amqp", "amqp ##", "redis", "zmq", "mixed"):
        print(_apart(measure_dialect, dialect, 100_000), flush=True)
    print(machine.describe())


def _apart(function: Callable[..., Any], *arguments: object) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def measure(dialect: str, count: int) -> str:
    """Measure everything for so many patterns; give a row of the table."""
    words = _words(count)
    texts = _texts(dialect, count, words)
    start = _memory()
    compiling, patterns = _timed(lambda: [oz.compile(text, dialect) for text in texts])
    index = oz.PatternIndex()
    for pattern in patterns:
        index.add(pattern)
    ours = (_memory() - start) / count
    start = _memory()
    trie: Trie = {}
    for pattern in patterns:
        add_to_trie(trie, str(pattern.text), pattern)
    theirs = (_memory() - start) / count
    uncached, walked = race(index, trie, _subjects(words))
    cached = time_cached(index, _subjects(words)[:1_000])
    discarding, adding = time_changes(index, random.Random(5).sample(patterns, 1_000))
    return (
        f"{count:11,} | {uncached:8.2f} {walked:6.2f} {time_regexes(patterns, _subjects(words)):9,.0f} "
        f"| {cached:6.3f} | {compiling / count:8.1f} {adding:4.1f} {discarding:8.1f} "
        f"| {ours:13.0f} {theirs:5.0f}"
    )


def measure_dialect(dialect: str, count: int) -> str:
    """Measure what matching takes with patterns of another dialect, or of several."""
    words = _words(count)
    index = oz.PatternIndex()
    names = ("nats", "kubemq", "mqtt", "amqp", "redis", "zmq") if dialect == "mixed" else (dialect,)
    for name in names:
        for text in _texts(name, count // len(names), words):
            index.add(oz.compile(text, name.split()[0]))
    separator = "/" if dialect == "mqtt" else "."
    subjects = [subject.replace(".", separator) for subject in _subjects(words)]
    uncached = min(_uncached(index, subjects) for _ in range(3))
    return f"{dialect:>23} | {uncached:11.2f} | {time_cached(index, subjects[:1_000]):9.3f}"


def rates(count: int) -> dict[str, float]:
    """Return the subjects a second that are matched by so many patterns, by index and by trie."""
    return _apart(measure_rates, count)


def measure_rates(count: int) -> dict[str, float]:
    """Measure them in this process."""
    words = _words(count)
    index, trie = oz.PatternIndex(), Trie()
    for text in _texts("nats", count, words):
        pattern = oz.compile(text, "nats")
        index.add(pattern)
        add_to_trie(trie, text, pattern)
    uncached, walked = race(index, trie, _subjects(words))
    cached = time_cached(index, _subjects(words)[:1_000])
    return {"seen before": 1e6 / cached, "new": 1e6 / uncached, "new, a plain trie": 1e6 / walked}


def race(index: oz.PatternIndex, trie: Trie, subjects: list[str]) -> tuple[float, float]:
    """Match new subjects by index and trie in turn; give µs a subject of each."""
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(_uncached(index, subjects))
        theirs.append(_per(lambda: [walk_trie(trie, subject) for subject in subjects], subjects))
    if any(len(walk_trie(trie, subject)) != len(index.match(subject)) for subject in subjects):
        raise SystemExit("index and trie do not agree: the comparison is void")
    return min(ours), min(theirs)


def _uncached(index: oz.PatternIndex, subjects: list[str]) -> float:
    stranger = oz.compile("no.such.subject.>")
    index.add(stranger)  # so that all that was remembered is forgotten
    index.discard(stranger)
    return _per(lambda: [index.match(subject) for subject in subjects], subjects)


def time_cached(index: oz.PatternIndex, subjects: list[str]) -> float:
    """Match subjects that are remembered; give µs a subject."""
    for subject in subjects:
        index.match(subject)
    return min(_per(lambda: [index.match(subject) for subject in subjects], subjects) for _ in range(ROUNDS))


def time_changes(index: oz.PatternIndex, patterns: list[oz.Pattern]) -> tuple[float, float]:
    """Take patterns out and add them again with a message after each; give µs for each change alone."""
    spent = {"discard": 0.0, "add": 0.0}
    for name, change in (("discard", index.discard), ("add", index.add)):
        for number, pattern in enumerate(patterns):
            started = time.perf_counter()
            change(pattern)
            spent[name] += time.perf_counter() - started
            index.match(f"a.message.between.{number}")
    return 1e6 * spent["discard"] / len(patterns), 1e6 * spent["add"] / len(patterns)


def time_regexes(patterns: list[oz.Pattern], subjects: list[str]) -> float:
    """Try a sample of regexes in a loop; give µs a subject for all patterns."""
    sample = [pattern.regex for pattern in random.Random(6).sample(patterns, SAMPLE)]
    tried = subjects[: SAMPLE // 10]

    def loop() -> None:
        for subject in tried:
            for one in sample:
                one.fullmatch(subject)

    return min(_per(loop, tried) for _ in range(ROUNDS)) * len(patterns) / len(sample)


def add_to_trie(trie: Trie, text: str, value: object) -> None:
    """Add a pattern to a plain trie of dicts."""
    for token in text.split("."):
        trie = trie.setdefault(token, {})
    trie[None] = value


def walk_trie(trie: Trie, subject: str) -> list[object]:
    """Find the patterns that match: literal children and wildcards, level by level."""
    nodes = [trie]
    for token in subject.split("."):
        following = []
        for node in nodes:
            if (child := node.get(token)) is not None:
                following.append(child)
            if (child := node.get("*")) is not None:
                following.append(child)
        nodes = following
    return [node[None] for node in nodes if None in node]


def _words(count: int) -> list[str]:
    return [f"w{number}" for number in range(max(10, round(count ** (1 / 3))))]


def _texts(dialect: str, count: int, words: list[str]) -> list[str]:
    """Make different patterns at random, with one wildcard each (two for `amqp ##`)."""
    draw = random.Random(count)
    found: dict[str, None] = {}
    while len(found) < count:
        tokens = draw.choices(words, k=4)
        found[_written(dialect, tokens, draw.randrange(4), len(found))] = None
    return list(found)


def _written(dialect: str, tokens: list[str], at: int, number: int) -> str:
    if dialect in ("redis", "zmq"):  # prefixes that differ
        return ".".join(tokens[:3]) + f".{number}" + ("*" if dialect == "redis" else "")
    if dialect == "amqp ##":
        return ".".join(["#", *tokens[:2], "#", *tokens[2:]])
    wild = {"kubemq": tokens[at][:-1] + "*", "mqtt": "+", "amqp": "#"}
    tokens[at] = wild.get(dialect, "*")
    return ("/" if dialect == "mqtt" else ".").join(tokens)


def _subjects(words: list[str]) -> list[str]:
    draw = random.Random(7)
    return list({".".join(draw.choices(words, k=4)) for _ in range(2 * SUBJECTS)})[:SUBJECTS]


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = function()
    return 1e6 * (time.perf_counter() - started), result


def _per(function: Callable[[], Any], items: Iterable[object]) -> float:
    return _timed(function)[0] / len(list(items))


def _memory() -> int:
    """Give the bytes of memory that this process has in use."""
    gc.collect()
    if not os.path.exists("/proc/self/statm"):
        return 0  # only Linux tells; the columns then show 0
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main("--full" in sys.argv[1:])
