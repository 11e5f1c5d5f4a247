"""A slow subscriber among the nodes of 4 processes: the tools name it, with its pending messages."""

import json
import re
import signal
import urllib.request
from contextlib import ExitStack

import pytest

from contract.adapter import command
from contract.promises import promise
from support.scripts import started
from support.sizes import size
from support.waiting import DEADLINE, until

PUBLISHED = 2_000
PLACES = size("03", "01234")
"""Numbers of the nodes of a process."""

PROGRAM = """
import threading
number, directory, slow, places = sys.argv[1:]
options = NodeOptions(directory=directory, lost_after=600.0)
nodes = [api.node(f"node-{number}-{place}", bus="slow", options=options) for place in places]
def stop(message):
    threading.Event().wait()
for place, node in zip(places, nodes):
    is_slow = slow == "handler" and place == "3"
    if place == "3":
        node.subscribe("tick.*", stop if is_slow else lambda message: None)
for node in nodes:
    node.wait_ready(count=4 * len(places) - 1)
say("ready")
while line := sys.stdin.readline():
    for count in range(int(line)):
        nodes[0].publish("tick.a", count)
    nodes[0].flush()
    say("published")
"""


@pytest.fixture
def processes(program, directory, request):
    """Processes 0 to 3 with a node for each of PLACES, all ready; `node-2-3` is the slow one."""
    with ExitStack() as opened:
        made = [
            opened.enter_context(
                program(PROGRAM, number, directory, request.param if number == 2 else "none", PLACES)
            )
            for number in range(4)
        ]
        for process in made:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
        yield made
        made[2].send_signal(signal.SIGCONT)


def _publish(process):
    process.stdin.write(f"{PUBLISHED}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "published\n"


def _top(directory):
    """Return the row of each subscriber, as `oz top` prints it."""
    code, out, err = command("top", "--once", "--json", "--bus", "slow", "--directory", directory)
    assert code == 0, err
    return {row["node"]: row for row in json.loads(out)["subscribers"]}


def _metrics(url, name):
    """Return the values of a metric by peer, or else by node."""
    with urllib.request.urlopen(url, timeout=DEADLINE) as answer:
        text = answer.read().decode()
    found = {}
    for line in text.splitlines():
        if line.startswith(name + "{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            key = labels.get("peer", labels["node"])
            found[key] = found.get(key, 0) + float(line.rpartition(" ")[2])
    return found


@pytest.fixture
def exporter(directory):
    """URL of `oz metrics --listen`."""
    words = ["metrics", "--listen", "127.0.0.1:0", "--bus", "slow", "--directory", directory]
    with started("-m", "oz", *words) as process:
        while "metrics at" not in (line := process.stderr.readline()):
            assert line
        yield line.split()[-1]


@pytest.fixture
def page(directory):
    """URL of `oz explorer`."""
    pytest.importorskip("starlette", reason="without the extra explorer")
    words = ["explorer", "--listen", "127.0.0.1:0", "--bus", "slow", "--directory", directory]
    with started("-m", "oz", *words) as process:
        while "explorer at" not in (line := process.stderr.readline()):
            assert line
        yield line.split()[-1]


@promise("oz top and oz metrics name a node with a slow handler, with its pending messages.")
@pytest.mark.sized
@pytest.mark.parametrize("processes", ["handler"], indirect=True)
def test_slow_handler_is_named(processes, directory, exporter):
    _publish(processes[0])
    # The handler holds one message.
    truth = PUBLISHED - 1
    # Two samples, because a busy machine may deliver the last messages late.
    rows = until(lambda: (found := _top(directory))["node-2-3"]["pending"] >= 0.95 * truth and found)
    assert rows["node-2-3"]["pending"] <= 1.05 * truth
    assert [name for name, row in rows.items() if row["slow"]] == ["node-2-3"]
    pending = _metrics(exporter, "oz_subscription_pending_messages")
    assert max(pending, key=pending.get) == "node-2-3"
    assert abs(pending["node-2-3"] - truth) <= 0.05 * truth


@promise(
    "oz top and oz metrics name a node whose process is stopped, with the messages that wait at publishers."
)
@pytest.mark.sized
@pytest.mark.parametrize("processes", ["none"], indirect=True)
def test_stopped_process_is_named(processes, directory, exporter):
    processes[2].send_signal(signal.SIGSTOP)
    _publish(processes[0])
    rows = until(lambda: (found := _top(directory))["node-2-3"]["slow"] and found)
    assert abs(rows["node-2-3"]["pending"] - PUBLISHED) <= 0.05 * PUBLISHED
    assert rows["node-0-3"]["pending"] <= 0.05 * PUBLISHED
    pending = _metrics(exporter, "oz_link_pending_messages")
    assert max(pending, key=pending.get) == "node-2-3"
    assert abs(pending["node-2-3"] - PUBLISHED) <= 0.05 * PUBLISHED


@promise("oz explorer names a node whose process is stopped, with the messages that wait at publishers.")
@pytest.mark.sized
@pytest.mark.parametrize("processes", ["none"], indirect=True)
def test_explorer_names_a_stopped_process(processes, page):
    def subscribers():
        with urllib.request.urlopen(f"{page}api/bus", timeout=DEADLINE) as answer:
            return {row["node"]: row for row in json.load(answer)["subscribers"]}

    processes[2].send_signal(signal.SIGSTOP)
    _publish(processes[0])
    rows = until(lambda: (found := subscribers())["node-2-3"]["slow"] and found)
    assert abs(rows["node-2-3"]["pending"] - PUBLISHED) <= 0.05 * PUBLISHED
    assert rows["node-0-3"]["pending"] <= 0.05 * PUBLISHED
