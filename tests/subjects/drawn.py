"""Patterns of every dialect, and subjects made of them, as Hypothesis draws them."""

import regex
from hypothesis import strategies as st

import oz

TOKEN_DIALECTS = ["nats", "rv", "kubemq", "raims.rv"]
WORD_DIALECTS = {"mqtt": ("/", "+"), "amqp": (".", "*")}  # the separator, and the wildcard for one word
GLOBS = ["redis", "raims.glob"]
DIALECTS = [*TOKEN_DIALECTS, *WORD_DIALECTS, *GLOBS, "raims.sub", "zmq"]  # regexes: test_prefix_laws.py

words = st.text("abAé$^+?()[]{}|\\_#", min_size=1, max_size=3)
critical = st.sampled_from([bytes([byte]) for byte in b"ab*?[]^-\\\n\x00\x7f\x80\xc3\xff"])
any_bytes = st.lists(critical, max_size=6).map(b"".join)

few_texts = st.text("ab.*>", max_size=6) | st.lists(words | st.sampled_from("ab*>"), max_size=4).map(".".join)
few_bytes = any_bytes | st.lists(st.sampled_from([bytes([byte]) for byte in b"ab*?[]^-\\"]), max_size=5).map(
    b"".join
)


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
    *[st.tuples(few_patterns(dialect), st.just(dialect)) for dialect in DIALECTS],
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
