"""Examples and rules of the documents that the dialects come from.

NATS "Subject-Based Messaging", KubeMQ "Terminology", TIBCO Adapter SDK chapter 8 "Subject Names" (tables 36 and 37),
Rai MS "Subject Schema" and OZ "Publish/Subscribe". Rows that a server confirmed are in `tests/vectors`.
"""

import pytest

import oz
from support.cases import each

WORLD_CLOCK = ["time.us", "time.us.east", "time.us.east.atlanta", "time.eu.east", "time.eu.warsaw"]

# Dialect, pattern, subjects that match, subjects that do not match.
MATCHES = [
    ("nats", "time.us", ["time.us"], ["Time.us", *WORLD_CLOCK[1:]]),
    ("nats", "time.*.east", ["time.us.east", "time.eu.east"], ["time.east", "time.us.ny.east"]),
    ("nats", "time.us.>", ["time.us.east", "time.us.east.atlanta"], ["time.us", "time.usa.x"]),
    ("nats", "*.*.east.>", ["time.us.east.atlanta"], ["time.us.east"]),
    ("nats", ">", [*WORLD_CLOCK, "$SYS.a", "_INBOX.x", "é"], []),
    ("nats", ".".join("*" * 100), [".".join("t" * 100)], [".".join("t" * 99)]),
    ("kubemq", "foo", ["foo"], ["bar", "FOO"]),
    ("kubemq", "foo.*", ["foo.bar", "foo.ZOO"], ["foo", "foo.bar.zoo", "FOO.bar"]),
    ("kubemq", "foo.>", ["foo.bar", "foo.bar.zoo"], ["foo"]),
    ("kubemq", "foo.*.*.bar", ["foo.a.b.bar"], ["foo.bar.zoo"]),
    ("kubemq", "foo*.>", ["foo.bar", "foo1.bar"], ["foo"]),
    ("kubemq", "*", ["foo"], ["foo.bar"]),
    # The document delivers `foo.bar.zoo` to `foo.bar` too, against its own rules and against each server.
    ("kubemq", "foo.bar", ["foo.bar"], ["foo.bar.zoo"]),
    ("kubemq", "foo.bar.A.B.C.>", ["foo.bar.A.B.C.D"], ["foo.bar.A.B.C"]),
    ("kubemq", "level.>", [".".join(["level"] * 1000)], ["level"]),
    ("rv", "RUN.*", ["RUN.AWAY"], ["RUN.Run.run", "Run.away", "RUN"]),
    ("rv", "Yankees.vs.*", ["Yankees.vs.Red_Sox"], ["Yankees.beat.Sox", "Yankees.vs"]),
    ("rv", "RUN.>", ["RUN.DMC", "RUN.SWIM.BIKE.SKATE"], ["HOME.RUN", "Run.away", "RUN"]),
    ("rv", "A.*.>", ["A.b.c", "A.b.c.d.e.f"], ["A.b"]),
    ("rv", r"a\.*", [r"a\.b"], [r"a.b"]),  # a backslash does not escape the separator
    ("raims.rv", "foo.*", ["foo.bar", "foo.>"], ["foo.bar.baz"]),
    ("raims.rv", "foo.>", ["foo.bar", "foo.*"], ["foo"]),
    ("raims.rv", "foo.bar", [], ["foo.*"]),
    ("raims.rv", "_INBOX.7", ["_INBOX.7"], ["_INBOX.8"]),
    ("raims.sub", "foo.*", ["foo.*"], ["foo.bar", "foo.*x"]),
    ("raims.sub", b"\x00\xff", [b"\x00\xff"], [b"\x00\xffx"]),
    ("raims.glob", "foo*", ["foo", "foobar"], ["fo"]),
    ("raims.glob", "foo?", ["foo", "foox"], ["fooxy"]),  # in redis `?` is exactly one byte
    ("raims.glob", "f[ab]o", ["fao", "fbo"], ["fco", "fo"]),
    ("raims.glob", r"f\*o", ["f*o"], ["fxo"]),
    ("raims.glob", r"f\[a]o", ["f[a]o"], ["fao"]),
    ("raims.glob", b"\x00*\xff", [bytes(range(256))], [b"\x00"]),
    ("zmq", "foo", ["foo", "foobar"], ["fo"]),
    ("redis", "foo", ["foo"], ["foobar", "foo.bar"]),
    ("regex", r"md\.(us|eu)\.\w+", ["md.us.ibm"], ["md.us.ibm.bid", "md.us."]),
    # The original OZ searched for a match, and took the text up to the first wildcard as the prefix.
    ("regex", "^a.b$", ["axb"], ["axbc"]),
    ("regex", "(a|b)/x", ["a/x", "b/x"], ["c/x"]),
    ("regex", "md", ["md"], ["md.us"]),
]


@each(("dialect", "text", "matched", "refused"), MATCHES)
def test_pattern_matches_the_subjects_of_its_document(dialect, text, matched, refused):
    pattern, index = oz.compile(text, dialect), oz.PatternIndex()
    index.add(pattern)
    for subject in (*matched, *refused):
        assert pattern.matches(subject) is bool(index.match(subject)) is (subject in matched), subject


EMPTY_TOKENS = ["", ".", ".foo", "foo.", "foo..bar"]
BLANKS = ["foo bar", "foo\tbar", "\nfoo", "foo\r", "foo\f"]

# Dialect, texts that are not patterns, texts that are not subjects.
REFUSED = [
    ("nats", [*EMPTY_TOKENS, *BLANKS, ">.us", "a.>.b", ">.*"], [*EMPTY_TOKENS, *BLANKS, "*", "a.*", "a.>"]),
    ("kubemq", [*EMPTY_TOKENS, *BLANKS, "a.>.b", "\u3000"], [*EMPTY_TOKENS, *BLANKS, "*", "a.>", "foo*.>"]),
    ("raims.rv", [*EMPTY_TOKENS, ".>", "*..*", "foo.>.bar"], EMPTY_TOKENS),
    ("rv", [*EMPTY_TOKENS, "x" * 253, "x." * 127 + "xx"], [*EMPTY_TOKENS, "x" * 253, "x." * 127 + "xx"]),
    ("rv", [], ["_RV.INFO.SYSTEM", "_X", "_", "_inbox.x", "_LOCALS.x"]),
]


@each(("dialect", "patterns", "subjects"), REFUSED)
def test_texts_against_the_rules_of_a_document_are_refused(dialect, patterns, subjects):
    for text in patterns:
        with pytest.raises(oz.PatternError):
            oz.compile(text, dialect)
    for text in subjects:
        with pytest.raises(oz.SubjectError):
            oz.validate_subject(text, dialect)


# Dialect, subjects that may be published.
SUBJECTS = [
    ("nats", ["é.日本", "a-b_c", "$SYS.x", "foo\\bar", ".".join("t" * 100)]),
    ("kubemq", ["日本.語", "קובה.foo", "😀", "a-b_c.d/e:f"]),
    ("raims.rv", ["*", ">", "foo.*", "[", " ", "\n", "\x00", "_RV.x", "x" * 10_000]),
    ("raims.sub", ["", ".", "a..b", b"\x00\xff", "foo.>"]),
    ("raims.glob", ["", ".", "a..b", b"\x00\xff", "foo*"]),
    ("rv", ["x" * 252, ".".join(["x" * 63] * 4), "_INBOX.x", "_LOCAL", "FOO._BAR", "RUN.*", ">"]),
]


@each(("dialect", "subjects"), SUBJECTS)
def test_subjects_that_a_document_allows_are_accepted(dialect, subjects):
    for subject in subjects:
        oz.validate_subject(subject, dialect)


@each("text", ["abc*xyz", "Foo*", "*Foo", "Foo.b*", "Foo.>.baz", ">.Foo", ">.>", "Foo>"])
def test_misplaced_wildcard_of_rv_is_refused_or_literal_if_lenient(text):
    with pytest.raises(oz.PatternError):
        oz.compile(text, "rv")
    pattern = oz.compile(text, "rv", lenient=True)
    assert pattern.literal == text.encode()
    for subject in ("abcxyz", "abc.xyz", "Foo", "Foox", "xFoo", "Foo.bar", "Foo.a.baz", "a.b"):
        assert not pattern.matches(subject)


@each(
    ("dialect", "text", "prefix"),
    [
        ("nats", "md.us.>", b"md.us."),
        ("nats", "*.us.ibm", b""),
        ("kubemq", "md.us*.>", b"md.us"),
        ("redis", "md.us?x", b"md.us"),
        ("raims.glob", "md.us?x", b"md.us"),
        ("regex", r"^md\.us\.[^.]+$", b"md.us."),
        ("regex", r"md.us", b"md"),  # the dot is a wildcard
        ("regex", r"md\.usa?", b"md.us"),
    ],
)
def test_prefix_is_the_part_before_the_first_wildcard(dialect, text, prefix):
    assert oz.compile(text, dialect).prefixes == (prefix,)


@each("dialect", oz.DIALECTS)
def test_pattern_without_wildcards_is_its_prefix(dialect):
    pattern = oz.compile("trades", dialect)
    assert (pattern.prefixes, pattern.is_literal) == ((b"trades",), dialect != "zmq")


@each("dialect", ["nats", "rv", "kubemq", "raims.rv"])
@each("text", ["md.us", "md.*", "md.>", "*.us", "*.*.>", ">", "md.us.*.bid"])
def test_regex_of_a_hierarchical_pattern_matches_the_same_subjects(dialect, text):
    pattern = oz.compile(text, dialect)
    written = oz.compile(pattern.regex.pattern, "regex")
    assert written.prefixes == pattern.prefixes
    for subject in ("md", "md.", "md.us", "md.us.ibm", "md.usa", "xmd.us", "md.us.ibm.bid", "MD.us", "", "."):
        assert written.matches(subject) == pattern.matches(subject)
