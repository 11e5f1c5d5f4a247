"""MQTT topics beyond the vectors: refused characters, shared subscriptions, prefixes, hostile lengths."""

import pytest

import oz
from support.cases import each
from support.sizes import size


def test_bytes_that_are_not_utf8_are_no_topic():
    with pytest.raises(oz.SubjectError, match="position 2"):
        oz.validate_subject(b"a/\xff", "mqtt")
    with pytest.raises(oz.PatternError, match="mqtt"):
        oz.compile(b"\xff/+", "mqtt")


NO_TEXT = "\0\x01\t\n\x1f\x7f\x80\x9f\ufdd0\ufdef\ufffe\uffff\U0001fffe\U0010ffff"


@each("char", NO_TEXT)
def test_control_characters_and_noncharacters_are_refused_as_by_mosquitto(char):
    with pytest.raises(oz.PatternError, match=f"position 4: U\\+{ord(char):04X}"):
        oz.compile(f"é/+/{char}", "mqtt")
    with pytest.raises(oz.SubjectError, match=f"position 2: U\\+{ord(char):04X}"):
        oz.validate_subject(f"é/{char}", "mqtt")


@each("char", " ~\xa0\ufdcf\ufdf0\ufffd\ufeff\u2028\u200b\U0001fffd")
def test_their_neighbours_are_text(char):
    oz.validate_subject(char, "mqtt")
    assert oz.compile(f"{char}/+", "mqtt").matches(f"{char}/a")


@each(
    ("text", "advice"),
    [
        ("$share/readers/home/+/temp", "subscribe to 'home/+/temp' with group='readers'"),
        ("$share/g//x", "subscribe to '/x' with group='g'"),
        ("$share/g/#", "subscribe to '#' with group='g'"),
        ("$share/g", "group='name'"),
        ("$share/#", "group='name'"),
        ("$share/+/x", "group='name'"),
        ("$share//x", "group='name'"),
    ],
)
def test_a_shared_subscription_is_refused_and_says_group(text, advice):
    with pytest.raises(oz.PatternError, match="shared subscription") as caught:
        oz.compile(text, "mqtt")
    assert advice in caught.value.rule


@each("text", ["$share", "$shared/g/x", "$SHARE/g/x", "a/$share/g/x", "$share_/g"])
def test_a_text_like_a_shared_subscription_is_a_filter(text):
    assert oz.compile(text, "mqtt").matches(text)


@pytest.mark.sized
def test_ten_thousand_levels_match_in_linear_time():
    subject = "/".join(["a"] * 10_000)
    for text in size(
        ("a/+/" * 4_999 + "#",), ("/".join(["+"] * 10_000), "a/" * 9_999 + "+", "a/+/" * 4_999 + "#")
    ):
        pattern = oz.compile(text, "mqtt")
        assert pattern.regex.fullmatch(subject, timeout=10)
        assert not pattern.regex.fullmatch("$" + subject, timeout=10)
        assert not pattern.regex.fullmatch("b" + subject, timeout=10) or text[0] == "+"


def test_advice_counts_levels():
    from oz.subjects.advice import advice

    assert advice(oz.compile("a." * 20 + "/+", "mqtt")) == []
    assert "18 tokens" in advice(oz.compile("a/" * 18 + "#", "mqtt"))[0]
