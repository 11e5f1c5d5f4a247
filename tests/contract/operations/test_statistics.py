"""Statistics of nodes, and requests for the statistics of peers."""

import threading

import pytest

from contract.adapter import errors, security, write_keys
from contract.promises import promise
from support.waiting import DEADLINE, until


def _subscription(snapshot, pattern):
    return next(
        subscription for subscription in snapshot.subscriptions if subscription.patterns == (pattern,)
    )


@promise(
    "request_snapshots returns the statistics of each peer: a slow handler shows its messages and their age."
)
def test_peers_report_messages_that_wait_for_a_slow_handler(nodes):
    publisher, slow, quick = nodes.join("publisher", "slow", "quick")
    go_on, handled = threading.Event(), []
    slow.subscribe("tick.*", lambda message: go_on.wait(DEADLINE))
    quick.subscribe("tick.*", handled.append)
    publisher.wait_for_subscribers("tick.a", count=2)
    publisher.publish_many(("tick.a", number) for number in range(500))
    until(lambda: len(handled) == 500 and publisher.request_snapshots("slow")[0].pending == 499)
    found = {snapshot.name: snapshot for snapshot in publisher.request_snapshots()}
    go_on.set()
    assert set(found) == {"slow", "quick"}
    assert found["slow"].oldest > 0
    times = _subscription(found["slow"], "tick.*").handler
    assert (times.calls, times.running >= 0) == (0, True)
    assert (found["quick"].pending, found["quick"].counters["received"]) == (0, 500)


@promise("A snapshot shows the messages of each link that its subscriber has not received.")
def test_publisher_reports_pending_messages_of_each_link(nodes):
    publisher, reader = nodes.join("publisher", "reader")
    made = reader.subscribe("tick", ack="handled", group="workers")
    publisher.wait_ready(subscriber="tick")
    publisher.publish_many(("tick", number) for number in range(20))
    publisher.flush()
    until(lambda: made.pending == 20)

    def link():
        return next(link for link in publisher.snapshot().links if link.peer == "reader")

    until(lambda: link().pending == 0)
    assert (link().state, link().patterns, link().groups) == ("up", 1, {"workers": 20})
    assert made.receive_all(20) == list(range(20))
    made.unsubscribe()
    until(lambda: link().groups == {})


@promise(
    "A snapshot counts the messages that wait in a queue, and shows the age of the oldest; gaps do not count."
)
def test_a_queue_that_drops_shows_its_messages_and_their_age(nodes):
    publisher, reader = nodes.join("publisher", "reader")
    made = reader.subscribe("tick", overflow="drop_oldest", delivery={"max_pending": 3})
    publisher.wait_ready(subscriber="tick")
    publisher.publish_many(("tick", number) for number in range(20))
    until(lambda: reader.stats.received == 20)
    found = _subscription(reader.snapshot(), "tick")
    assert (found.pending, found.pending + found.dropped) == (made.pending, 20)
    assert found.oldest > 0


@promise("A node measures the times of handlers after its first snapshot.")
def test_times_of_handlers_are_measured_after_the_first_snapshot(nodes):
    publisher, worker = nodes.join("publisher", "worker")
    handled = []
    worker.subscribe("job", handled.append)
    publisher.wait_ready(subscriber="job")
    publisher.publish("job")
    until(lambda: len(handled) == 1)
    assert _subscription(worker.snapshot(), "job").handler.calls == 0
    publisher.publish("job")
    until(lambda: _subscription(worker.snapshot(), "job").handler.calls == 1)
    times = _subscription(worker.snapshot(), "job").handler
    assert 0 < times.longest == times.seconds
    assert times.running is None


@promise("request_snapshots raises NoResponders for a peer that is not up.")
def test_request_for_a_peer_that_is_not_up_fails(nodes):
    first, _ = nodes.join("first", "second")
    with pytest.raises(errors.NoResponders, match="absentee"):
        first.request_snapshots("second", "absentee")


@promise("With permissions, statistics need the permission to request _OZ.STATISTICS.")
def test_statistics_need_a_permission(nodes, tmp_path):
    keys = write_keys(tmp_path, "feed", "desk", "guest")
    file = tmp_path / "permissions.toml"
    file.write_text(
        f'default = "deny"\n[users.desk]\nkey = "{keys["desk"]}"\nrequest = {{ allow = ["_OZ.STATISTICS"] }}\n'
        f'[users.guest]\nkey = "{keys["guest"]}"\nrequest = {{ allow = ["svc.>"] }}\n'
    )
    nodes.node("feed", security=security(tmp_path, "feed", file))
    desk = nodes.node("desk", security=security(tmp_path, "desk"))
    guest = nodes.node("guest", security=security(tmp_path, "guest"))
    desk.wait_ready("feed", "guest")
    guest.wait_ready("feed")
    assert [snapshot.name for snapshot in desk.request_snapshots("feed")] == ["feed"]
    with pytest.raises(errors.PermissionDenied, match=r"'feed' denies.*_OZ\.STATISTICS.*guest"):
        guest.request_snapshots("feed")


@promise("is_healthy returns True for a running node, and False after close.")
def test_closed_node_is_not_healthy(nodes):
    node, _ = nodes.join("first", "second")
    assert node.is_healthy()
    node.close()
    assert not node.is_healthy()
