"""OZ, "Publish/Subscribe": a topic is a prefix for ZeroMQ, and a regex behind it."""

import oz
from support.cases import each

SUBJECTS = ["md", "md.", "md.us", "md.us.ibm", "md.usa", "mdx", "xmd.us", "md.us.ibm.bid", "MD.us", "", "."]


@each("dialect", oz.DIALECTS)
def test_a_topic_without_wildcards_is_the_prefix(dialect):
    pattern = oz.compile("trades", dialect)
    assert pattern.prefixes == (b"trades",)
    assert pattern.prefix == b"trades"
    assert pattern.is_literal is (dialect != "zmq")


def test_a_topic_without_wildcards_passes_more_in_zeromq_than_in_oz():
    assert oz.compile("foo", "zmq").matches("foobar")
    for dialect in ("nats", "redis", "regex", "rv", "kubemq", "raims.sub"):
        assert not oz.compile("foo", dialect).matches("foobar")
        assert not oz.compile("foo", dialect).matches("foo.bar")


@each(
    ("dialect", "text", "prefix"),
    [
        ("nats", "md.us.*", b"md.us."),
        ("nats", "md.us.>", b"md.us."),
        ("kubemq", "md.us*.>", b"md.us"),
        ("redis", "md.us.*", b"md.us."),
        ("redis", "md.us?x", b"md.us"),
        ("raims.glob", "md.us?x", b"md.us"),
        ("regex", r"md\.us\..*", b"md.us."),
        ("regex", r"^md\.us\.[^.]+$", b"md.us."),
        ("regex", r"md.us", b"md"),  # the dot is a wildcard
        ("regex", r"md\.usa?", b"md.us"),  # and this takes the last character back
    ],
)
def test_the_prefix_is_the_portion_without_wildcards(dialect, text, prefix):
    pattern = oz.compile(text, dialect)
    assert pattern.prefixes == (prefix,)
    assert not pattern.is_literal


@each(
    ("dialect", "text"), [("nats", "*"), ("nats", ">"), ("redis", "*"), ("regex", ".*"), ("nats", "*.us.ibm")]
)
def test_a_topic_that_begins_with_a_wildcard_has_no_prefix(dialect, text):
    assert oz.compile(text, dialect).prefixes == (b"",)


def test_a_constant_portion_at_the_beginning_is_more_selective():
    assert len(oz.compile("us.east.*").prefix) > len(oz.compile("us.*.east").prefix)
    assert len(oz.compile("us.*.east").prefix) > len(oz.compile("*.us.east").prefix)


@each("dialect", ["nats", "rv", "kubemq", "raims.rv"])
@each("text", ["md.us", "md.*", "md.>", "*.us", "*.*.>", ">", "md.us.*.bid"])
def test_regexes_are_a_superset_of_hierarchical_topics(dialect, text):
    topic = oz.compile(text, dialect)
    as_regex = oz.compile(topic.regex.pattern, "regex")
    assert as_regex.prefixes == topic.prefixes
    for subject in SUBJECTS:
        assert as_regex.matches(subject) == topic.matches(subject)


def test_the_regex_filters_what_passes_the_prefix():
    pattern = oz.compile(r"md\.(us|eu)\.\w+", "regex")
    assert set(pattern.prefixes) == {b"md.us.", b"md.eu."}
    assert pattern.matches("md.us.ibm")
    assert not pattern.matches("md.us.ibm.bid")
    assert not pattern.matches("md.us.")


# The original cut the regex's text at its first wildcard, and looked for a match rather than a full one.


def test_the_anchor_is_not_a_part_of_the_prefix():
    pattern = oz.compile("^a.b$", "regex")
    assert pattern.prefixes == (b"a",)
    assert pattern.matches("axb")
    assert not pattern.matches("axbc")


def test_every_alternative_is_delivered():
    pattern = oz.compile("(a|b)/x", "regex")
    assert set(pattern.prefixes) == {b"a/x", b"b/x"}
    assert pattern.matches("a/x")
    assert pattern.matches("b/x")


def test_a_regex_matches_to_the_end():
    assert not oz.compile("md", "regex").matches("md.us")
    assert oz.compile("md.*", "regex").matches("md.us")
