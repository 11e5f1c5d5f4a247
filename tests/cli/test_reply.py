"""The commands that `oz reply` runs."""

import os
import time

import pytest

from oz.cli.reply import MAX_OUTPUT, CommandFailed, ShellCommand, environment_of
from support.waiting import DEADLINE, Thread, until


def run(text, payload=b"", environment=None, timeout=DEADLINE):
    return ShellCommand(text, timeout).run(payload, environment or {})


def test_it_reads_the_payload_and_writes_the_answer():
    payload = bytes(range(256)) * 4096
    assert run("cat", payload) == payload


def test_it_need_not_read_the_payload():
    assert run("echo done", b"x" * 1_000_000) == b"done\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("exit 3", "the command exited with 3"),
        ("kill -9 $$", "the command was killed by SIGKILL"),
        ("/no/such/program 2> /dev/null", "the command exited with 127"),
    ],
)
def test_its_failure_is_told(text, why):
    with pytest.raises(CommandFailed, match=why):
        run(text)


@pytest.mark.parametrize("text", ["sleep 600", "sleep 600 &", "exec >&-; sleep 600", "yes > /dev/null"])
def test_one_that_hangs_is_ended(text):
    started = time.monotonic()
    with pytest.raises(CommandFailed, match=r"took longer than 0\.3 s, and was killed"):
        run(text, timeout=0.3)
    assert time.monotonic() - started < DEADLINE


def test_what_it_started_is_killed_with_it(tmp_path):
    # It is ended for writing too much, which it does after it has said what to look for.
    with pytest.raises(CommandFailed, match="wrote more than"):
        run(f"sleep 600 & echo $! > {tmp_path}/pid; yes")
    pid = int((tmp_path / "pid").read_text())
    until(lambda: is_gone(pid))


def is_gone(pid):
    try:
        os.kill(pid, 0)
        # One that init has not buried yet.
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def test_one_that_writes_for_ever_is_ended():
    with pytest.raises(CommandFailed, match=f"wrote more than {MAX_OUTPUT >> 20} MiB"):
        run("yes")


def test_ending_it_ends_those_that_run(tmp_path):
    begun = tmp_path / "begun"
    command = ShellCommand(f"touch '{begun}'; sleep 600", 600)
    running = Thread(lambda: command.run(b"", {}))
    until(begun.exists)
    command.end()
    with pytest.raises(CommandFailed, match="SIGKILL"):
        running.outcome()
    with pytest.raises(CommandFailed, match="the responder is closing"):
        command.run(b"", {})


def test_subject_and_headers_are_variables():
    headers = {"trace-id": "x", "LD_PRELOAD": "y", "a b": None, "n": 1, "yes": True, "raw": b"\xff", "ä": "ö"}
    assert environment_of("a.b", headers) == {
        b"OZ_SUBJECT": b"a.b",
        b"OZ_HEADER_TRACE_ID": b"x",
        b"OZ_HEADER_LD_PRELOAD": b"y",
        b"OZ_HEADER_A_B": b"",
        b"OZ_HEADER_N": b"1",
        b"OZ_HEADER_YES": b"true",
        b"OZ_HEADER_RAW": b"\xff",
        b"OZ_HEADER__": "ö".encode(),
    }


def test_a_subject_that_is_not_utf_8_is_a_variable_of_its_bytes():
    assert environment_of("a.\udcff", {}) == {b"OZ_SUBJECT": b"a.\xff"}


def test_bytes_in_headers_of_oz_itself_are_hexadecimal():
    """A forwarder is known by eight bytes of any kind, and `oz-origin` by sixteen."""
    headers = {"oz-via": b"\0" * 8 + b"\xff" * 8, "oz-text": "as it is"}
    assert environment_of("a", headers) == {
        b"OZ_SUBJECT": b"a",
        b"OZ_HEADER_OZ_VIA": b"00" * 8 + b"ff" * 8,
        b"OZ_HEADER_OZ_TEXT": b"as it is",
    }


def test_a_zero_byte_has_no_place_in_a_variable():
    with pytest.raises(CommandFailed, match="OZ_HEADER_A would hold a zero byte"):
        environment_of("a", {"a": "x\0y"})


def test_headers_that_are_too_long_for_the_system_are_a_failure():
    with pytest.raises(CommandFailed, match="cannot be started: Argument list too long"):
        run("true", environment={b"OZ_HEADER_A": b"x" * 10_000_000})
