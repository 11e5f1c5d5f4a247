"""The law of prefixes: each subject that a regex matches begins with one of its prefixes."""

import itertools
import random

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from oz.subjects.prefixes.literal import literal_prefixes
from support.cases import each
from support.sizes import size

CHARACTERS = "abAB1.-_é\u00c9ßſkK中\U0001f600+*?()[]{}|^$\\/# \n"

# A regex and some strings that it is likely to match; whether it does is asked of the engine.
Sampled = tuple[str, tuple[str, ...]]


def few(strings):
    return tuple(dict.fromkeys(strings))[:12]


def literal(char: str) -> Sampled:
    return regex.escape(char), (char,)


def character_class(members: list[str]) -> Sampled:
    return "[" + "".join(f"\\{c}" if c in "[]^-\\&~|" else c for c in members) + "]", tuple(members)


def character_range(ends: tuple[int, int]) -> Sampled:
    low, high = sorted(ends)
    return f"[\\u{low:04x}-\\u{high:04x}]", few((chr(low), chr((low + high) // 2), chr(high)))


def alternation(parts: list[Sampled]) -> Sampled:
    return "(?:" + "|".join(text for text, _ in parts) + ")", few(
        sample
        for turn in itertools.zip_longest(*(samples for _, samples in parts))
        for sample in turn
        if sample is not None
    )


def sequence(parts: list[Sampled]) -> Sampled:
    longest = max((len(samples) for _, samples in parts), default=1)
    return "".join(text for text, _ in parts), few(
        "".join(samples[(turn * (at + 1)) % len(samples)] for at, (_, samples) in enumerate(parts))
        for turn in range(longest)
    )


def repeated(part: Sampled, low: int, more: int | None, kind: str) -> Sampled:
    text, samples = part
    high = "" if more is None else str(low + more)
    counts = range(low, low + (2 if more is None else more) + 1)
    joined = ("".join(itertools.islice(itertools.cycle(samples[at:] + samples[:at]), count))
              for count in counts for at in range(len(samples)))  # fmt: skip
    return f"(?:{text}){{{low},{high}}}{kind}", few(joined)


def wrapped(part: Sampled, around: str) -> Sampled:
    text, samples = part
    if "i" in around and "-i" not in around:
        samples = few([s for sample in samples for s in (sample, sample.swapcase(), sample.upper())])
    return around.replace("@", text), samples


leaves = st.one_of(
    st.sampled_from(CHARACTERS).map(literal),
    st.lists(st.sampled_from(CHARACTERS), min_size=1, max_size=4).map(character_class),
    st.tuples(st.integers(0x20, 0x7FF), st.integers(0x20, 0x7FF)).map(character_range),
    st.sampled_from([(text, ("",)) for text in ("^", "$", r"\b", r"\B", "")]),
    st.sampled_from([(".", ("a", "é")), (r"\w", ("a", "1")), (r"[^a]", ("b", "中")), (r"\d", ("1",))]),
    st.just(("(?:ab){e<=1}", ("ab", "b", "xb"))),
)
WRAPPERS = [
    "(@)", "(?:@)", "(?>@)", "(?i:@)", "(?-i:@)", "(?s:@)", "(?=@)@", "(?!@x)@", "(?=@)", "(?!@)",
    "@(?<=@)", "(?if:@)", "(?i)@", "(?:^@$)", "(?|@)",
]  # fmt: skip


def grow(part):
    return st.one_of(
        st.lists(part, min_size=1, max_size=4).map(sequence),
        st.lists(part, min_size=1, max_size=4).map(alternation),
        st.builds(
            repeated, part, st.integers(0, 3), st.none() | st.integers(0, 2), st.sampled_from(["", "?", "+"])
        ),
        st.builds(wrapped, part, st.sampled_from(WRAPPERS)),
    )


regexes = st.recursive(leaves, grow, max_leaves=12)


def assert_sound(text, subjects, limit=16, flags=0):
    compiled = regex.compile(text, flags)
    found = literal_prefixes(text, flags, limit=limit)
    assert found.heads
    assert len(found.heads) <= limit
    for pair, other in itertools.permutations(found.heads, 2):
        assert not other.startswith(pair)
    for subject in subjects:
        try:
            # Some drawn regexes backtrack for long. More time finds no more defects.
            matched = compiled.fullmatch(subject, timeout=0.02)
        except TimeoutError:
            continue
        if matched:
            assert subject.encode().startswith(found.heads), (text, subject)
            assert found.literal in (None, subject.encode()), (text, subject)
    if found.literal is not None:
        assert compiled.fullmatch(found.literal.decode())
        assert found.heads == (found.literal,)


@given(regexes, st.sampled_from([1, 2, 5, 16]), st.sampled_from([0, regex.I, regex.V1, regex.V1 | regex.I]))
def test_no_sample_is_lost(sampled, limit, flags):
    text, samples = sampled
    shorter = [sample[:-1] for sample in samples] + [sample[1:] for sample in samples]
    cased = [sample.swapcase() for sample in samples]
    try:
        regex.compile(text, flags)
    except regex.error:
        return
    assert_sound(text, few([*samples, ""]) + few(shorter) + few(cased), limit, flags)


SHORT = ["".join(chars) for length in range(5) for chars in itertools.product("ab1.", repeat=length)]
ALPHABET = r"ab.|()*+?[]^${}1,\i:"
# Single characters seldom make a group with a flag or a repeat; these pieces do.
PIECES = [
    "a", "b", "1", ".", "|", "(", ")", "(?:", "(?i:", "(?>", "(?=", "(?<=", "(?!", ")*", ")+", ")??",
    "){2}", r"\1", "[ab]", "[^a]", "[a-b1]", "{0}", "{1,2}", "?", "*+", "+", "^", "$", r"\b", "{e<=1}",
    "(?|", "(?i)", r"\.", r"\K", "(*SKIP)", "(*PRUNE)",
]  # fmt: skip


@pytest.mark.sized
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("pieces", "longest", "count"),
    [(list(ALPHABET), 8, size(800, 400_000)), (PIECES, 9, size(800, 400_000))],
    ids=["chars", "pieces"],
)
def test_brute_force(pieces, longest, count):
    chance = random.Random(20111121)
    tried = 0
    for _ in range(count):
        text = "".join(chance.choices(pieces, k=chance.randint(1, longest)))
        try:
            compiled = regex.compile(text, cache_pattern=False)
        except regex.error:
            continue
        found = literal_prefixes(text)
        if found.heads == (b"",) and found.literal is None:
            continue
        tried += 1
        try:
            lost = [
                s
                for s in SHORT
                if not s.encode().startswith(found.heads) and compiled.fullmatch(s, timeout=0.02)
            ]
            matched = [s for s in SHORT if found.literal is not None and compiled.fullmatch(s, timeout=0.02)]
        except (TimeoutError, MemoryError):
            # The regex module gives some up: it takes too long, or more captures than it has room for.
            continue
        assert not lost, (text, found, lost)
        if found.literal is not None:
            assert matched in ([found.literal.decode()], []), text
    assert tried > count / 20


# The algebra by itself, against the strings that its sets stand for.


@each(
    ("text", "heads"),
    [
        ("(?:[.]{2,}){3}", ["......"]),
        ("(?:(?:a{2,}){3,}){4}x*", ["a" * 24]),
        ("(?:a+){40}b", ["a" * 40]),
        ("a{2,}a{3}", ["aaaaa"]),
        ("(?:é{2,}){3}", ["é" * 6]),
        ("(?:(?:ab)+){2,}", ["abab"]),
        ("(?:a+b|ab+){2}", ["aa", "abaa", "abab", "abb"]),
    ],
)
def test_a_literal_that_must_follow_a_repeat_is_in_the_prefix(text, heads):
    assert [head.decode() for head in literal_prefixes(text).heads] == heads


def test_a_prefix_that_is_slow_to_lengthen_stays_short():
    assert literal_prefixes("(?:a+){5000}").heads == (b"aa",)
