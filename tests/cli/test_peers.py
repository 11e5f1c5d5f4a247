"""`oz peers`: who is on the bus, through name servers and by joining."""

import json
import os
import queue
import socket

import pytest

import oz as library
from oz.services.nameserver import NameServer
from support.node_commands import DEADLINE, Lines, on_bus
from support.waiting import Thread, until


@pytest.fixture
def nameserver():
    with NameServer("tcp://127.0.0.1:*") as server:
        running = Thread(server.run)
        yield server
        server.stop()
        running.outcome()


@pytest.fixture
def dead():
    """An endpoint where nobody listens, and nobody else will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{taken.getsockname()[1]}"


def test_it_shows_the_nodes_of_this_host(oz_run, directory):
    with library.Node("b\u00e4r", directory=directory), library.Node("ann", directory=directory):
        ended = oz_run("peers", *on_bus(directory, "--timeout", "60"))
    assert ended.code == 0
    head, *rows = (line.split() for line in ended.lines)
    assert head == ["name", "host", "pid", "age", "where"]
    assert [row[:3] for row in rows] == [
        [one, socket.gethostname(), str(os.getpid())] for one in ("ann", "bär")
    ]
    assert all(row[-1].startswith(f"ipc://{directory}/") for row in rows)


def test_json_has_all_that_is_known(oz_run, directory):
    with library.Node("ann", bus="b", directory=directory) as node:
        ended = oz_run("peers", *on_bus(directory, "--json", "--bus", "b", "--timeout", "60"))
        (shown,) = json.loads(ended.stdout)
    known = node.announcement
    assert shown.pop("age") >= 0
    assert shown == {
        "name": "ann",
        "bus": "b",
        "host": known.host,
        "pid": known.pid,
        "endpoints": [],
        "local_endpoint": known.local_endpoint,
        "version": known.version,
        "uuid": known.uuid.hex(),
        "started_ns": known.started_ns,
    }


def test_a_name_server_is_asked_without_joining(oz, nameserver, directory):
    seen = queue.SimpleQueue()
    place = {"nameserver": nameserver.endpoint, "directory": directory}
    with (
        library.Node("one", bus="a", on_peer=lambda *told: seen.put(told), **place) as one,
        library.Node("two", bus="b", **place),
    ):
        result = oz("peers", "--nameserver", nameserver.endpoint, "--bus", "a", "--json", "--timeout", "60")
        assert result.exit_code == 0
        assert result.stderr == ""
        assert [shown["endpoints"] for shown in json.loads(result.stdout)] == [
            list(one.announcement.endpoints)
        ]
        result = oz("peers", "--nameserver", nameserver.endpoint, "--all", "--timeout", "60")
        assert [line.split()[:2] for line in result.stdout.splitlines()] == [
            ["bus", "name"],
            ["a", "one"],
            ["b", "two"],
        ]
    assert seen.empty()


def test_one_name_server_that_answers_is_enough(oz, nameserver, dead, directory):
    with library.Node("one", nameserver=nameserver.endpoint, directory=directory):
        places = ("--nameserver", dead, "--nameserver", nameserver.endpoint)
        result = oz("peers", *places, "--timeout", "6")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)
    assert result.stderr == f"oz peers: warning: the name server at {dead} does not answer\n"


def test_without_an_answer_it_says_what_was_tried(oz, dead):
    result = oz("peers", "--nameserver", dead, "--timeout", "0.2")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"oz peers: no name server answered within 0.2 s; tried {dead}.")


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
    with library.Node("ann", directory=directory):
        until(lambda: len(lines.seen) == 1, DEADLINE)
    until(lambda: len(lines.seen) == 2, DEADLINE)
    assert [line.split()[:2] for line in lines.seen] == [["up", "ann"], ["left", "ann"]]
    watching.interrupt()
    assert watching.process.wait(DEADLINE) == 130


def test_watch_as_json_is_an_object_a_line(oz_start, directory):
    with library.Node("ann", directory=directory):
        watching = oz_start("peers", *on_bus(directory, "--watch", "--json"))
        shown = json.loads(watching.stdout_line())
        assert (shown["event"], shown["name"]) == ("up", "ann")
        watching.terminate()
        assert watching.process.wait(DEADLINE) == 143


def test_other_buses_are_known_to_name_servers_only(oz, directory):
    assert oz("peers", *on_bus(directory, "--all")).exit_code == 2
