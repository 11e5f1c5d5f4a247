import json

import pytest


@pytest.mark.parametrize("subjects", [(), ("-",)])
def test_reads_subjects_from_stdin(oz, subjects):
    result = oz("match", "rv:a.*", *subjects, stdin="a.b\nb.a\na.c")
    assert result.stdout == "a.b\na.c\n"


def test_a_byte_dialect_matches_bytes_and_a_text_dialect_does_not(oz):
    assert oz("match", "redis:a*", stdin=b"a\xff\nab\n").stdout_bytes == b"a\xff\nab\n"
    assert oz("match", "a*", stdin=b"a\xff\n").exit_code == 1


def test_the_dialect_option_applies_when_the_pattern_names_none(oz):
    assert oz("match", "--dialect", "redis", "a?c", "abc").exit_code == 0
    assert oz("match", "a?c", "abc").exit_code == 1


def test_a_pattern_without_end_is_one_line_and_not_a_stall(oz):
    result = oz("match", "regex:(a|aa)+c", "a" * 40 + "b")
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert "took longer" in line


def test_a_wildcard_of_another_dialect_is_warned_of_unless_a_dialect_is_named(oz):
    result = oz("match", "home/+", "home/hall")
    assert result.exit_code == 1
    assert result.stderr == (
        "oz match: warning: '+' is literal text in nats, and is a wildcard in mqtt (mqtt separates at '/'): "
        "write mqtt:home/+, or nats:home/+ if you mean the text\n"
    )
    assert oz("match", "nats:home/+", "home/+").stderr == ""
    assert oz("match", "mqtt:home/+", "home/hall").stderr == ""


def test_json_is_an_object_for_each_subject(oz):
    lines = oz("match", "redis:a*", "--json", stdin=b"a\xff\nab\n").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [{"subject_base64": "Yf8="}, {"subject": "ab"}]
