"""`oz pub --bus` and `oz sub --bus`: through nodes, with the output that they have without."""

import json
import queue
import subprocess

import click
import pytest

import oz as library
from oz.cli.on_bus import say_loss
from support.node_commands import DEADLINE, on_bus
from support.waiting import until


@pytest.fixture
def node(directory):
    with library.Node("tester") as opened:
        yield opened


def publish(oz_run, directory, *arguments, stdin=None):
    return oz_run("pub", *on_bus(directory, *arguments, "--wait", "60"), stdin=stdin)


def test_they_meet_without_an_endpoint(oz_start, oz_run, directory, monkeypatch):
    monkeypatch.setenv("OZ_DIRECTORY", directory)
    subscriber = oz_start("sub", "*.b", "--count", "1000", "--bus", "default")
    assert subscriber.ready_line().endswith(" on bus default, 0 peers")
    ended = oz_run("pub", "a.b", "x y", "--count", "1000", "--wait", "60", "--bus", "default")
    assert (ended.code, len(ended.stderr.splitlines())) == (0, 1)
    assert subscriber.end().lines == ["a.b x y"] * 1000


def test_the_last_values_come_first_to_whoever_asks(node, oz_start, oz_run, directory):
    first = node.subscribe("a.*")
    options = on_bus(directory, "-", "--last-value", "--wait", "60")
    feeder = oz_start("pub", *options, stdin=subprocess.PIPE)
    feeder.process.stdin.write(b"a.x 1\na.x 2\na.y 3\n")
    assert [first.receive(timeout=DEADLINE).payload for _ in range(3)] == ["1", "2", "3"]
    late = oz_run("sub", *on_bus(directory, "a.*", "--last-value", "--count", "2", "--timeout", "60"))
    assert late.lines == ["a.x 2", "a.y 3"]
    feeder.process.stdin.close()
    assert feeder.process.wait(60) == 0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "a b c"),
        (("--headers",), 'a {"user": "änn"} b c'),
        (("--headers", "--json"), '{"subject": "a", "payload": "b c", "headers": {"user": "änn"}}'),
    ],
)
def test_the_output_is_that_of_sockets(node, oz_start, directory, options, line):
    subscriber = oz_start("sub", *on_bus(directory, "a", *options, "--count", "1"))
    node.wait_for_subscribers("a", timeout=DEADLINE)
    node.publish("a", "b c", headers={"user": "änn"})
    assert subscriber.end().lines == [line]


VALUES = ["text", "a\nb", b"\xff", {"bid": 1.5, "raw": b"x"}, [1, None], 7]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ((), ["text", "a\\nb", "\\xff", '{"bid": 1.5, "raw": "x"}', "[1, null]", "7"]),
        (
            ("--payload", "json"),
            ['"text"', '"a\\nb"', '"/w=="', '{"bid": 1.5, "raw": "x"}', "[1, null]", "7"],
        ),
    ],
)
def test_values_are_shown_as_text_or_json(node, oz_start, directory, options, shown):
    subscriber = oz_start("sub", *on_bus(directory, "a", *options, "--count", str(len(VALUES))))
    node.wait_for_subscribers("a", timeout=DEADLINE)
    for value in VALUES:
        node.publish("a", value)
    assert subscriber.end().lines == [f"a {one}" for one in shown]


def test_json_output_keeps_values(node, oz_start, directory):
    subscriber = oz_start("sub", *on_bus(directory, "a", "--json", "--count", str(len(VALUES))))
    node.wait_for_subscribers("a", timeout=DEADLINE)
    for value in VALUES:
        node.publish("a", value)
    assert [json.loads(line) for line in subscriber.end().lines] == [
        {"subject": "a", "payload": "text"},
        {"subject": "a", "payload": "a\nb"},
        {"subject": "a", "payload_base64": "/w=="},
        {"subject": "a", "payload": {"bid": 1.5, "raw": "x"}},
        {"subject": "a", "payload": [1, None]},
        {"subject": "a", "payload": 7},
    ]


def test_what_is_published_as_json_is_a_value(node, oz_run, directory):
    subscription = node.subscribe("a.*")
    ended = publish(oz_run, directory, "-", "--payload", "json", "--header", "x=y", stdin=b'a.b {"c": [1]}\n')
    assert ended.code == 0, ended.stderr
    message = subscription.receive(timeout=DEADLINE)
    assert (message.subject, message.payload, message.headers) == ("a.b", {"c": [1]}, {"x": "y"})


def test_a_line_that_is_no_json_is_named(node, oz_run, directory):
    node.subscribe("a", handler=print)
    ended = publish(oz_run, directory, "-", "--payload", "json", stdin=b"a 1\na {\n")
    assert ended.code == 2
    assert ended.stderr.splitlines()[-1].startswith("oz pub: line 2: the payload '{' is not JSON: ")


def test_nobody_is_on_the_bus(oz_run, directory):
    ended = oz_run("pub", *on_bus(directory, "a", "b", "--wait", "0.1"))
    assert ended.code == 3
    assert ended.stderr.splitlines()[1] == "oz pub: no subscriber of a within 0.1 s; nothing was published"


def test_no_message_comes(oz_run, directory):
    ended = oz_run("sub", *on_bus(directory, "a", "--timeout", "0.1"))
    assert (ended.code, ended.stderr.splitlines()[1]) == (4, "oz sub: no message for 0.1 s")


@pytest.mark.parametrize(("signal", "code"), [("interrupt", 130), ("terminate", 143)])
def test_a_signal_ends_the_subscriber_with_a_goodbye(oz_start, directory, signal, code):
    events = queue.SimpleQueue()
    with library.Node(on_event=lambda event: events.put((event.about, event.kind))):
        subscriber = oz_start("sub", *on_bus(directory, "a", "--name", "reader"))
        subscriber.ready_line()
        assert events.get(timeout=DEADLINE) == ("reader", "peer_up")
        getattr(subscriber, signal)()
        ended = subscriber.end()
        assert (ended.code, ended.stderr) == (code, "")
        assert events.get(timeout=DEADLINE) == ("reader", "peer_left")


def test_a_signal_ends_the_publisher_with_a_goodbye(node, oz_start, directory):
    subscription = node.subscribe("a")
    publisher = oz_start("pub", *on_bus(directory, "a", "--wait", "60"), stdin=subprocess.PIPE)
    publisher.process.stdin.write(b"1\n")
    assert subscription.receive(timeout=DEADLINE).payload == "1"
    publisher.terminate()
    assert publisher.process.wait(DEADLINE) == 143
    until(lambda: not node.peers, DEADLINE)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "1 message from pricing did not arrive"),
        (12, "12 messages from pricing did not arrive"),
        (None, "an unknown number of messages from pricing did not arrive"),
    ],
)
def test_losses_are_reported(capsys, count, said):
    with click.Context(click.Command("sub"), info_name="sub") as ctx:
        say_loss(ctx, library.Event("loss", "pricing", "", count=count))
        say_loss(ctx, library.Event("slow_handler", "pricing", ""))
    assert capsys.readouterr().err == f"sub: {said}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("pub", "a", "b", "--connect", "udp://127.0.0.1:1", "--bus", "default"),
        ("pub", "a", "b", "--payload", "json"),
        ("pub", "a", "{", "--payload", "json", "--bus", "default"),
        ("pub", "_OZ.a", "b", "--bus", "default"),
        ("sub", "a", "--connect", "tcp://127.0.0.1", "--bus", "default"),
        ("sub", "a", "--filtering", "prefix", "--bus", "default"),
        ("sub", "a", "--payload", "json"),
        ("sub", "a", "--name", "", "--bus", "default"),
        ("sub", "_INBOX.>", "--bus", "default"),
    ],
)
def test_what_is_written_wrongly_exits_2(oz, directory, monkeypatch, arguments):
    monkeypatch.setenv("OZ_DIRECTORY", directory)
    result = oz(*arguments)
    assert result.exit_code == 2, result.stderr


@pytest.mark.parametrize("name", ["a.>", "b*", "a.b", "a/b", "a b", "a,b", "tcp:x", "*"])
@pytest.mark.parametrize("command", ["sub", "peers"])
def test_a_bus_name_with_a_wildcard_separator_or_blank_is_refused(oz, directory, monkeypatch, command, name):
    monkeypatch.setenv("OZ_DIRECTORY", directory)
    arguments = ("--bus", name, "b.>") if command == "sub" else (f"--bus={name}",)
    result = oz(command, *arguments)
    assert result.exit_code == 2
    assert f"--bus: {name!r}: " in result.stderr
    assert "letters, digits, _ and -" in result.stderr


def test_an_option_behind_bus_is_no_name(oz):
    assert oz("sub", "a.>", "--bus").exit_code == 2
