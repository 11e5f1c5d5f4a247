"""Laws that hold for every pattern and subject: prefixes are sound, the index agrees, copies are equal."""

import copy
import pickle
from collections import Counter

import pytest
import regex
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import oz
from oz.subjects.dialects import globs
from oz.subjects.index import patterns
from oz.subjects.index import words as shapes
from oz.subjects.index.patterns import AnswerCache
from support.cases import each
from support.sizes import size

pytestmark = pytest.mark.sized

TOKEN_DIALECTS = ["nats", "rv", "kubemq", "raims.rv"]
WORD_DIALECTS = {"mqtt": ("/", "+"), "amqp": (".", "*")}  # what splits words, and what stands for one
GLOBS = {"redis": globs.ANY_BYTE, "raims.glob": globs.Glob.MAYBE}
CRITICAL_BYTES = b"ab*?[]^-\\\n\x00\x7f\x80\xc3\xff"

# --- strategies ---------------------------------------------------------------------------------------------

words = st.text("abAé$^+?()[]{}|\\_#", min_size=1, max_size=3)
critical = st.sampled_from([bytes([byte]) for byte in CRITICAL_BYTES])
any_bytes = st.lists(critical, max_size=6).map(b"".join)


def odd_words(dialect):
    """Words with a wildcard in them: refused in rv, literal in the others but for kubemq's stems."""
    if dialect == "rv":
        return st.nothing()
    shapes = ["{}>", ">{}", "*{}", "{0}*{0}", "*>", ">>"] + ([] if dialect == "kubemq" else ["{}*", "**"])
    return st.builds(str.format, st.sampled_from(shapes), words)


@st.composite
def tokens_and_subject(draw, dialect):
    """A pattern, and a subject made of it."""
    pattern, subject = [], []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["word", "word", "odd", "one", "stem"]))
        if kind == "one":
            pattern.append("*")
            subject.append(draw(words))
        elif kind == "stem" and dialect == "kubemq":
            stem = draw(words)
            pattern.append(stem + "*")
            subject.append(stem + draw(st.just("") | words))
        else:
            word = draw(words | odd_words(dialect) if kind == "odd" else words)
            pattern.append(word)
            subject.append(word)
    if not pattern or draw(st.booleans()):
        pattern.append(">")
        subject += draw(st.lists(words, min_size=1, max_size=4))
    return ".".join(pattern), ".".join(subject)


levels = st.text("abé$ .*", max_size=2)


@st.composite
def words_and_subject(draw, dialect):
    """A pattern of mqtt or amqp, and a subject made of it; words may be empty."""
    separator, one = WORD_DIALECTS[dialect]
    word = levels.map(lambda text: text.replace(separator, "").replace(one, ""))
    pattern, subject = [], []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["word", "word", "one", "any"] if dialect == "amqp" else ["word", "one"]))
        pattern.append({"word": draw(word), "one": one, "any": "#"}[kind])
        taken = draw(st.lists(word, max_size=2)) if kind == "any" else [draw(word)]
        subject += pattern[-1:] if kind == "word" else taken
    if not pattern or draw(st.booleans()):
        pattern.append("#")
        subject += draw(st.lists(word, max_size=2))
    # One empty word cannot be told from none, which is no topic name, and in amqp the key without words.
    assume(subject != [""] and pattern != [""] and (subject or dialect == "amqp"))
    assume(dialect == "amqp" or pattern[0] not in "+#" or not subject[0].startswith("$"))
    return separator.join(pattern), separator.join(subject)


glob_pieces = st.one_of(
    critical,
    st.sampled_from([b"*", b"?", b"a", b"b"]),
    st.builds(b"\\%b".__mod__, critical),
    st.builds(
        lambda negated, members, end: b"[" + negated + b"".join(members) + end,
        st.sampled_from([b"", b"", b"^"]),
        st.lists(critical | st.builds(lambda a, b: a + b"-" + b, critical, critical), max_size=3),
        st.sampled_from([b"]", b"]", b"]", b""]),
    ),
)
glob_texts = st.lists(glob_pieces, max_size=6).map(b"".join)


@st.composite
def glob_and_subject(draw, dialect):
    text = draw(glob_texts)
    subject = b""
    elements = globs.parse(text, question=GLOBS[dialect])
    for element in elements:
        if element is globs.Glob.STAR:
            subject += draw(any_bytes)
        elif element is globs.Glob.MAYBE:
            subject += draw(st.just(b"") | critical)
        else:
            assume(element)  # an empty class matches nothing
            subject += bytes([draw(st.sampled_from(sorted(element)))])
    # The one exception: a glob of only wildcards never matches the empty subject.
    assume(subject or not elements)
    return text, subject


def pattern_and_subject(dialect):
    if dialect in TOKEN_DIALECTS:
        return tokens_and_subject(dialect)
    if dialect in WORD_DIALECTS:
        return words_and_subject(dialect)
    if dialect in GLOBS:
        return glob_and_subject(dialect)
    if dialect == "raims.sub":
        return any_bytes.map(lambda text: (text, text))
    assert dialect == "zmq"
    return st.tuples(any_bytes, any_bytes).map(lambda pair: (pair[0], pair[0] + pair[1]))


DIALECTS = [*TOKEN_DIALECTS, *WORD_DIALECTS, *GLOBS, "raims.sub", "zmq"]  # regexes: test_prefix_laws.py

few_texts = st.text("ab.*>", max_size=6) | st.lists(st.sampled_from(["a", "b", "*", ">"]), max_size=4).map(
    ".".join
)
few_bytes = st.lists(st.sampled_from([bytes([byte]) for byte in b"ab*?[]^-\\"]), max_size=5).map(b"".join)


def few_patterns(dialect):
    if dialect in WORD_DIALECTS:
        separator, one = WORD_DIALECTS[dialect]
        pieces = st.lists(st.sampled_from(["a", "b", "", "$", one, "#"]), max_size=5).map(separator.join)
        texts = pieces | st.text(f"ab$#{separator}{one}", max_size=6)
        return texts.filter(is_filter) if dialect == "mqtt" else texts
    if dialect not in TOKEN_DIALECTS:
        return few_bytes
    return few_texts.filter(lambda text: is_valid(text, partial=dialect != "rv"))


def few_subjects(dialect):
    if dialect in WORD_DIALECTS:
        return st.text("ab$#" + "".join(WORD_DIALECTS[dialect]), max_size=6)
    return st.text("ab.", max_size=5) if dialect in TOKEN_DIALECTS else few_bytes


def encoded(text):
    return text if isinstance(text, bytes) else text.encode()


# --- prefixes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_subject_made_of_a_pattern_matches_and_begins_with_a_prefix(dialect):
    @settings(max_examples=size(15, 4000))
    @given(pattern_and_subject(dialect))
    def law(pair):
        text, subject = pair
        pattern = oz.compile(text, dialect)
        assert pattern.matches(subject)
        assert encoded(subject).startswith(pattern.prefixes)

    law()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_whatever_matches_begins_with_a_prefix(dialect):
    @settings(max_examples=size(25, 6000))
    @given(few_patterns(dialect), few_subjects(dialect))
    def law(text, subject):
        pattern = oz.compile(text, dialect)
        if pattern.matches(subject):
            assert encoded(subject).startswith(pattern.prefixes)

    law()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_prefixes_are_few_and_none_is_a_prefix_of_another(dialect):
    @given(pattern_and_subject(dialect))
    def law(pair):
        prefixes = oz.compile(pair[0], dialect).prefixes
        assert 1 <= len(prefixes) <= 16
        for prefix in prefixes:
            assert not any(other.startswith(prefix) for other in prefixes if other is not prefix)

    law()


# --- independent matchers -----------------------------------------------------------------------------------


def tokens_match(pattern, subject, *, stems):
    """The rules of nats, over lists of tokens; `stems`: as kubemq has them."""
    if not pattern or not subject:
        return pattern == subject
    first, *rest = pattern
    token, *others = subject
    if not token:
        return False
    if first == ">" and not rest:
        return all(subject)
    if first == "*":
        fits = True
    elif stems and first.endswith("*"):
        fits = token.startswith(first[:-1])
    else:
        fits = token == first
    return fits and tokens_match(rest, others, stems=stems)


def is_valid(pattern, *, partial):
    tokens = pattern.split(".")
    if not all(tokens) or ">" in tokens[:-1]:
        return False
    return partial or not any(len(token) > 1 and set("*>") & set(token) for token in tokens)


@pytest.mark.parametrize("dialect", TOKEN_DIALECTS)
def test_tokens_match_by_the_rules(dialect):
    @settings(max_examples=size(40, 10000))
    @given(few_texts, st.text("ab.*", max_size=6))
    def law(text, subject):
        if not is_valid(text, partial=dialect != "rv"):
            with pytest.raises(oz.PatternError):
                oz.compile(text, dialect)
            return
        expected = tokens_match(text.split("."), subject.split("."), stems=dialect == "kubemq")
        assert oz.compile(text, dialect).matches(subject) is expected

    law()


@pytest.mark.parametrize("dialect", TOKEN_DIALECTS)
def test_a_pattern_takes_the_subjects_of_another_by_the_rules(dialect):
    @settings(max_examples=size(15, 4000))
    @given(tokens_and_subject(dialect), tokens_and_subject(dialect))
    def law(first, second):
        for text in (first[0], second[0]):
            for subject in (first[1], second[1], second[0]):
                expected = tokens_match(text.split("."), subject.split("."), stems=dialect == "kubemq")
                assert oz.compile(text, dialect).matches(subject) is expected

    law()


def is_filter(text):
    *early, last = text.split("/")
    return (
        text != ""
        and not any(set("+#") & set(word) for word in early if word != "+")
        and (last in ("+", "#") or not set("+#") & set(last))
    )


def mqtt_matches(pattern, subject):
    """The rules of MQTT 3.1.1, section 4.7."""
    if not subject or (subject[0] == "$" and pattern[0] in "+#"):
        return False
    return words_match(pattern.split("/"), subject.split("/"), one="+")


def amqp_matches(pattern, subject):
    """The rules of RabbitMQ's topic exchange."""
    return words_match(pattern.split(".") if pattern else [], subject.split(".") if subject else [], one="*")


def words_match(pattern, subject, *, one):
    if not pattern:
        return not subject
    first, *rest = pattern
    if first == "#":
        return any(words_match(rest, subject[count:], one=one) for count in range(len(subject) + 1))
    return bool(subject) and first in (one, subject[0]) and words_match(rest, subject[1:], one=one)


WORD_MATCHERS = {"mqtt": mqtt_matches, "amqp": amqp_matches}


@pytest.mark.parametrize("dialect", WORD_MATCHERS)
def test_words_match_by_the_rules(dialect):
    @settings(max_examples=size(12, 3000))
    @given(few_patterns(dialect), few_subjects(dialect), words_and_subject(dialect))
    def law(text, subject, other):
        for pattern, tried in ((text, subject), (text, other[1]), (other[0], subject), other):
            expected = WORD_MATCHERS[dialect](pattern, tried)
            assert oz.compile(pattern, dialect).matches(tried) is expected, (pattern, tried)

    law()


@given(st.text("a/+#", max_size=6))
def test_mqtt_refuses_what_is_no_filter(text):
    if is_filter(text):
        assert oz.compile(text, "mqtt").text == text
    else:
        with pytest.raises(oz.PatternError):
            oz.compile(text, "mqtt")


def glob_matches(pattern, subject, *, optional):
    """The rules for redis in the vectors' README; `optional`: `?` stands for zero bytes or one."""
    if not subject and pattern and wildcards_only(pattern, optional=optional):
        return False
    return glob_matches_rest(pattern, subject, optional=optional)


def wildcards_only(pattern, *, optional):
    return not pattern.strip(b"*?" if optional else b"*")


def glob_matches_rest(pattern, subject, *, optional):
    if not pattern:
        return not subject
    if pattern[:1] == b"*":
        return any(
            glob_matches_rest(pattern[1:], subject[count:], optional=optional)
            for count in range(len(subject) + 1)
        )
    if pattern[:1] == b"?":
        one = bool(subject) and glob_matches_rest(pattern[1:], subject[1:], optional=optional)
        return one or (optional and glob_matches_rest(pattern[1:], subject, optional=optional))
    if not subject:
        return False
    if pattern[:1] == b"[":
        fits, rest = class_takes(pattern[1:], subject[0])
    elif pattern[:1] == b"\\" and len(pattern) > 1:
        fits, rest = pattern[1] == subject[0], pattern[2:]
    else:
        fits, rest = pattern[0] == subject[0], pattern[1:]
    return fits and glob_matches_rest(rest, subject[1:], optional=optional)


def class_takes(pattern, byte):
    """Whether a class takes a byte, and the pattern behind it; one that is not closed ends with it."""
    negated = pattern[:1] == b"^"
    if negated:
        pattern = pattern[1:]
    fits = False
    while pattern and pattern[:1] != b"]":
        if pattern[:1] == b"\\" and len(pattern) > 1:
            fits |= pattern[1] == byte
            pattern = pattern[2:]
        elif len(pattern) > 2 and pattern[1:2] == b"-":
            # A range in either order; bytes from 0x80 on are negative numbers, as on x86-64.
            low, here, high = ((each ^ 0x80) - 0x80 for each in (pattern[0], byte, pattern[2]))
            fits |= min(low, high) <= here <= max(low, high)
            pattern = pattern[3:]
        else:
            fits |= pattern[0] == byte
            pattern = pattern[1:]
    return fits != negated, pattern[1:]


@pytest.mark.parametrize("dialect", GLOBS)
def test_globs_match_by_the_rules(dialect):
    @settings(max_examples=size(50, 14000))
    @given(glob_texts, glob_and_subject(dialect), any_bytes | few_bytes)
    def law(text, other, subject):
        for pattern, tried in ((text, subject), (other[0], subject), (text, other[1]), (other[0], other[1])):
            expected = glob_matches(pattern, tried, optional=dialect == "raims.glob")
            assert oz.compile(pattern, dialect).matches(tried) is expected, (pattern, tried)

    law()


@each("dialect", GLOBS)
@each("text", ["*", "**", "*?*", "?", "??", "?*"])
def test_a_glob_of_only_wildcards_never_matches_the_empty_subject(text, dialect):
    assert not oz.compile(text, dialect).matches("")
    assert oz.compile(text, dialect).matches("x" * max(1, text.count("?")))


# --- values -------------------------------------------------------------------------------------------------

REGEXES = [
    "",
    "a",
    "a.*",
    "a|b",
    "(?i)a",
    "(?i)é+",
    r"(a|ab)\.b",
    "^a$",
    "[ab]*",
    r"\w+",
    "(?V1)[a-z--b]+",
    r"a\.b",
    "(?x) a # b",
]
COMPILED_REGEXES = [
    regex.compile("a", regex.I),
    regex.compile("a b", regex.X),
    regex.compile("a.b", regex.S),
    regex.compile(r"\w", regex.A),
    regex.compile("a+[a||b]", regex.V1),
    regex.compile(r"\L<words>\.x", words=["a", "b"]),
    regex.compile(r"\L<words>\.x", regex.I, words=["a", "b"]),
]


# How to make a pattern of any dialect: the arguments for `made`. Compiling draws random numbers, to shrink
# the regex engine's cache, and Hypothesis does not allow that within a strategy.
specs = st.one_of(
    *[
        pattern_and_subject(dialect).map(lambda pair, dialect=dialect: (pair[0], dialect))
        for dialect in DIALECTS
    ],
    st.tuples(st.sampled_from(REGEXES), st.just("regex")),
    st.tuples(st.sampled_from(COMPILED_REGEXES), st.just("regex")),
    st.tuples(st.sampled_from(["a*", "a.>.b", "a.*", ">.>", "a"]), st.just("rv"), st.just(True)),
    st.tuples(st.sampled_from(["a*", "a.b*", "a*.b", "ab"]), st.just("kubemq")),
)


def made(spec):
    text, dialect, *lenient = spec
    return oz.compile(text, dialect, lenient=bool(lenient))


subjects = st.one_of(
    st.text("abAé.>* \n", max_size=6), any_bytes, st.lists(words, min_size=1, max_size=4).map(".".join)
)


def matches(pattern, subject):
    """Bytes that are not UTF-8 match no pattern of a text dialect."""
    try:
        return pattern.matches(subject)
    except oz.SubjectError:
        return False


REGEX_SPECS = [(text, "regex") for text in REGEXES + COMPILED_REGEXES]


@each("spec", REGEX_SPECS)
def test_a_copy_of_a_regex_is_equal_and_matches_the_same(spec):
    check_copies(made(spec), SUBJECTS)


@given(specs, st.lists(subjects, max_size=5))
def test_a_copy_is_equal_and_matches_the_same(spec, tried):
    check_copies(made(spec), tried)


def check_copies(pattern, tried):
    for copied in (pickle.loads(pickle.dumps(pattern)), copy.deepcopy(pattern), copy.copy(pattern)):
        assert copied == pattern
        assert hash(copied) == hash(pattern)
        assert copied.text == pattern.text
        assert copied.prefixes == pattern.prefixes
        assert copied.is_literal == pattern.is_literal
        assert [matches(copied, subject) for subject in tried] == [
            matches(pattern, subject) for subject in tried
        ]


few_specs = st.tuples(
    st.sampled_from(["a", "a*", "a.b", "*"]), st.sampled_from(["nats", "kubemq", "redis", "zmq"])
)


@given(specs | few_specs, specs | few_specs)
def test_equal_patterns_have_equal_hashes_dialects_texts_and_regexes(first, second):
    one, other = made(first), made(second)
    if first == second:
        assert one == other
    if one == other:
        assert hash(one) == hash(other)
        assert (one.dialect, one.text, one.prefixes) == (other.dialect, other.text, other.prefixes)
        # Two compiled regexes are one object only while the engine's cache holds the first.
        assert (one.regex.pattern, one.regex.flags) == (other.regex.pattern, other.regex.flags)
    if (one.dialect, one.text) != (other.dialect, other.text):
        assert one != other


@each("dialect", [*DIALECTS, "regex"])
def test_text_and_its_utf8_bytes_are_the_same(dialect):
    texts = {"regex": st.sampled_from(REGEXES)} | {
        name: few_patterns(name) for name in (*TOKEN_DIALECTS, *WORD_DIALECTS)
    }

    @given(texts.get(dialect, words), st.text("abAé.", max_size=4))
    def law(text, subject):
        pattern = oz.compile(text, dialect)
        assert oz.compile(text.encode(), dialect) == pattern
        assert oz.compile(text.encode(), dialect).text == pattern.text
        assert pattern.matches(subject) == pattern.matches(subject.encode())
        assert pattern.matches(text) == pattern.matches(text.encode())

    law()


@settings(max_examples=size(15, 4000))
@given(specs, st.lists(subjects, max_size=5))
def test_a_literal_matches_itself_and_nothing_else(spec, tried):
    pattern = made(spec)
    if not pattern.is_literal:
        assert pattern.literal is None
        return
    literal = pattern.literal
    assert pattern.prefixes == (literal,)
    assert pattern.matches(literal)
    own = literal if pattern.is_bytes else literal.decode()
    assert pattern.regex.fullmatch(own)
    for subject in (*tried, literal + b"x", b"x" + literal, literal[:-1], literal + b".x", literal.upper()):
        if encoded(subject) != literal:
            assert not matches(pattern, subject)
            assert not regex_matches(pattern, subject)


def regex_matches(pattern, subject):
    """What the public regex says, given the type that it takes."""
    try:
        own = encoded(subject) if pattern.is_bytes else encoded(subject).decode()
    except UnicodeDecodeError:
        return False
    return pattern.regex.fullmatch(own) is not None


@settings(max_examples=size(15, 4000))
@given(specs, subjects)
def test_the_public_regex_decides_as_matches_does(spec, subject):
    pattern = made(spec)
    assert regex_matches(pattern, subject) == matches(pattern, subject)


# --- the index ----------------------------------------------------------------------------------------------

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
        "",
        "a",
        "a.*",
        "#",
        "a.#",
        "#.b",
        "a.#.b",
        "*.#",
        "#.*",
        "#.a.#",
        "#.b.#.a",
        "*",
        ".#",
        "#.a.#.*",
    ],
}
POOL = [oz.compile(text, dialect) for dialect, texts in SMALL_POOL.items() for text in texts]
VALUES = [None, 1, 2, "x"]
SUBJECT_POOL = [
    "",
    "a",
    "b",
    "ab",
    "a.b",
    "a.b.a",
    "b.b.a",
    "a.",
    ".a",
    "a..b",
    "A",
    "a*",
    "a.*",
    "é.a",
    ">a",
    "abc.b",
    ".",
    "a/b",
    "a//b",
    "/",
    "a/",
    "$a",
    "$a/b",
    "a/b.a",
]
SUBJECTS = [
    *SUBJECT_POOL,
    *(subject.encode() for subject in SUBJECT_POOL),
    b"\xff",
    b"\xffa",
    b"a\xff",
    b"a.\xff",
]


class IndexMachine(RuleBasedStateMachine):
    """An index beside a plain dict of pairs, in which every pattern is asked."""

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
    """Nothing may be left behind by what has been taken out."""
    assert len(index) == 0
    assert index._literals == {}
    for table in index._tables.values():
        assert not table
        assert table._shapes == {}
        assert table._trie._root == {}
    assert index._buckets._buckets == {}
    assert index._buckets._lengths == {}


class CrowdedIndexMachine(IndexMachine):
    """The same with so few shapes allowed that most patterns are in tries."""

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


def test_an_index_keeps_a_pair_once():
    index = oz.PatternIndex()
    for _ in range(2):
        index.add(oz.compile("a.*"), "value")
        index.add(oz.compile("a.*"), "another")
        index.add(oz.compile("a*", "redis"), "value")
    assert len(index) == 3
    assert sorted(index.match("a.b")) == ["another", "value", "value"]
    index.discard(oz.compile("a.*"), "value")
    assert sorted(index.match("a.b")) == ["another", "value"]


def test_an_index_gives_the_pattern_itself_where_there_is_no_value():
    index = oz.PatternIndex()
    pattern = oz.compile("a.*")
    index.add(pattern)
    assert list(index.match("a.b")) == [pattern]


def test_an_index_forgets_no_more_than_it_remembers(monkeypatch):
    caches = []
    monkeypatch.setattr(patterns, "AnswerCache", lambda size: caches.append(AnswerCache(size)) or caches[-1])
    index = oz.PatternIndex(cache_size=3)
    index.add(oz.compile("a.*"))
    for turn in range(10):
        for subject in ("a.1", "a.2", "b", f"a.x{turn}"):
            assert bool(index.match(subject)) == subject.startswith("a.")
            assert len(caches[0]) <= 3
    uncached = oz.PatternIndex(cache_size=0)
    uncached.add(oz.compile("a.*"))
    assert uncached.match("a.1")
    assert len(caches[1]) == 0
