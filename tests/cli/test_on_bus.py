"""`oz pub`, `oz sub` and `oz peers` on a bus. The other side is a node of the library."""

import json
import os
import queue
import signal
import socket
import tempfile
import time

import click
import pytest

import oz as library
from oz.cli.sub import print_loss
from support.cases import each
from support.node_commands import DEADLINE, on_bus
from support.waiting import Thread


@pytest.fixture
def node(directory):
    with library.Node("tester") as opened:
        yield opened


@pytest.fixture
def sub(node, oz_run, directory):
    """Function that runs `oz sub` while the node publishes values on `a`."""

    def run(*arguments, values, **options):
        def publish():
            node.wait_for_subscribers("a", timeout=DEADLINE)
            for value in values:
                node.publish("a", value, **options)

        publishing = Thread(publish)
        ended = oz_run("sub", *on_bus(directory, "a", *arguments, "--count", str(len(values))))
        publishing.outcome()
        return ended.lines

    return run


def pub(oz_run, directory, *arguments, stdin=None):
    return oz_run("pub", *on_bus(directory, *arguments, "--wait", "60"), stdin=stdin)


VALUES = ["text", "a\nb", b"\xff", {"bid": 1.5, "raw": b"x"}, [1, None], 7]


def test_values_are_printed_as_text_or_json(sub):
    shown = ["text", "a\\nb", "\\xff", '{"bid": 1.5, "raw": "x"}', "[1, null]", "7"]
    assert sub(values=VALUES) == [f"a {item}" for item in shown]
    shown[:3] = '"text"', '"a\\nb"', '"/w=="'
    assert sub("--payload", "json", values=VALUES) == [f"a {item}" for item in shown]
    payloads = [{"payload": "text"}, {"payload": "a\nb"}, {"payload_base64": "/w=="}]
    payloads += [{"payload": value} for value in ({"bid": 1.5, "raw": "x"}, [1, None], 7)]
    assert [json.loads(line) for line in sub("--json", values=VALUES)] == [
        {"subject": "a", **payload} for payload in payloads
    ]


def test_pub_sends_json_as_a_value(node, oz_run, directory):
    subscription = node.subscribe("a.*")
    ended = pub(oz_run, directory, "-", "--payload", "json", "--header", "x=y", stdin=b'a.b {"c": [1]}\n')
    assert ended.code == 0, ended.stderr
    message = subscription.receive(timeout=DEADLINE)
    assert (message.subject, message.payload, message.headers) == ("a.b", {"c": [1]}, {"x": "y"})


def test_wrong_lines_and_reserved_subjects_are_refused(node, oz_run, directory):
    node.subscribe("a", handler=print)
    ended = pub(oz_run, directory, "-", "--payload", "json", stdin=b"a 1\na {\n")
    assert ended.code == 2
    assert ended.stderr.splitlines()[-1].startswith("oz pub: line 2: the payload '{' is not JSON: ")
    assert pub(oz_run, directory, "_OZ.a", "b").code == 2


def test_an_empty_bus_has_exit_codes(oz_run, directory):
    ended = oz_run("pub", *on_bus(directory, "a", "b", "--wait", "0.1"))
    assert ended.code == 3
    assert ended.stderr.splitlines()[1].startswith(
        "oz pub: no subscriber of a within 0.1 s; nothing was published"
    )
    ended = oz_run("sub", *on_bus(directory, "a", "--timeout", "0.1"))
    assert ended.code == 4
    assert ended.stderr.splitlines()[1].startswith("oz sub: no message for 0.1 s; ")
    ended = oz_run("peers", *on_bus(directory, "--json"))
    assert (ended.code, ended.stdout) == (3, b"[]\n")
    assert ended.stderr.splitlines()[-1].startswith(
        f"oz peers: no node on bus default: this command uses the directory {directory}. --connect names"
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_sub_and_its_node_leaves(oz_run, directory, signal_when, number, code):
    events = queue.SimpleQueue()
    with library.Node(on_event=lambda event: events.put((event.about, event.kind))) as node:
        signal_when(lambda: node.has_subscribers("a") and node.peers, number)
        ended = oz_run("sub", *on_bus(directory, "a", "--name", "reader"))
        assert ended.code == code
        assert [events.get(timeout=DEADLINE) for _ in range(2)] == [
            ("reader", "peer_up"),
            ("reader", "peer_left"),
        ]


def test_peers_lists_the_nodes_of_this_host(oz_run, directory):
    with library.Node("b\u00e4r"), library.Node("ann") as ann:
        ann.wait_ready(count=1, timeout=DEADLINE)
        ended = oz_run("peers", *on_bus(directory, "--timeout", "60"))
    assert ended.code == 0
    head, *rows = (line.split() for line in ended.lines)
    assert head == ["name", "host", "pid", "endpoints"]
    assert [row[:3] for row in rows] == [
        [item, socket.gethostname(), str(os.getpid())] for item in ("ann", "bär")
    ]
    assert all(row[-1].startswith(f"ipc://{directory}/") for row in rows)


def test_peers_as_json_have_all_fields(oz_run, directory):
    with library.Node("ann", bus="b") as node:
        ended = oz_run("peers", *on_bus(directory, "--json", "--bus", "b", "--timeout", "60"))
        (shown,) = json.loads(ended.stdout)
    assert 0 <= time.time() - shown.pop("up_since") < DEADLINE
    assert len(shown.pop("id")) == 32
    assert shown == {
        "name": "ann",
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "endpoints": list(node.endpoints),
    }


def test_peers_finds_all_nodes_through_one_endpoint(oz_run, directory):
    with (
        tempfile.TemporaryDirectory(prefix="oz", dir="/tmp") as elsewhere,
        library.Node("one", bind="tcp://127.0.0.1:*") as one,
        library.Node("two", bind="tcp://127.0.0.1:*") as two,
    ):
        one.wait_ready("two", timeout=DEADLINE)
        two.wait_ready("one", timeout=DEADLINE)
        places = ("--connect", one.endpoint, "--directory", elsewhere)
        ended = oz_run("peers", *places, "--json", "--timeout", "60")
        assert [load["name"] for load in json.loads(ended.stdout)] == ["one", "two"]


@pytest.mark.parametrize("as_json", [False, True])
def test_watch_prints_nodes_that_join_and_leave(oz_run, node, directory, signal_when, as_json):
    def has_seen_them():
        node.wait_ready(count=1, timeout=DEADLINE)
        with library.Node("ann") as ann:
            ann.wait_ready(count=2, timeout=DEADLINE)
        with library.Node("bob") as bob:
            return bob.wait_ready(count=2, timeout=DEADLINE) is None

    signal_when(has_seen_them)
    ended = oz_run("peers", *on_bus(directory, "--watch", *(["--json"] if as_json else [])))
    assert ended.code == 130
    shown = [json.loads(line) for line in ended.lines] if as_json else []
    found = [(item["event"], item["name"]) for item in shown] or [line.split()[:2] for line in ended.lines]
    assert [tuple(item) for item in found if "ann" in item] == [("up", "ann"), ("left", "ann")]


@each(
    "count, text",
    [
        (1, "1 message from pricing did not arrive"),
        (12, "12 messages from pricing did not arrive"),
        (None, "an unknown number of messages from pricing did not arrive"),
    ],
)
def test_loss_on_a_bus_is_reported(capsys, count, text):
    with click.Context(click.Command("sub"), info_name="sub") as ctx:
        print_loss(ctx, library.Event("loss", "pricing", "", count=count))
        print_loss(ctx, library.Event("slow_handler", "pricing", ""))
    assert capsys.readouterr().err == f"sub: {text}\n"
