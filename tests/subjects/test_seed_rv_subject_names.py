"""TIBCO Adapter SDK, chapter 8, "Subject Names".

The columns of its tables 36 and 37 are lost in the text that there is. What is here of them is only what
that text certainly says, and the rows of `tests/vectors` that have it as a source.
"""

import pytest

import oz
from oz.subjects import dialects
from support.cases import each

# Listening to this wildcard name, matches these, does not match these (and why).
TABLE_36 = [
    ("RUN.*", ["RUN.AWAY"], ["RUN.Run.run", "Run.away", "RUN"]),  # extra element; case; missing element
    ("Yankees.vs.*", ["Yankees.vs.Red_Sox", "Yankees.vs.Orioles"], ["Yankees.beat.Sox", "Yankees.vs"]),
    ("*.your.*", [], ["your"]),  # missing elements
    ("RUN.>", ["RUN.DMC", "RUN.SWIM.BIKE.SKATE"], ["HOME.RUN", "Run.away", "RUN"]),  # position; case; missing
]

# Invalid wildcards. "TIBCO Adapter SDK software interprets this as a specific subject name."
TABLE_37 = ["abc*xyz", "Foo*", "*Foo", "Foo.b*", "Foo.>.baz", ">.Foo", ">.>", "Foo>"]


@each(("pattern", "subject"), [(pattern, subject) for pattern, matched, _ in TABLE_36 for subject in matched])
def test_a_listener_for_a_wildcard_name_receives(pattern, subject):
    assert oz.compile(pattern, "rv").matches(subject)


@each(
    ("pattern", "subject"),
    [(pattern, subject) for pattern, _, unmatched in TABLE_36 for subject in unmatched],
)
def test_a_listener_for_a_wildcard_name_does_not_receive(pattern, subject):
    assert not oz.compile(pattern, "rv").matches(subject)


@each("text", TABLE_37)
def test_an_invalid_wildcard_is_refused(text):
    with pytest.raises(oz.PatternError):
        oz.compile(text, "rv")


@each("text", TABLE_37)
def test_a_lenient_listener_takes_an_invalid_wildcard_for_a_specific_name(text):
    pattern = oz.compile(text, "rv", lenient=True)
    assert pattern.is_literal
    assert pattern.prefixes == (text.encode(),)
    assert pattern.matches(text)
    for subject in ("abcxyz", "abc.xyz", "Foo", "Foox", "xFoo", "Foo.bar", "Foo.a.baz", "a.Foo", "a.b"):
        assert not pattern.matches(subject)


@each("text", ["WRONG.", ".TRIPLE.WRONG..", "News..Natural_Disasters.Flood", ".", ""])
def test_a_null_element_is_incorrect(text):
    with pytest.raises(oz.PatternError, match="empty"):
        oz.compile(text, "rv")
    with pytest.raises(oz.SubjectError, match="empty"):
        oz.validate_subject(text, "rv")


@each("text", ["NEWS.LOCAL.POLITICS.CITY_COUNCIL", "NEWS.NATIONAL.ARTS.MOVIES.REVIEWS"])
def test_a_correct_name(text):
    oz.validate_subject(text, "rv")
    assert oz.compile(text, "rv").matches(text)


def test_a_dot_cannot_be_escaped_into_an_element():
    subject = r"a\.b"
    assert oz.compile(r"*.*", "rv").matches(subject)
    assert not oz.compile("*", "rv").matches(subject)
    assert oz.compile(r"a\.*", "rv").matches(subject)
    assert not oz.compile(r"a\.b", "rv").matches("a.b")


def test_a_name_has_at_most_255_characters_with_its_dots():
    longest = ".".join(["x" * 63] * 4)
    assert len(longest) == 255
    oz.validate_subject(longest, "rv")
    oz.compile(longest, "rv")
    for check in (oz.validate_subject, oz.compile):
        with pytest.raises(ValueError, match="at most 255"):
            check(longest + "x", "rv")


def test_an_element_has_at_most_252_characters():
    oz.validate_subject("x" * 252, "rv")
    oz.compile("x" * 252, "rv")
    oz.validate_subject("ab." + "x" * 252, "rv")
    for check in (oz.validate_subject, oz.compile):
        with pytest.raises(ValueError, match="at most 252"):
            check("x" * 253, "rv")


@each("subject", ["_INBOX.x", "_LOCAL.A.B.C", "_LOCAL", "_INBOX"])
def test_an_application_may_send_to_inbox_and_local(subject):
    oz.validate_subject(subject, "rv")


@each("subject", ["_RV.INFO.SYSTEM", "_X", "_", "_inbox.x", "_LOCALS.x", "_FOO.BAR"])
def test_an_application_does_not_send_to_other_names_that_begin_with_an_underscore(subject):
    with pytest.raises(oz.SubjectError, match="_INBOX and _LOCAL"):
        oz.validate_subject(subject, "rv")


def test_an_underscore_elsewhere_is_ordinary():
    for subject in ("FOO._BAR", "FOO_BAR._x_", "CITY_COUNCIL"):
        oz.validate_subject(subject, "rv")


@each("subject", ["_LOCAL.A.B.C", "_RV.INFO.SYSTEM", "_RV.WARN.x"])
def test_a_program_may_listen_to_reserved_names(subject):
    assert oz.compile(subject, "rv").matches(subject)
    assert oz.compile(">", "rv").matches(subject)
    assert oz.compile(subject.split(".")[0] + ".>", "rv").matches(subject)


@each("subject", ["RUN.*", "RUN.>", "*", ">"])
def test_sending_to_a_wildcard_is_possible_and_unwise(subject):
    oz.validate_subject(subject, "rv")
    assert "wildcard" in dialects.find("rv").subject_advice(subject)


@each("subject", ["RUN", "RUN.AWAY", "a*b", "a>"])
def test_there_is_no_advice_against_an_ordinary_subject(subject):
    assert dialects.find("rv").subject_advice(subject) is None


def test_greater_matches_all_the_elements_remaining_to_the_right():
    pattern = oz.compile("A.*.>", "rv")
    assert pattern.matches("A.b.c")
    assert pattern.matches("A.b.c.d.e.f")
    assert not pattern.matches("A.b")
