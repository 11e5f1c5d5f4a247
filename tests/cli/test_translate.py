import json


def test_an_exact_translation_exits_0(oz):
    result = oz("translate", "rv:RUN.>", "--to", "regex")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        r"pattern: (?s)RUN\.[^.]+(?:\.[^.]+)*",
        "dialect: regex",
        "relation: exact",
    ]


def test_inexact_translation_exits_1_with_an_example(oz):
    result = oz("translate", "time.*.east", "--to", "redis")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[2:] == ["relation: wider", "also matches: time...east"]


def test_the_dialect_of_the_pattern_and_exchanged_separators(oz):
    result = oz("translate", "sensor/+/temp", "--dialect", "mqtt", "--to", "nats", "--exchange")
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


def test_undecided_relation_is_reported(oz):
    result = oz("translate", "regex:a(?=b).*", "--to", "zmq")
    assert result.exit_code == 1
    assert "relation: undecided\nundecided: regex" in result.stdout


def test_a_pattern_that_is_not_utf8_exits_2_where_the_dialect_is_text(oz_run):
    ended = oz_run("translate", b"zmq:\xc3", "--to", "kubemq")
    assert ended.code == 2
    assert ended.stdout == b""
    assert ended.stderr.startswith("oz translate: kubemq pattern b'\\xc3'")
    assert "UTF-8" in ended.stderr
    assert ended.stderr.count("\n") == 1
