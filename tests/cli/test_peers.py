"""`oz peers`: the nodes of a bus."""

import json
import os
import socket
import tempfile
import time

import pytest

import oz as library
from support.node_commands import DEADLINE, Lines, on_bus
from support.waiting import until


def test_it_shows_the_nodes_of_this_host(oz_run, directory):
    with library.Node("b\u00e4r"), library.Node("ann") as ann:
        ann.wait_ready(count=1, timeout=DEADLINE)
        ended = oz_run("peers", *on_bus(directory, "--timeout", "60"))
    assert ended.code == 0
    head, *rows = (line.split() for line in ended.lines)
    assert head == ["name", "host", "pid", "up", "endpoints"]
    assert [row[:3] for row in rows] == [
        [one, socket.gethostname(), str(os.getpid())] for one in ("ann", "bär")
    ]
    assert all(row[-1].startswith(f"ipc://{directory}/") for row in rows)


def test_json_has_all_that_is_known(oz_run, directory):
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


def test_one_node_names_all_others(oz_run, directory):
    with (
        tempfile.TemporaryDirectory(prefix="oz", dir="/tmp") as elsewhere,
        library.Node("one", bind="tcp://127.0.0.1:*") as one,
        library.Node("two", bind="tcp://127.0.0.1:*") as two,
    ):
        one.wait_ready("two", timeout=DEADLINE)
        two.wait_ready("one", timeout=DEADLINE)
        places = ("--connect", one.endpoint, "--directory", elsewhere)
        ended = oz_run("peers", *places, "--json", "--timeout", "60")
        assert [one["name"] for one in json.loads(ended.stdout)] == ["one", "two"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_it_exits_3_when_nobody_is_there(oz, directory, options):
    result = oz("peers", *on_bus(directory, *options))
    assert result.exit_code == 3
    assert result.stdout == ("[]\n" if options else "")
    assert result.stderr.splitlines()[-1] == "oz peers: no node on bus default"


def test_watch_shows_who_comes_and_goes(oz_start, directory):
    watching = oz_start("peers", *on_bus(directory, "--watch"))
    watching.ready_line()
    lines = Lines(watching.process.stdout)
    with library.Node("ann"):
        until(lambda: len(lines.seen) == 1, DEADLINE)
    until(lambda: len(lines.seen) == 2, DEADLINE)
    assert [line.split()[:2] for line in lines.seen] == [["up", "ann"], ["left", "ann"]]
    watching.interrupt()
    assert watching.process.wait(DEADLINE) == 130


def test_watch_as_json_is_an_object_a_line(oz_start, directory):
    with library.Node("ann"):
        watching = oz_start("peers", *on_bus(directory, "--watch", "--json"))
        shown = json.loads(watching.stdout_line())
        assert (shown["event"], shown["name"]) == ("up", "ann")
        watching.terminate()
        assert watching.process.wait(DEADLINE) == 143
