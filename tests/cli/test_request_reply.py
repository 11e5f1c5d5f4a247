"""`oz request` and `oz reply` on a bus."""

import functools
import json
import os
import queue
import re
import signal
from pathlib import Path

import pytest

import oz as library
from oz.cli.reply import CommandFailed, ShellCommand, environment_of
from support.cases import each
from support.node_commands import ANSWER, DEADLINE, answered, on_bus
from support.waiting import Thread, until


@pytest.fixture
def node(directory):
    with library.Node("tester") as opened:
        yield opened


@pytest.fixture
def served(oz_run, directory, signal_when):
    """Function that runs `oz reply` while a client works; return the end of the command and the result."""

    def run(*arguments, client):
        results = []
        signal_when(lambda: [results.append(client())], signal.SIGTERM)
        ended = oz_run("reply", *on_bus(directory, *arguments))
        assert ended.code == 0, ended.stderr
        return ended, results[0]

    return run


@pytest.fixture
def ask(oz_run, directory):
    def ask(*arguments, stdin=None):
        return oz_run("request", *on_bus(directory, *arguments, *ANSWER), stdin=stdin)

    return ask


def test_reply_is_the_output_of_the_command_and_nothing_of_a_request_is_run(served, node, tmp_path):
    hostile = f"$(touch {tmp_path}/pwned) `touch {tmp_path}/pwned`; touch {tmp_path}/pwned '\"\\ \x01"
    command = 'cat; echo "$OZ_SUBJECT $OZ_HEADER_USER"'
    ended, found = served(
        *("text.*", "--command", command, "--name", "upper"),
        client=lambda: answered(node, "text.a", hostile, headers={"user": "$(id)"}),
    )
    assert found == f"{hostile}text.a $(id)"
    assert re.fullmatch(r"oz reply: ready, upper on bus default, 1 peer", ended.stderr.splitlines()[0])
    assert not list(tmp_path.iterdir())


SCRIPTS = {
    "60": [
        ("exit 3", "the command exited with 3"),
        ("kill -9 $$", "the command was killed by signal 9"),
        # Processes that the command started are killed too.
        ("sleep 600 & echo $! > pid; yes", "wrote more than"),
    ],
    "0.5": [
        (script, "took longer than 0.5 s, and was killed")
        for script in ("sleep 600 & exit", "exec >&-; sleep 600", "yes > /dev/null")
    ],
}


@pytest.mark.parametrize("limit", SCRIPTS)
def test_failures_of_a_command_are_error_replies(served, node, tmp_path, limit):
    """The command is a shell that runs the payload."""

    def replies():
        found = []
        for script, _ in SCRIPTS[limit]:
            with pytest.raises(library.ReplyError) as raised:
                answered(node, "a", f"cd {tmp_path}; {script}")
            found.append(str(raised.value))
        return found

    ended, found = served("a", "--command", "exec sh", "--timeout", limit, client=replies)
    assert ended.stderr.splitlines()[-1] == "oz reply: 0 requests answered, 3 failed"
    assert [text for text, (_, reason) in zip(found, SCRIPTS[limit], strict=True) if reason not in text] == []
    for pid in map(Path.read_text, tmp_path.glob("pid")):
        until(lambda pid=pid: not is_running(int(pid)))


def test_request_reports_the_exception_of_a_handler(node, ask):
    def refuse(message):
        raise ValueError("bad size")

    node.subscribe("a", handler=refuse)
    ended = ask("a")
    said = "oz request: the handler of node 'tester' for 'a' raised ValueError: bad size"
    assert (ended.code, ended.stdout) == (1, b"")
    # The warnings of the node are in this process too.
    assert said in ended.stderr.splitlines()


def test_requests_of_different_subjects_are_handled_at_once(served, node, tmp_path):
    met = f"until test -e {tmp_path}/1 -a -e {tmp_path}/4; do sleep 0.05; done; echo met"
    command = f'touch {tmp_path}/"$OZ_HEADER_ME"; {met}'

    def client():
        # Their CRCs differ in the lowest bit, so that each subject has a lane of its own.
        asked = [Thread(lambda me=me: answered(node, f"a.{me}", headers={"me": me})) for me in (1, 4)]
        return [item.outcome(DEADLINE * 2) for item in asked]

    options = ("--concurrency", "2", "--timeout", "60")
    assert served("a.*", "--command", command, *options, client=client)[1] == ["met", "met"]


def test_echo_returns_any_payload(served, node):
    payloads = ["text", "", b"\xff\x00", {"a": [1, 2.5, None]}, 2**63]
    _, found = served(
        "a.>", "--echo", client=lambda: [answered(node, "a.b", payload) for payload in payloads]
    )
    assert found == payloads


def test_several_answers_are_a_line_each(node, ask):
    for text in ("one", "two\n2"):
        node.subscribe("a", handler=lambda message, text=text: message.reply(text))
    ended = ask("a", "--count", "2")
    assert re.fullmatch(r"oz request: ready, oz-request-\d+ on bus default, 1 peer\n", ended.stderr)
    assert (ended.code, sorted(ended.lines)) == (0, ["one", "two\\n2"])


def test_json_payloads_are_values_of_other_nodes(node, ask):
    asked = queue.SimpleQueue()

    def answer(message):
        asked.put((message.payload, dict(message.headers)))
        message.reply({"ok": True, "raw": b"\xff"}, headers={"by": "me"})

    node.subscribe("a", handler=answer)
    ended = ask("a", '{"size": 5}', "--payload", "json", "--header", "x=y", "--json")
    assert asked.get(timeout=DEADLINE) == ({"size": 5}, {"x": "y"})
    fields = json.loads(ended.stdout)
    assert 0 <= fields.pop("seconds") < DEADLINE
    assert fields == {"payload": {"ok": True, "raw": "/w=="}, "headers": {"by": "me"}}


def test_raw_answers_have_nothing_added(node, ask):
    node.subscribe("a", handler=lambda message: message.reply(message.payload * 2))
    ended = ask("a", "-", "--raw", stdin=b"x\n\xff")
    assert ended.stdout == b"x\n\xffx\n\xff"


def test_bytes_are_for_nodes_without_a_codec(served, directory):
    def client():
        with library.Node(codec=None) as plain:
            return answered(plain, "a", b"abc")

    assert served("a", "--command", "wc -c", "--payload", "bytes", client=client)[1] == b"3\n"


def test_request_without_a_reply_exits_4(node, oz_run, directory):
    node.subscribe("a", handler=lambda message: None)
    ended = oz_run("request", *on_bus(directory, "a", "--wait", "60", "--timeout", "0.3"))
    assert (ended.code, ended.stderr.splitlines()[1]) == (4, "oz request: no reply to a within 0.3 s")


def test_fewer_answers_than_were_waited_for_are_no_failure(node, oz_run, directory):
    node.subscribe("a", handler=lambda message: message.reply("one"))
    waits = ("--wait", "60", "--timeout", "1", "--count", "3")
    ended = oz_run("request", *on_bus(directory, "a", *waits))
    assert (ended.code, ended.lines) == (0, ["one"])


def is_running(pid):
    try:
        os.kill(pid, 0)
        # An orphan that has ended is a zombie until the init process reaps it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_ending_kills_a_command_that_runs(served, node, tmp_path, monkeypatch):
    monkeypatch.setattr("oz.node.sync.Node.close", functools.partialmethod(library.Node.close, timeout=0.5))
    command = f"echo $$ > {tmp_path}/pid; mv {tmp_path}/pid {tmp_path}/there; sleep 600"

    def client():
        asking = Thread(lambda: answered(node, "a"))
        until((tmp_path / "there").exists)
        return asking

    _, asking = served("a", "--command", command, client=client)
    pid = int((tmp_path / "there").read_text())
    until(lambda: not is_running(pid))
    with pytest.raises(library.PeerLost):
        asking.outcome()


@each(
    ("subject", "headers", "variables"),
    [
        ("a.b", {"trace-id": "x", "a b": None}, {"OZ_HEADER_TRACE_ID": b"x", "OZ_HEADER_A_B": b""}),
        ("a.b", {"LD_PRELOAD": "y"}, {"OZ_HEADER_LD_PRELOAD": b"y"}),
        ("a.b", {"n": 1, "yes": True, "raw": b"\xff"}, {"OZ_HEADER_N": b"1", "OZ_HEADER_YES": b"true"}),
        ("a.b", {"ä": "ö"}, {"OZ_HEADER__": "ö".encode()}),
        ("a.\udcff", {}, {"OZ_SUBJECT": b"a.\xff"}),
        # Bytes in headers of oz are hexadecimal.
        ("a", {"oz-via": b"\0" * 8, "oz-text": "as it is"}, {"OZ_HEADER_OZ_VIA": b"00" * 8}),
    ],
)
def test_subject_and_headers_are_variables_of_a_command(subject, headers, variables):
    made = environment_of(subject, headers)
    assert made[b"OZ_SUBJECT"] == subject.encode(errors="surrogateescape")
    assert variables.items() <= {name.decode(): value for name, value in made.items()}.items()


def test_headers_that_are_not_variables_are_an_error():
    with pytest.raises(CommandFailed, match="OZ_HEADER_A would hold a zero byte"):
        environment_of("a", {"a": "x\0y"})
    with pytest.raises(CommandFailed, match="cannot be started: Argument list too long"):
        ShellCommand("true", DEADLINE).run(b"", {b"OZ_HEADER_A": b"x" * 10_000_000})
