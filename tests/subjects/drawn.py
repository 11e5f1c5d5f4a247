"""Patterns of every dialect, and subjects made of them, as Hypothesis draws them."""

import regex
from hypothesis import assume
from hypothesis import strategies as st

import oz
from oz.subjects.dialects import globs

TOKEN_DIALECTS = ["nats", "rv", "kubemq", "raims.rv"]
WORD_DIALECTS = {"mqtt": ("/", "+"), "amqp": (".", "*")}  # the separator, and the wildcard for one word
GLOBS = {"redis": globs.ANY_BYTE, "raims.glob": globs.Glob.MAYBE}
CRITICAL_BYTES = b"ab*?[]^-\\\n\x00\x7f\x80\xc3\xff"

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


def is_valid(pattern, *, partial):
    tokens = pattern.split(".")
    if not all(tokens) or ">" in tokens[:-1]:
        return False
    return partial or not any(len(token) > 1 and set("*>") & set(token) for token in tokens)


def is_filter(text):
    *early, last = text.split("/")
    return (
        text != ""
        and not any(set("+#") & set(word) for word in early if word != "+")
        and (last in ("+", "#") or not set("+#") & set(last))
    )


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


REGEXES = [
    "", "a", "a.*", "a|b", "(?i)a", "(?i)é+", r"(a|ab)\.b", "^a$", "[ab]*", r"\w+", "(?V1)[a-z--b]+",
    r"a\.b", "(?x) a # b"
]  # fmt: skip
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


SUBJECT_POOL = [
    "", "a", "b", "ab", "a.b", "a.b.a", "b.b.a", "a.", ".a", "a..b", "A", "a*", "a.*", "é.a", ">a", "abc.b",
    ".", "a/b", "a//b", "/", "a/", "$a", "$a/b", "a/b.a"
]  # fmt: skip
SUBJECTS = [
    *SUBJECT_POOL,
    *(subject.encode() for subject in SUBJECT_POOL),
    b"\xff",
    b"\xffa",
    b"a\xff",
    b"a.\xff",
]


def matches(pattern, subject):
    """Bytes that are not UTF-8 match no pattern of a text dialect."""
    try:
        return pattern.matches(subject)
    except oz.SubjectError:
        return False
