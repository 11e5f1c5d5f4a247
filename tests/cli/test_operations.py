"""`oz top`, `oz ping` and `oz metrics`."""

import json
import os
import pty
import re
import socket
import subprocess
import sys
from collections import Counter

import pytest

import oz
from contract.adapter import command
from oz.cli.subject_counts import OTHERS, SubjectCounts
from oz.node.bus_view import Sample, tables
from oz.node.snapshot import HandlerTimes, LinkStatus, Snapshot, SubscriptionStatus
from support.waiting import DEADLINE, until

OWN = "ff" * 16


def _snapshot(name, links=(), subscriptions=(), **changes):
    known = {
        "id": name * 32, "bus": "lan", "host": "h", "pid": 7, "kind": "node", "time": 0.0, "uptime": 2.0,
        "memory": 4096, "descriptors": 9, "counters": {}, "dropped": {}, "lost": {}, "unknown_losses": {},
        "omitted": 0,
    }  # fmt: skip
    return Snapshot(name=name, links=tuple(links), subscriptions=tuple(subscriptions), **known | changes)


def _link(peer, pending=0, oldest=None, state="up", dropped=None, groups=None):
    member = OWN if peer == "top" else peer * 32
    return LinkStatus(peer, member, state, 1, pending, 10 * pending, oldest, dropped or {}, groups or {})


def _subscription(pending=0, oldest=None, group=None, ack="received", running=None):
    return SubscriptionStatus(("a.>",), group, ack, pending, oldest, 0, HandlerTimes(0, 0.0, 0.0, running))


def test_subscriber_has_the_messages_of_all_its_publishers_and_its_own():
    sample = Sample(
        0.0,
        [
            _snapshot("a", [_link("c", 5, 0.5), _link("top", 9)]),
            _snapshot("b", [_link("c", 7, 2.0, state="down")]),
            _snapshot("c", subscriptions=[_subscription(3, 0.1, running=4.0)]),
        ],
    )
    (row,) = tables(sample, None, OWN)["subscribers"]
    assert (row["node"], row["pending"], row["pending_bytes"], row["oldest"]) == ("c", 15, 120, 2.0)
    assert (row["slow"], row["state"], row["handler_running"], row["patterns"]) == (
        True,
        "down",
        4.0,
        ["a.>"],
    )


def test_subscriber_that_does_not_answer_is_known_from_its_publishers():
    (row,) = tables(Sample(0.0, [_snapshot("a", [_link("c", 5, 3.0)])]), None, OWN)["subscribers"]
    assert (row["node"], row["pending"], row["slow"], row["patterns"]) == ("c", 5, True, [])


def test_rates_are_differences_of_two_samples():
    def sample(at, count):
        node = _snapshot(
            "a",
            [_link("c", dropped={"full": count})],
            counters={"received": 10 * count},
            lost={"full": count},
        )
        return Sample(at, [node])

    found = tables(sample(12.0, 7), sample(10.0, 3), OWN)
    assert found["nodes"][0]["in"] == 20.0
    assert found["subscribers"][0]["dropped_rate"] == 2.0
    assert found["subscribers"][0]["slow"]
    assert found["losses"] == [
        {"node": "a", "id": "a" * 32, "kind": "lost", "reason": "full", "count": 7, "rate": 2.0}
    ]


def test_restarted_node_has_no_negative_rate():
    before = Sample(0.0, [_snapshot("a", counters={"received": 10})])
    found = tables(Sample(1.0, [_snapshot("a", counters={"received": 4})]), before, OWN)
    assert found["nodes"][0]["in"] == 0.0


def test_group_counts_each_message_once():
    sample = Sample(
        0.0,
        [
            _snapshot("a", [_link("c", groups={"w": 4, "h": 6}), _link("d", groups={"w": 1})]),
            _snapshot(
                "c", subscriptions=[_subscription(10, group="w"), _subscription(6, group="h", ack="handled")]
            ),
        ],
    )
    found = tables(sample, None, OWN)["groups"]
    assert found == [{"group": "w", "members": 2, "pending": 15}, {"group": "h", "members": 1, "pending": 6}]


def test_subjects_are_bounded(monkeypatch):
    monkeypatch.setattr("oz.cli.subject_counts.MAX_SUBJECTS", 2)
    counts = SubjectCounts()
    for subject in ("a", "a", "b", "c", "d", "a"):
        counts._put(_Message(subject))
    assert counts.take(2.0, 10) == [
        {"subject": "a", "rate": 1.5, "bytes_rate": 3.0, "messages": 3},
        {"subject": OTHERS, "rate": 1.0, "bytes_rate": 2.0, "messages": 2},
        {"subject": "b", "rate": 0.5, "bytes_rate": 1.0, "messages": 1},
    ]
    assert counts.take(1.0, 10) == []


class _Message:
    payload = b"12"

    def __init__(self, subject):
        self.subject = subject


# commands


@pytest.fixture
def bus(directory):
    """Nodes `feed` and `desk` on a bus, and the options of a command that joins it."""
    options = oz.NodeOptions(directory=directory)
    with (
        oz.Node("feed", bus="ops", options=options) as feed,
        oz.Node("desk", bus="ops", options=options) as desk,
    ):
        feed.wait_ready("desk", timeout=DEADLINE)
        yield feed, desk, ("--bus", "ops", "--directory", directory)


def test_top_prints_nodes_and_their_subscriptions_and_keeps_rows_that_match_the_filter(bus):
    _, desk, joining = bus
    desk.subscribe("md.*.sap")
    code, out, _ = command("top", "--once", "--interval", "0.2", *joining)
    assert code == 0
    assert re.search(r"^feed +node ", out, re.MULTILINE)
    assert re.search(r"^desk .* up +md\.\*\.sap$", out, re.MULTILINE)
    code, out, _ = command("top", "--once", "--json", "--interval", "0.2", "--filter", "fee", *joining)
    assert (code, [row["node"] for row in json.loads(out)["nodes"]]) == (0, ["feed"])


def test_top_counts_the_messages_of_subjects(bus, signal_when, monkeypatch):
    feed, _, joining = bus
    seen = Counter()

    def count(line):
        seen.update({row["subject"]: row["messages"] for row in json.loads(line)["subjects"]})

    def has_counted():
        feed.wait_for_subscribers("md.a", timeout=DEADLINE)
        feed.publish_many(("md.a", "x") for _ in range(5))
        feed.publish("md.b", "x")
        return until(lambda: seen.total() >= 6)

    monkeypatch.setattr("oz.cli.top.write_line", count)
    signal_when(has_counted)
    command("top", "--json", "--pattern", "md.>", "--interval", "0.2", *joining)
    assert seen == {"md.a": 5, "md.b": 1}


def test_top_without_a_node_exits_with_3(directory):
    code, _, err = command("top", "--once", "--interval", "0.2", "--bus", "ops", "--directory", directory)
    assert (code, "no node on bus ops" in err) == (3, True)


def test_top_names_the_endpoint_of_a_node_that_does_not_answer(directory):
    joining = "--bus", "ops", "--directory", directory
    with oz.Node(bus="ops", options=oz.NodeOptions(directory=directory)) as node:
        endpoint = node.endpoint
    # As with a stopped process, connections are accepted and nothing answers.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(endpoint.removeprefix("ipc://"))
        listener.listen()
        code, out, err = command("top", "--once", "--json", "--interval", "0.2", *joining)
    assert (code, json.loads(out)["unanswered"]) == (3, [endpoint])
    assert f"no node on bus ops; no answer from {endpoint}" in err


def test_top_shows_a_screen_that_keys_change(bus):
    _, _, joining = bus
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "oz", "top", "--interval", "0.2", *joining],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "110", "LINES": "20"},
    )
    os.close(theirs)
    shown = b""
    for wanted, key in ((b"SUBSCRIBERS", b"1"), (b"NODES", b"p"), (b"PAUSED", b"/"), (b"/_", b"x\x1bq")):
        while wanted not in shown:
            shown += os.read(ours, 65_536)
        os.write(ours, key)
        shown = b""
    try:
        while os.read(ours, 65_536):
            pass
    except OSError:
        pass
    os.close(ours)
    assert process.wait(60) == 0


@pytest.mark.parametrize(("target", "who"), [("desk", "desk"), ("svc.health", "desk")])
def test_ping_shows_the_time_of_each_answer(bus, target, who):
    _, desk, joining = bus
    desk.subscribe("svc.health", lambda message: "ok")
    code, out, err = command("ping", target, "--count", "2", "--interval", "0", "--timeout", "60", *joining)
    assert code == 0
    assert re.findall(r"^reply from (\w+): number=(\d) time=[\d.]+ ms$", out, re.MULTILINE) == [
        (who, "1"),
        (who, "2"),
    ]
    assert "2 sent, 2 answered" in err


def test_ping_without_a_responder_exits_with_3_and_without_an_answer_with_4(bus):
    _, desk, joining = bus
    assert command("ping", "absent", "--count", "1", "--wait", "0.1", *joining)[0] == 3
    desk.subscribe("svc.silent", lambda message: None)
    code, out, _ = command("ping", "svc.silent", "--count", "1", "--timeout", "0.1", "--json", *joining)
    assert code == 4
    assert json.loads(out) == {"number": 1, "from": "svc.silent", "seconds": None}


def test_metrics_of_all_nodes_are_printed(bus):
    code, out, _ = command("metrics", *bus[2])
    assert code == 0
    assert set(re.findall(r'^oz_peers\{bus="ops",node="(\w+)"', out, re.MULTILINE)) == {"feed", "desk"}
    assert 'oz_nodes_unanswered{bus="ops"} 0' in out


def test_malformed_address_is_refused(bus, directory):
    code, _, err = command("metrics", "--listen", "nowhere", *bus[2])
    assert (code, "--listen nowhere: give HOST:PORT" in err) == (2, True)
    code, _, err = command("nameserver", "--bind", f"ipc://{directory}/ns", "--metrics", "nowhere")
    assert (code, "--metrics: 'nowhere': give HOST:PORT" in err) == (2, True)
