"""Prefixes of a regex, with each construct that ends a prefix."""

import itertools
from types import SimpleNamespace

import pytest
import regex

from oz.subjects.prefixes import literal as prefix
from oz.subjects.prefixes.literal import EVERYTHING, literal_prefixes
from support.cases import each


def heads(text: str, flags: int = 0, limit: int = 16) -> list[bytes]:
    return list(literal_prefixes(text, flags, limit=limit).heads)


def starts_with_any(subject: str, found: list[bytes]) -> bool:
    return subject.encode("utf-8", "surrogatepass").startswith(tuple(found))


ENDS = [
    # fuzzy: nothing of the fuzzy part, nothing behind it
    ("(?:foo){e<=1}", [b""]),
    ("(foo){e<=1}", [b""]),
    ("a(?:foo){e<=1}bar", [b"a"]),
    ("a(?:foo){s<=1:[a-z]}bar", [b"a"]),
    ("(?e)a(?:foo){i<=1}", [b"a"]),
    ("(?b)a(?:foo){d<=1}", [b"a"]),
    (r"(?:(a)){e<=1}\1", [b""]),
    # sets that are not a plain list of characters
    ("x[[:alpha:]]y", [b"x"]),
    ("x[a[:digit:]]y", [b"x"]),
    ("(?V1)x[a--b]y", [b"x"]),
    ("(?V1)x[[a-z]&&[b]]y", [b"x"]),
    ("(?V1)x[a||b~~c]y", [b"x"]),
    (r"x\p{Lu}y", [b"x"]),
    (r"x\P{Lu}y", [b"x"]),
    (r"x[\p{Lu}]y", [b"x"]),
    (r"x\dy", [b"x"]),
    (r"x[a\d]y", [b"x"]),
    ("x[^a]y", [b"x"]),
    ("x[^a-z]y", [b"x"]),
    ("x.y", [b"x"]),
    ("(?s)x.y", [b"x"]),
    ("(?w)x.y", [b"x"]),
    (r"x\Xy", [b"x"]),
    (r"x\Ry", [b"x"]),
    # constructs that only the engine evaluates, or evaluates in another order
    (r"x\Ky", [b"x"]),
    (r"x\Gy", [b"x"]),
    (r"x\L<names>y", [b"x"]),
    ("(?r)foo", [b""]),
    ("foo(?r)", [b""]),
    ("x(?R)?y", [b"x"]),
    ("(x)(?1)y", [b"x"]),
    ("(?P<n>x)(?&n)y", [b"x"]),
    ("(?P<n>x)(?P>n)y", [b"x"]),
    ("x(a)?(?(1)b|c)", [b"x"]),
    ("x(?(?=a)ab|c)", [b"x"]),
    ("(?(DEFINE)(?P<n>x))y", [b""]),
    ("x(*FAIL)y", [b"x"]),
    ("x(*F)|y", [b"x", b"y"]),
    ("x(*SKIP)y", [b"x"]),
    ("x(*PRUNE)y", [b"x"]),
    # references to groups that do not match one known string
    (r"(a|b)\1", [b"a", b"b"]),
    (r"(a+)\1", [b"a"]),
    (r"(?i:(a))\1", [b"A", b"a"]),
    (r"(a)(?i:\1)", [b"a"]),
    (r"(?P<q>a)(?P<q>b)(?P=q)", [b"ab"]),
    (r"(?P<q>a)(?=(?P<q>.))(?P=q)", [b"a"]),
    (r"(?|(a)|(b))\1", [b"a", b"b"]),
    (r"(?P<q>a(?P<q>b))(?P=q)", [b"ab"]),
    (r"(?=(a))\1", [b""]),
    (r"(a)(?=(?1))\1", [b"a"]),
    # case: letters in all their cases, or not at all
    ("(?i)ab", [b"AB", b"Ab", b"aB", b"ab"]),
    ("(?i)1.", [b"1"]),
    ("(?i)k", [b"K", b"k", "\u212a".encode()]),
    ("(?i)ſ", [b"S", b"s", "ſ".encode()]),
    ("(?i)[ab]", [b"A", b"B", b"a", b"b"]),
    ("(?i)[a-b]", [b"A", b"B", b"a", b"b"]),
    ("(?i)abcdefgh", sorted(bytes(c) for c in itertools.product(*zip(b"abcd", b"ABCD", strict=True)))),
    ("(?if)1ß", [b""]),
    ("(?V1)(?i)1ß", [b""]),
    ("(?i)(?-i:foo)b", [b"fooB", b"foob"]),
    ("foo|(?i:b)", [b"B", b"b", b"foo"]),
    ("fo(?i)o", [b"foO", b"foo"]),
    # characters without UTF-8
    ("x\ud800y", [b"x"]),
    (r"x\udfffy", [b"x"]),
    ("x[a\ud800]y", [b"x"]),
    ("x[\ud000-\ue000]y", [b"x"]),
    # no regex at all
    ("(", [b""]),
    ("a)", [b""]),
    (r"(a\1)", [b""]),
]


@each(("text", "expected"), ENDS)
def test_constructs_that_end_a_prefix(text, expected):
    assert heads(text) == sorted(expected)


GOES_ON = [
    ("foo|foobar", [b"foo"]),
    ("^foo|bar", [b"bar", b"foo"]),
    ("foo?", [b"fo"]),
    ("foo*", [b"fo"]),
    ("foo{0}", [b"fo"]),
    ("foo+", [b"foo"]),
    ("foo?bar", [b"fobar", b"foobar"]),
    ("a*b", [b"a", b"b"]),
    ("a*+b", [b"a", b"b"]),
    ("a{0,2}?b", [b"a", b"b"]),
    ("(?:|a){0,9}b", [b"a", b"b"]),
    ("a{2,3}b", [b"aaab", b"aab"]),
    ("(?:ab)+", [b"ab"]),
    ("(?:ab){2}c", [b"ababc"]),
    ("(?:){5}a", [b"a"]),
    ("a{}", [b"a{}"]),
    ("a{,2}b", [b"a", b"b"]),
    ("foo|", [b""]),
    ("a(?:|b)c", [b"abc", b"ac"]),
    ("", [b""]),
    ("[éè]x", ["èx".encode(), "éx".encode()]),
    ("[à-ÿ]x", [b"\xc3"]),
    ("[а-я]x", [b"\xd0", b"\xd1"]),
    ("[\u4e00-\u4fff]x", [b"\xe4"]),
    ("[\u1000-\u9fff]x", [b""]),
    ("[a-z]x", [b""]),
    ("[0-3a]x", [b"0x", b"1x", b"2x", b"3x", b"ax"]),
    (r"\N{BULLET}x", ["•x".encode()]),
    (r"\x41\u0042\103", [b"ABC"]),
    ("(?x) f o o # bar", [b"foo"]),
    ("(?x: f )o", [b"fo"]),
    ("foo(?#bar)baz", [b"foobaz"]),
    ("(?s)foo", [b"foo"]),
    ("(?m)^foo$", [b"foo"]),
    ("(?a)foo", [b"foo"]),
    ("(?L)foo", [b"foo"]),
    ("(?u)foo", [b"foo"]),
    ("(?w)foo$", [b"foo"]),
    ("(?p)foo", [b"foo"]),
    ("(?V1)foo[ab]", [b"fooa", b"foob"]),
    (r"\Afoo\Z", [b"foo"]),
    (r"\mfoo\M\B", [b"foo"]),
    ("(?>foo|foobar)x", [b"foobarx", b"foox"]),
    ("(?=foo(*SKIP)bar|x)foo", [b"foo"]),
    ("(?<!x)foo(?<=foo)(?!y)bar", [b"foobar"]),
    (r"(?:(a)|b)\1c", [b"aac", b"bac"]),
    (r"(a\b)\g<1>", [b"aa"]),
]


@each(("text", "expected"), GOES_ON)
def test_constructs_that_continue_a_prefix(text, expected):
    assert heads(text) == sorted(expected)


SUBJECTS = ["".join(chars) for length in range(5) for chars in itertools.product("abcx", repeat=length)]


LITERALS = [
    (r"foo\.bar", b"foo.bar"),
    (r"^foo\.bar$", b"foo.bar"),
    (r"\Afoo\b\.\bbar\Z", b"foo.bar"),
    ("(?:a|a)b", b"ab"),
    ("(?:)", b""),
    (r"(a)\1", b"aa"),
    ("é", "é".encode()),
    ("(?i)1.0".replace(".", r"\."), b"1.0"),
    ("[a]b{2}", b"abb"),
    ("(?=f)foo", b"foo"),
    ("foo.", None),
    ("foo|bar", None),
    ("foo?", None),
    ("(?=b)foo", None),
    ("foo^", None),
    (r"foo\B", None),
    ("(?r)foo", None),
    ("foo(*FAIL)", None),
    (r"\L<names>", None),
    ("foo$\n", None),  # it matches in the engine, and not where $ is the very end
    ("foo\n", b"foo\n"),
    ("(?:a|a){30}b(?!)", None),  # the engine needs too long to say that it does not match
    ("a{2000}", None),
]


@each(("text", "literal"), LITERALS)
def test_literal(text, literal):
    assert literal_prefixes(text).literal == literal


def test_flags_are_those_of_the_engine():
    assert heads("a", regex.I) == [b"A", b"a"]
    assert heads(" a # b", regex.X) == [b"a"]
    assert heads("x[a--b]", regex.V1) == [b"x"]
    assert heads("a", regex.R) == [b""]
    assert heads("a", regex.V1 | regex.V0) == [b""]


def test_limit():
    assert heads("[abc]x", limit=3) == [b"ax", b"bx", b"cx"]
    assert heads("[abc]x", limit=2) == [b""]
    assert heads("foo(?:a|b|c)", limit=2) == [b"foo"]
    assert heads("foo(?:a|b|c)", limit=0) == [b"foo"]
    assert heads("|".join(f"foo{n}" for n in range(30))) == [b"foo%d" % n for n in range(10)]
    for limit in range(1, 20):
        found = heads("(?:a|bc|d?e){2}[fgh](?i:xyz)", limit=limit)
        assert 1 <= len(found) <= limit


HOSTILE = [
    "a{1000000}",
    "(?:a{1000}){1000}",
    "(a|b|c){1,50}",
    "(((((a|b){2}){2}){2}){2}){2}",
    "(?:a|){1000000}b",
    "(?:(?:a|){100}|b{3,9}){100}" * 20,
    "a?" * 500,
    "[a-z]{9}" * 100,
    "(?i)" + "abcdefgh" * 100,
    "[\u0100-\U0010ffff]" * 100,
    "|".join(f"{chr(97 + n)}{{900}}[ab]" for n in range(26)) * 20,
]


@each("text", HOSTILE)
def test_hostile_patterns_are_bounded(text):
    found = heads(text)  # it would take minutes, which the test's own limit ends
    assert len(found) <= 16
    assert max(map(len, found)) <= 1024


@each("depth", [50, 150, 240, 300, 5_000])
@each("opening", ["(", "(?:", "(?>", "(?=", "(?:a|"])
def test_deep_nesting_never_raises(opening, depth):
    assert literal_prefixes(opening * depth + "a" + ")" * depth).heads[0] in (b"a", b"")


def test_the_default_version_is_the_engines(monkeypatch):
    text = "x[a--b]"
    assert heads("[[a]x]") == [b"[x]", b"ax]"]
    monkeypatch.setattr(regex, "DEFAULT_VERSION", regex.V1)
    assert heads("[[a]x]") == [b"a", b"x"]
    assert heads(text) == [b"x"]
    monkeypatch.undo()
    assert heads("[[a]x]") == [b"[x]", b"ax]"]


# Changes that a later release of the engine may make. Each must shorten prefixes. None may raise.


def test_without_the_parser_all_is_open(monkeypatch):
    monkeypatch.setattr(prefix, "core", None)
    assert literal_prefixes("foo") == EVERYTHING


def test_an_unknown_class_is_open(monkeypatch):
    class Novel(prefix.core.Character):
        pass

    monkeypatch.setattr(prefix.core, "Character", Novel)
    assert literal_prefixes("foo") == EVERYTHING


@pytest.mark.parametrize(
    "name", ["Character", "Range", "SetUnion", "Sequence", "GreedyRepeat", "Group", "StartOfString"]
)
def test_an_unknown_attribute_is_open(monkeypatch, name):
    initialise = getattr(prefix.core, name).__init__

    def with_attribute(self, *args, **options):
        initialise(self, *args, **options)
        self.novel = True

    monkeypatch.setattr(getattr(prefix.core, name), "__init__", with_attribute)
    text = {
        "Character": "a", "Range": "[a-b]", "SetUnion": "[ab]", "Sequence": "a", "GreedyRepeat": "a{2}",
        "Group": "(a)", "StartOfString": "^a",
    }[name]  # fmt: skip
    assert heads(text) == [b""]


def fail(*_):
    raise AttributeError("gone")


@pytest.mark.parametrize("parse", [fail, lambda *_: SimpleNamespace(fix_groups=lambda *_: None)])
def test_a_parser_that_raises_or_returns_something_else_is_open(monkeypatch, parse):
    monkeypatch.setattr(prefix.core, "_parse_pattern", parse)
    assert heads("foo") == [b""]


def test_every_cased_character_is_expanded_as_the_engine_matches_it():
    cased = [c for c in map(chr, range(0x20000)) if c.lower() != c or c.upper() != c or c.casefold() != c]
    everything = "".join(cased)
    for char in cased[::7]:
        found = heads(f"(?i){regex.escape(char)}")
        for variant in regex.findall(f"(?i){regex.escape(char)}", everything):
            assert starts_with_any(variant, found)


def test_bytes_are_open():
    assert literal_prefixes(b"\xe9") == EVERYTHING
