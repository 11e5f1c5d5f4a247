import json

import pytest

from oz.subjects.advice import MAX_TOKENS


def test_plain_lines_show_regex_and_prefix(oz):
    result = oz("explain", "rv:Foo.*")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "pattern: Foo.*",
        "dialect: rv",
        r"regex: Foo\.[^.]++",
        "prefix: Foo.",
        "literal: no",
    ]


def test_each_prefix_has_a_line_and_each_pattern_a_paragraph(oz):
    first, second = oz("explain", "redis:sensor.[ab]*", "time.new.east").stdout.split("\n\n")
    assert "prefix: sensor.a\nprefix: sensor.b\n" in first
    assert "prefix: time.new.east\nliteral: yes\n" in second


def test_the_dialect_option_applies_to_patterns_that_name_none(oz):
    result = oz("explain", "--dialect", "redis", "a?", "zmq:a?", "--json")
    assert [(row["dialect"], row["literal"]) for row in json.loads(result.stdout)] == [
        ("redis", False),
        ("zmq", False),
    ]


def test_json_is_a_list_of_objects(oz):
    [row] = json.loads(oz("explain", "--json", "*.é").stdout)
    assert set(row) == {"pattern", "dialect", "regex", "prefixes", "literal", "warnings"}
    assert row["pattern"] == "*.é"
    assert row["prefixes"] == [""]
    assert len(row["warnings"]) == 2


def test_many_tokens_are_warned_of(oz):
    at_most = ".".join("a" * MAX_TOKENS)
    assert "warning" not in oz("explain", at_most).stdout
    assert f"warning: {MAX_TOKENS + 1} tokens" in oz("explain", at_most + ".a").stdout


def test_a_pattern_that_is_not_utf8_can_be_explained(oz_run):
    ended = oz_run("explain", "--json", b"redis:\xff*")
    [row] = json.loads(ended.stdout)
    assert row["pattern_base64"] == "/yo="
    assert row["prefixes"] == [r"\xff"]


@pytest.mark.parametrize("spec", ["natz:time.*", "REGEX:a", "rediss:a:*"])
def test_a_misspelled_dialect_is_warned_of(oz_run, spec):
    ended = oz_run("explain", spec)
    assert ended.code == 0
    word = spec.partition(":")[0]
    assert f"no dialect has the name '{word}'" in ended.stderr
    assert "did you mean" in ended.stderr


def test_a_word_before_a_colon_that_is_like_no_dialect_is_part_of_the_pattern(oz_run):
    assert oz_run("explain", "sensor:[ab]?:*", "--dialect", "redis").stderr == ""
