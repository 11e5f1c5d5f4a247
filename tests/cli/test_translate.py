import json

import pytest


def test_an_exact_translation_exits_0(oz):
    result = oz("translate", "rv:RUN.>", "--to", "regex")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        r"pattern: (?s)RUN\.[^.]+(?:\.[^.]+)*",
        "dialect: regex",
        "relation: exact",
    ]


def test_one_that_is_not_exact_exits_1_with_a_proof(oz):
    result = oz("translate", "time.*.east", "--to", "redis")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[2:] == ["relation: wider", "also matches: time...east"]


def test_the_dialect_of_the_pattern_and_exchanged_separators(oz):
    result = oz("translate", "sensor/+/temp", "--from", "mqtt", "--to", "nats", "--exchange")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "pattern: sensor.*.temp",
        "dialect: nats",
        "relation: narrower",
        "misses: sensor..temp",
    ]


def test_json_is_an_object(oz):
    assert json.loads(oz("translate", "--json", "a.>", "--to", "amqp").stdout) == {
        "pattern": "a.*.#",
        "dialect": "amqp",
        "relation": "wider",
        "also_matches": "a.",
        "misses": None,
        "undecided": None,
    }


def test_what_cannot_be_told_is_said(oz):
    result = oz("translate", "regex:a(?=b).*", "--to", "zmq")
    assert result.exit_code == 1
    assert "relation: undecided\nundecided: regex" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("a.*", "--to", "mqtt"),
        ("a..b", "--to", "rv"),
        ("a",),
        ("a", "--to", "none"),
        ("regex:a.*", "--to", "nats"),
    ],
)
def test_no_translation_or_bad_usage_exits_2(oz, arguments):
    result = oz("translate", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_a_pattern_that_is_not_utf8_exits_2_where_the_dialect_is_text(oz_run):
    ended = oz_run("translate", b"zmq:\xc3", "--to", "kubemq")
    assert ended.code == 2
    assert ended.stdout == b""
    assert ended.stderr.startswith("oz translate: kubemq pattern b'\\xc3'")
    assert "UTF-8" in ended.stderr
    assert ended.stderr.count("\n") == 1
