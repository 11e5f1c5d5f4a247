"""Names, subjects and payloads of peers that hold control characters and invisible characters."""

import io
import json
import logging
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oz
from oz.escaping import json_text, printable
from oz.logs import FIRST, SECONDS, LineRate, peer_logger
from support.cases import each
from support.waiting import DEADLINE

ROOT = Path(oz.__file__).parent
EVIL = (
    "\x1b[2J", "\x9b31m", "\x85", "\x7f", "\x07", "\r", "\n", "\u2028", "\u2029", "\u200b", "\u200e",
    "\u202e", "\u2066", "\u2069", "\ufeff", "\U000e0041", "\ue000", "\u061c", "\xad",
)  # fmt: skip
SUBJECT = "a." + "".join(EVIL)
UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def unseen(text):
    return {f"U+{ord(char):04X}" for char in text if unicodedata.category(char) in UNSEEN} - {"U+0009"}


@each("evil", EVIL)
def test_nothing_unseen_is_shown_as_it_is(evil):
    assert unseen(printable(f"a{evil}b")) == set()
    assert printable(f"a{evil}b").startswith("a\\")
    assert printable(f"a{evil}b".encode()) == printable(f"a{evil}b")


def test_visible_characters_stay():
    for text in ("md.DAX", "été.é", "中文.かな", "שלום", "🙂", "a\tb", "a\xa0b"):
        assert printable(text) == text
        assert json.loads(json_text(text)) == text
    assert printable(b"a\xff") == "a\\xff"
    assert printable("a\udcff") == "a\\xff"


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_text_decodes_to_the_same_value(value):
    for indent in (None, 1):
        text = json_text(value, indent=indent)
        assert unseen(text) <= {"U+000A"}
        assert json.loads(text) == value


@given(st.text())
def test_no_text_is_shown_as_more_than_a_line(text):
    assert unseen(printable(text)) == set()
    assert len(f"{printable(text)}.".splitlines()) == 1


@pytest.mark.parametrize("options", [[], ["--json"], ["--headers"], ["--headers", "--json"]])
def test_oz_sub_writes_nothing_unseen(options):
    with oz.Publisher(bind="tcp://127.0.0.1:*", dialect="redis") as publisher:
        command = ["-m", "oz", "sub", "redis:a.*", "--count", "1", *options]
        routed = ["--filtering", "publisher"] if "--headers" in options else []
        with subprocess.Popen(
            [sys.executable, *command, *routed, "--connect", publisher.endpoint, "--timeout", "60"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as subscriber:
            publisher.wait_for_subscribers(subject="a.b", timeout=DEADLINE)
            headers = {"headers": {SUBJECT: SUBJECT}} if routed else {}
            publisher.publish(SUBJECT, SUBJECT.encode(), **headers)
            out, errors = subscriber.communicate(timeout=60)
    text = out.decode()
    assert unseen(text) == {"U+000A"}, errors
    assert len(text.splitlines()) == 1
    if "--json" in options:
        found = json.loads(text)
        assert (found["subject"], found["payload"]) == (SUBJECT, SUBJECT)
        assert found.get("headers", {SUBJECT: SUBJECT}) == {SUBJECT: SUBJECT}


@pytest.fixture
def lines():
    """Logger of peers, and the lines that it has written."""
    log, out = peer_logger("oz.tests-of-shown-text"), io.StringIO()
    handler = logging.StreamHandler(out)
    log.addHandler(handler)
    log.propagate = False
    yield log, lambda: out.getvalue().split("\n")[:-1]
    log.removeHandler(handler)


def test_a_log_has_one_line_for_each_and_nothing_unseen(lines):
    log, written = lines
    log.warning("%s of bus %r", SUBJECT, SUBJECT)
    log.warning("refused: %s", ValueError(SUBJECT))
    log.warning(SUBJECT)
    assert len(written()) == 3
    assert unseen("".join(written())) == set()


def test_the_text_of_an_exception_forges_no_line(lines):
    log, written = lines
    try:
        raise ValueError(SUBJECT)
    except ValueError:
        log.exception("it failed")
    assert unseen("".join(written())) == set()
    assert [line for line in written() if not line.startswith("  ")] == ["it failed"]
    log.warning("100%% of %s", "a")
    assert written()[-1] == "100% of a"


def handle(log, seconds, *, line=1, text="a peer did it"):
    """Log a line at a time, from a line of a module."""
    record = log.makeRecord(log.name, logging.WARNING, "module.py", line, text, (), None)
    record.created = seconds
    log.handle(record)


def test_a_peer_causes_few_lines_and_they_are_counted(lines):
    log, written = lines
    for number in range(229):  # 229 lines in 14 s were measured
        handle(log, 1000 + number * 14 / 229)
    assert FIRST <= len(written()) <= FIRST + 14 / SECONDS + 1
    assert re.search(r"a peer did it \(\d+ similar records were dropped\)", written()[-1])
    handle(log, 1030.0)
    said = sum(int(item) for line in written() for item in re.findall(r"\((\d+) similar", line))
    assert said + len(written()) == 230


def test_lines_of_other_kinds_are_not_held_up(lines):
    log, written = lines
    for _ in range(1000):
        handle(log, 1.0)
    handle(log, 1.0, line=2, text="another")
    assert written()[-1] == "another"
    assert len(written()) == FIRST + 1


def test_lines_are_logged_again_after_the_clock_was_set_back():
    rate = LineRate()
    assert [rate.take(100.0) for _ in range(FIRST + 1)] == [0] * FIRST + [None]
    assert rate.take(50.0) is None
    assert rate.take(50.0 + SECONDS) == 2


def test_each_logger_of_oz_escapes():
    names = (ROOT / name for name in ("logs.py", "cli/output.py", "cli/reply.py"))
    allowed = {path: path.read_text().count("logging.getLogger(") for path in names}
    for path in ROOT.rglob("*.py"):
        assert path.read_text().count("logging.getLogger(") == allowed.get(path, 0), path


def test_each_command_writes_json_that_is_escaped():
    for path in (*ROOT.glob("cli/**/*.py"), *ROOT.glob("spark/jobs/**/*.py")):
        assert "ensure_ascii=False" not in path.read_text(), path
