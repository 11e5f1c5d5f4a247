"""A slow subscriber among the nodes of a bus: the tools name it, with its pending messages."""

import json
import re
import signal
import threading

import pytest

from contract.adapter import Api, NodeOptions, command, explorer_page
from contract.promises import promise
from support.waiting import until

PUBLISHED = 2_000
TOLERANCE = 0.05 * PUBLISHED

PROGRAM = """
node = api.node("stopped", bus="slow", options=NodeOptions(directory=sys.argv[1], lost_after=600.0))
node.subscribe("tick.*", lambda message: None)
node.wait_ready(count=3)
say("ready")
sys.stdin.readline()
"""


@pytest.fixture
def scene(program, directory):
    """Node that publishes, a node that handles messages, a node whose handler blocks, and a node in a process."""
    over = threading.Event()
    options = NodeOptions(directory=directory, lost_after=600.0)
    with program(PROGRAM, directory) as process, Api("sync") as api:
        feed, quick, slow = (
            api.node(name, bus="slow", options=options) for name in ("feed", "quick", "slow")
        )
        quick.subscribe("tick.*", lambda message: None)
        slow.subscribe("tick.*", lambda message: over.wait() and None)
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        for node in (feed, quick, slow):
            node.wait_ready(count=3)
        yield feed, process
        process.send_signal(signal.SIGCONT)
        over.set()


def _publish(feed):
    feed.publish_many(("tick.a", number) for number in range(PUBLISHED))
    feed.flush()


def _top(directory):
    """Return the row of each subscriber, and the nodes without an answer, as `oz top` prints them."""
    code, out, err = command("top", "--once", "--json", "--bus", "slow", "--directory", directory)
    assert code == 0, err
    found = json.loads(out)
    return {row["node"]: row for row in found["subscribers"]}, found["unanswered"]


def _metrics(directory, name):
    """Return the values of a metric by peer, or else by node, as `oz metrics` prints them."""
    code, out, err = command("metrics", "--bus", "slow", "--directory", directory)
    assert code == 0, err
    found = {}
    for line in out.splitlines():
        if line.startswith(name + "{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            key = labels.get("peer", labels["node"])
            found[key] = found.get(key, 0) + float(line.rpartition(" ")[2])
    return found


@promise("oz top and oz metrics name a node with a slow handler, with its pending messages.")
def test_slow_handler_is_named(scene, directory):
    _publish(scene[0])
    # The handler holds one message. A busy machine may deliver the last messages late.
    rows = until(lambda: (found := _top(directory)[0])["slow"]["pending"] == PUBLISHED - 1 and found)
    assert [name for name, row in rows.items() if row["slow"]] == ["slow"]
    pending = _metrics(directory, "oz_subscription_pending_messages")
    assert (max(pending, key=pending.get), pending["slow"]) == ("slow", PUBLISHED - 1)


@promise(
    "oz top and oz metrics name a node whose process is stopped, with the messages that wait at publishers."
)
def test_stopped_process_is_named(scene, directory):
    feed, process = scene
    process.send_signal(signal.SIGSTOP)
    _publish(feed)
    rows, unanswered = until(lambda: (found := _top(directory))[0]["stopped"]["slow"] and found)
    assert unanswered == ["stopped"]
    assert abs(rows["stopped"]["pending"] - PUBLISHED) <= TOLERANCE
    assert rows["quick"]["pending"] <= TOLERANCE
    pending = _metrics(directory, "oz_link_pending_messages")
    assert max(pending, key=pending.get) == "stopped"
    assert abs(pending["stopped"] - PUBLISHED) <= TOLERANCE


@pytest.mark.documents  # `tox -e docs` has the extra
@promise("oz explorer names a node whose process is stopped, with the messages that wait at publishers.")
def test_explorer_names_a_stopped_process(scene, directory):
    pytest.importorskip("starlette", reason="without the extra explorer")
    feed, process = scene
    process.send_signal(signal.SIGSTOP)
    _publish(feed)
    with explorer_page("slow", directory) as read:

        def subscribers():
            return {row["node"]: row for row in json.loads(read("api/bus"))["subscribers"]}

        rows = until(lambda: (found := subscribers()).get("stopped", {"slow": False})["slow"] and found)
    assert abs(rows["stopped"]["pending"] - PUBLISHED) <= TOLERANCE
    assert rows["quick"]["pending"] <= TOLERANCE
