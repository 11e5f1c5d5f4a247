"""The command line."""

import json
import signal

import pytest

from contract.adapter import command
from contract.promises import promise
from support.scripts import started
from support.waiting import DEADLINE


@promise("oz match prints the subjects that a pattern matches, and exits with 1 if none does.")
def test_match():
    assert command("match", "time.*.east", "time.us.east", "time.us.west") == (0, "time.us.east\n", "")
    assert command("match", "a.*", "b.c")[0] == 1


@promise("oz explain shows prefix, regex and dialect of a pattern.")
def test_explain():
    code, out, _ = command("explain", "rv:RUN.*")
    assert code == 0
    assert "prefix: RUN." in out
    assert "dialect: rv" in out


@promise("An invalid pattern, option or command exits with 2 and prints the reason on standard error.")
@pytest.mark.parametrize("words", [["explain", "a..b"], ["sub", "--nonsense", "a"], ["nonsense"]])
def test_wrong_usage_exits_with_2(words):
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert words[-1] in err or "nonsense" in err


@promise("oz keys new writes a key pair and replaces no file.")
def test_keys_are_not_replaced(tmp_path):
    words = ["keys", "new", "desk", "--key-directory", str(tmp_path / "keys")]
    assert command(*words)[0] == 0
    before = (tmp_path / "keys" / "desk.key_secret").read_bytes()
    assert command(*words)[0] != 0
    assert (tmp_path / "keys" / "desk.key_secret").read_bytes() == before


@promise("oz sub --json prints the matching messages that oz pub publishes.")
def test_pub_and_sub(directory):
    endpoint = f"ipc://{directory}/feed"
    words = ["-m", "oz", "sub", "a.*", "--connect", endpoint, "--count", "2", "--json"]
    with started(*words) as process:
        code, _, err = command(
            "pub", "-", "--bind", endpoint, "--wait", str(DEADLINE), stdin="a.b one\na.c two\n"
        )
        assert code == 0, err
        out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, err
    assert [json.loads(line)["subject"] for line in out.splitlines()] == ["a.b", "a.c"]


@promise("oz request prints the reply of oz reply; without a responder it exits with 3.")
def test_request_and_reply(directory):
    words = ["reply", "text.*", "--command", "tr a-z A-Z", "--directory", directory]
    with started("-m", "oz", *words) as process:
        code, out, err = command("request", "text.upper", "hallo", "--directory", directory, "--wait", "40")
        assert (code, out) == (0, "HALLO\n"), err
        code, out, err = command("request", "other.upper", "hallo", "--directory", directory)
        assert (code, out) == (3, "")
        assert "other.upper" in err
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert "1 requests answered, 0 failed" in err


@promise("oz journal verify accepts an intact journal, and oz journal info prints its number of messages.")
def test_journal_commands(tmp_path):
    pytest.importorskip("pyarrow")
    from contract.adapter import journal_writer

    with journal_writer(tmp_path / "j") as writer:
        writer.append([("a.b", b"1"), ("a.c", b"2")])
    code, out, err = command("journal", "verify", str(tmp_path / "j"))
    assert code == 0, err
    code, out, err = command("journal", "info", str(tmp_path / "j"), "--json")
    assert code == 0, err
    assert json.loads(out)["messages"] == 2
