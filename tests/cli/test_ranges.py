"""`--start` and `--end`, of all commands that take them."""

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from oz.times import read_moment

pytest.importorskip("pyarrow")

from oz.journal import Writer

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


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (("--start", "-1h"), [2]),
        (("--start=-150m", "--end", "-1.5h"), [1]),
        (("--end", "now"), [0, 1, 2]),
        (("--start", "now"), []),
    ],
)
def test_a_range_may_count_from_now(oz, directory, options, offsets):
    lines = oz("journal", "export", str(directory), *options).stdout.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == offsets


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
