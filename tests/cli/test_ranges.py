"""`--from` and `--until`, of all commands that take them."""

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

import oz as library
from oz.times import read_moment
from support.waiting import DEADLINE

pytest.importorskip("pyarrow")

from oz.journal import Writer

COMMANDS = [("replay",), ("journal", "export")]
HOUR = 3600 * 10**9


@pytest.fixture
def directory(tmp_path):
    """Records of three and of two hours ago, and of half an hour ago."""
    where, now = tmp_path / "recorded", time.time_ns()
    with Writer(where) as writer:
        writer.append(
            [
                {"subject": "a", "payload": b"%d" % at, "time_ns": now - half * HOUR // 2}
                for at, half in enumerate((6, 4, 1))
            ]
        )
    return where


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_says_how_long_ago_a_time_may_be(oz, command):
    text = " ".join(oz(*command, "--help").stdout.split())
    assert "--from and --until are an offset, a time such as 2026-03-01T09:00, or a time before now" in text
    assert "such as -90s or -1h" in text
    assert "without a zone is local time" in text


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("option", ["--from", "--since", "--until"])
@pytest.mark.parametrize("text", ["-1y", "1h", "-5", "yesterday", "-99999999999w", ""])
def test_what_is_no_time_is_refused_with_times_that_are(oz, directory, command, option, text):
    ended = oz(*command, str(directory), option, text)
    assert ended.exit_code == 2
    said = " ".join(ended.stderr.split())
    assert f"{text!r} is neither an offset nor a time such as 2026-03-01T09:00 or -1h" in said


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (("--from", "-1h"), [2]),
        (("--since=-150m", "--until", "-1.5h"), [1]),
        (("--until", "now"), [0, 1, 2]),
        (("--from", "now"), []),
    ],
)
def test_a_range_may_count_from_now(oz, directory, options, offsets):
    lines = oz("journal", "export", str(directory), *options).stdout.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == offsets


def test_a_replay_begins_and_ends_as_long_ago_as_it_is_told(oz_start, directory):
    with library.Subscriber(bind="tcp://127.0.0.1:*") as sub:
        sub.subscribe("a")
        options = ("--connect", sub.endpoint, "--speed", "max", "--wait", "60")
        running = oz_start("replay", str(directory), *options, "--from", "-150m", "--until", "-1h")
        assert sub.receive(timeout=DEADLINE).payload == b"1"
        ended = running.end()
    assert ended.code == 0
    assert "published 1 messages" in ended.stderr


def test_a_time_without_a_zone_is_local_time(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert read_moment("2026-03-01T09:00") == datetime(2026, 3, 1, tzinfo=UTC)
        assert read_moment("2026-03-01T09:00+01:00") == datetime(2026, 3, 1, 8, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_time_before_the_calendar_is_none():
    with pytest.raises(ValueError, match="is not a time"):
        read_moment("-9999999w")
    assert read_moment("0001-01-01").year == 1
    assert datetime.now(UTC) - read_moment("-2w") < timedelta(weeks=2, minutes=5)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("range_", [("3", "1"), ("-1h", "-2h"), ("2026-03-02", "2026-03-01")])
@pytest.mark.parametrize("is_turned", [False, True])
def test_a_range_that_ends_before_it_begins_is_refused(oz, directory, command, range_, is_turned):
    options = [("--from", range_[0]), ("--until", range_[1])]
    ordered = reversed(options) if is_turned else options
    ended = oz(*command, str(directory), *(part for option in ordered for part in option))
    assert ended.exit_code == 2
    assert "the range ends before it begins" in " ".join(ended.stderr.split())
