"""`oz request` and `oz reply`, as processes that meet on a bus."""

import json
import os
import queue
import re
from collections import Counter
from pathlib import Path

import pytest

import oz as library
from support.node_commands import ANSWER, DEADLINE, answered, on_bus
from support.waiting import Thread, until


@pytest.fixture
def node(directory):
    with library.Node("tester") as opened:
        yield opened


@pytest.fixture
def service(oz_start, directory):
    def start(*arguments):
        running = oz_start("reply", *on_bus(directory, *arguments))
        running.line = running.ready_line()
        return running

    return start


@pytest.fixture
def ask(oz_run, directory):
    def ask(*arguments, stdin=None):
        return oz_run("request", *on_bus(directory, *arguments, *ANSWER), stdin=stdin)

    return ask


def test_a_command_answers_with_what_it_writes(service, ask):
    running = service("text.*", "--command", "tr a-z A-Z", "--name", "upper")
    assert re.fullmatch(r"oz reply: ready, upper on bus default, 0 peers", running.line)
    ended = ask("text.upper", "hello")
    assert (ended.code, ended.stdout) == (0, b"HELLO\n")
    assert re.fullmatch(r"oz request: ready, oz-request-\d+ on bus default, 1 peer\n", ended.stderr)


def test_a_command_knows_subject_and_headers(service, ask):
    service("a.*", "--command", 'echo "$OZ_SUBJECT, $OZ_HEADER_TRACE_ID, $OZ_HEADER_USER"')
    ended = ask("a.b", "--header", "trace-id=x y", "--header", "user=$(id)")
    assert ended.stdout == b"a.b, x y, $(id)\n"


def test_nothing_of_a_payload_is_run(service, ask, tmp_path):
    service("a", "--command", "cat")
    hostile = f"$(touch {tmp_path}/pwned) `touch {tmp_path}/pwned`; touch {tmp_path}/pwned '\"\\ \x01"
    ended = ask("a", hostile, "--json")
    assert json.loads(ended.stdout)["payload"] == hostile
    assert not list(tmp_path.iterdir())


def test_a_command_that_fails_is_reported_and_the_service_goes_on(service, node):
    running = service("a", "--command", 'test "$(cat)" = good && echo fine')
    assert answered(node, "a", "good") == "fine"
    with pytest.raises(library.ReplyError, match="for 'a' raised CommandFailed: the command exited with 1"):
        node.request("a", "bad", timeout=DEADLINE)
    assert answered(node, "a", "good") == "fine"
    running.terminate()
    ended = running.end()
    assert ended.code == 0
    assert ended.stderr.splitlines() == [
        "oz reply: a: the command exited with 1",
        "oz reply: 2 requests answered, 1 failed",
    ]


def test_a_command_that_hangs_is_killed_and_the_service_goes_on(service, node):
    running = service("a", "--command", 'test "$(cat)" = good || sleep 600; echo fine', "--timeout", "4")
    assert answered(node, "a", "good") == "fine"
    with pytest.raises(library.Timeout):
        node.request("a", "hang", timeout=0.1)
    # It stands behind the one that hangs.
    assert answered(node, "a", "good") == "fine"
    running.interrupt()
    ended = running.end()
    assert (ended.code, ended.stderr.splitlines()[0]) == (
        0,
        "oz reply: a: the command took longer than 4 s, and was killed",
    )


def test_whoever_asks_is_told_at_once_that_the_handler_raised(node, oz_start, directory):
    def refuse(message):
        raise ValueError("bad size")

    node.subscribe("a", handler=refuse)
    # A process of its own: in this one the warnings of the node would be those of the command too.
    ended = oz_start("request", *on_bus(directory, "a", *ANSWER)).end()
    said = "oz request: the handler of node 'tester' for 'a' raised ValueError: bad size"
    assert (ended.code, ended.stdout, ended.stderr.splitlines()[1]) == (1, b"", said)


def test_requests_of_different_subjects_are_handled_at_once(service, node, tmp_path):
    met = f"until test -e {tmp_path}/1 -a -e {tmp_path}/4; do sleep 0.05; done; echo met"
    command = f'touch {tmp_path}/"$OZ_HEADER_ME"; {met}'
    service("a.*", "--command", command, "--concurrency", "2", "--timeout", "60")
    # Their CRCs differ in the lowest bit, so that each subject has a lane of its own.
    asked = [Thread(lambda me=me: answered(node, f"a.{me}", headers={"me": me})) for me in (1, 4)]
    assert [one.outcome(DEADLINE * 2) for one in asked] == ["met", "met"]


def test_echo_gives_back_any_payload(service, node):
    service("a.>", "--echo")
    for payload in ("text", "", b"\xff\x00", {"a": [1, 2.5, None]}, 2**63):
        assert answered(node, "a.b", payload) == payload


def test_several_answers_are_a_line_each(node, ask):
    for text in ("one", "two\n2"):
        node.subscribe("a", handler=lambda message, text=text: message.reply(text))
    ended = ask("a", "--many", "2")
    assert (ended.code, sorted(ended.lines)) == (0, ["one", "two\\n2"])


def test_a_group_shares_the_requests(service, node):
    for name in ("one", "two"):
        service("a", "--text", name, "--group", "g")
    seen = set()
    until(lambda: seen.add(answered(node, "a")) or seen == {"one", "two"}, DEADLINE)
    assert Counter(answered(node, "a") for _ in range(6)) == {"one": 3, "two": 3}


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


def test_bytes_are_for_nodes_without_a_codec(service, ask):
    service("a", "--command", "wc -c", "--payload", "bytes")
    assert ask("a", "abc", "--payload", "bytes", "--raw").stdout == b"3\n"


def test_it_exits_3_at_once_when_nobody_would_answer(node, oz_run, directory):
    node.subscribe("b", handler=print)
    ended = oz_run("request", *on_bus(directory, "a", "--timeout", "600"))
    assert ended.code == 3
    assert ended.stderr.splitlines()[1].startswith("oz request: no node has a subscription for 'a'")


def test_it_exits_4_when_nobody_answers_in_time(node, oz_run, directory):
    node.subscribe("a", handler=lambda message: None)
    ended = oz_run("request", *on_bus(directory, "a", "--wait", "60", "--timeout", "0.3"))
    assert (ended.code, ended.stderr.splitlines()[1]) == (4, "oz request: no reply to a within 0.3 s")


def test_fewer_answers_than_were_waited_for_are_no_failure(node, oz_run, directory):
    node.subscribe("a", handler=lambda message: message.reply("one"))
    waits = ("--wait", "60", "--timeout", "6", "--many", "3")
    ended = oz_run("request", *on_bus(directory, "a", *waits))
    assert (ended.code, ended.lines) == (0, ["one"])


@pytest.mark.parametrize("signal", ["interrupt", "terminate"])
def test_a_signal_ends_the_service_with_a_goodbye(service, directory, signal):
    events = queue.SimpleQueue()
    with library.Node(on_event=lambda event: events.put((event.about, event.kind))):
        running = service("a", "--echo", "--name", "echo")
        assert events.get(timeout=DEADLINE) == ("echo", "peer_up")
        getattr(running, signal)()
        ended = running.end()
        assert (ended.code, ended.stderr) == (0, "oz reply: 0 requests answered, 0 failed\n")
        assert events.get(timeout=DEADLINE) == ("echo", "peer_left")


def is_running(pid):
    try:
        os.kill(pid, 0)
        # An orphan that has ended is a zombie until the init process reaps it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_ending_kills_a_command_that_runs(service, node, tmp_path):
    running = service(
        "a", "--command", f"echo $$ > {tmp_path}/pid; mv {tmp_path}/pid {tmp_path}/there; sleep 600"
    )
    Thread(lambda: answered(node, "a"))
    until((tmp_path / "there").exists)
    pid = (tmp_path / "there").read_text().strip()
    running.terminate()
    assert running.end().code == 0
    until(lambda: not is_running(int(pid)))


@pytest.mark.parametrize(
    "arguments",
    [
        ("reply", "a"),
        ("reply", "a", "--echo", "--text", "x"),
        ("reply", "a", "--echo", "--concurrency", "0"),
        ("reply", "a", "--echo", "--group", ""),
        ("reply", "a..b", "--echo"),
        ("reply", "_INBOX.>", "--echo"),
        ("reply", "a", "--text", "x", "--payload", "json"),
        ("request", "a.*"),
        ("request", "a", "{", "--payload", "json"),
        ("request", "a", "--json", "--raw"),
        ("request", "a", "--many", "0"),
        ("request", "a", "--bus", ""),
        ("request", "a", "--bus", "x" * 300),
        ("request", "a", "--connect", "udp://x:1"),
        ("request", "a", "--directory", "relative"),
    ],
)
def test_what_is_written_wrongly_exits_2_at_once(oz, directory, arguments):
    place = () if "--directory" in arguments else ("--directory", directory)
    result = oz(*arguments, *place)
    assert result.exit_code == 2, result.stderr
    assert "ready" not in result.stderr
