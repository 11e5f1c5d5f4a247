"""Subjects that begin with an underscore, and the advisories among them."""

import logging
import threading
import time
from unittest.mock import patch

import pytest

import oz
from oz.transport.node import local_directory
from support.inside import engine_of
from support.waiting import DEADLINE, until

ADVISORIES = "_OZ.ADVISORY.>"


def elsewhere(*arguments, **options):
    """Make a node of another host, as far as nodes can tell."""
    with patch.object(local_directory, "host_id", lambda _: b"another host"):
        return oz.Node(*arguments, **options)


def test_local_subjects_stay_on_the_host(make, met, collected, nameserver):
    options = {"nameserver": nameserver.endpoint}
    here, near = make("here", **options), make("near", **options)
    far = make("far", kind=elsewhere, **options)
    own, close_by, away = collected(), collected(), collected()
    for node, got in ((here, own), (near, close_by), (far, away)):
        node.subscribe("_LOCAL.>", handler=got)
        node.subscribe("a", handler=got)
    met(here, near, far)
    for number in range(10):
        here.publish("_LOCAL.x", number)
    here.publish("a", "end")
    far.publish("_LOCAL.x", "far away")
    far.publish("a", "end")
    for got in (own, close_by):
        assert sorted(map(str, got.wait(12))) == [*map(str, range(10)), "end", "end"]
    assert sorted(away.wait(3)) == ["end", "end", "far away"]


def test_requests_on_local_subjects_are_answered_on_the_host_only(make, met, nameserver):
    options = {"nameserver": nameserver.endpoint}
    here, near = make("here", **options), make("near", **options)
    far = make("far", kind=elsewhere, **options)
    near.subscribe("_LOCAL.svc", handler=lambda message: message.reply("near"))
    met(here, near, far)
    assert here.request("_LOCAL.svc", timeout=DEADLINE).payload == "near"
    with pytest.raises(oz.NoResponders):
        far.request("_LOCAL.svc", timeout=DEADLINE)


def test_wildcards_pass_by_subjects_with_an_underscore(make, met, collected):
    here, there = make("here"), make("there")
    got, local = collected(), collected()
    there.subscribe(">", handler=lambda message: got.append(str(message.subject)))
    there.subscribe("*.x", handler=lambda message: got.append(str(message.subject)))
    there.subscribe("_LOCAL.*", handler=local)
    there.subscribe("svc", handler=lambda message: message.reply(1))
    met(here, there)
    here.publish("_LOCAL.x", 1)
    here.request("svc", timeout=DEADLINE)
    there.request("svc", timeout=DEADLINE)
    here.publish("_PRIVATE.x", 1)
    here.publish("a.x", 1)
    until(lambda: got.count("a.x") == 2)
    assert set(got) == {"svc", "a.x"}
    assert local.wait(1) == [1]


def test_other_underscore_subjects_are_free_in_the_nats_dialect(make, collected):
    node = make("node")
    got = collected()
    node.subscribe("_PRIVATE.*", handler=got)
    node.wait_ready(DEADLINE)
    node.publish("_PRIVATE.x", 1)
    assert got.wait(1) == [1]


@pytest.mark.parametrize("subject", ["_OZ.x", "_OZ.ADVISORY.INFO.PEER_UP", b"_OZ.PEER.x", "_OZ"])
def test_applications_cannot_publish_what_is_ozs_own(make, subject):
    node = make("node")
    with pytest.raises(oz.SubjectError, match="published by oz only"):
        node.publish(subject, 1)
    with pytest.raises(oz.SubjectError, match="published by oz only"):
        node.request(subject, 1)


@pytest.mark.parametrize(
    "pattern",
    [
        oz.compile(b"_", "zmq"),
        oz.compile(b"_IN", "zmq"),
        oz.compile(b"_O", "zmq"),
        "_INBOX.>",
        "_INBOX.*.1",
        "_INBOX",
        "_OZ.>",
        "_OZ.PEER.*",
        "_OZ.*.INFO",
        ["a", "_INBOX.x"],
    ],
)
def test_applications_cannot_listen_in_on_inboxes_and_nodes(make, pattern):
    with pytest.raises(oz.PatternError):
        make("node").subscribe(pattern)


@pytest.mark.parametrize("pattern", [b"", ""])
def test_prefixes_do_not_reach_inboxes_either(make, met, pattern):
    here, there = make("here"), make("there")
    here.subscribe("svc", handler=lambda message: message.reply(1))
    got = []
    there.subscribe(pattern, handler=lambda message: got.append(message.subject))
    met(here, there)
    there.request("svc", timeout=DEADLINE)
    here.publish("a", 1)
    until(lambda: "a" in got)
    assert sorted(got) == ["a", "svc"]


def test_the_rv_dialect_refuses_other_underscore_subjects(make, collected):
    node = make("node", dialect="rv")
    got = collected()
    node.subscribe("_LOCAL.>", handler=got)
    node.wait_ready(DEADLINE)
    node.publish("_LOCAL.A", 1)
    assert got.wait(1) == [1]
    with pytest.raises(oz.SubjectError):
        node.publish("_RV.INFO.X", 1)
    with pytest.raises(oz.SubjectError):
        node.publish("_PRIVATE", 1)
    node.subscribe("SVC", handler=lambda message: message.reply(2))
    assert node.request("SVC", timeout=DEADLINE).payload == 2


# advisories ----------------------------------------------------------------------------------------------


@pytest.fixture
def advised():
    """Gather a node's advisories by kind."""

    def advised(node, pattern=ADVISORIES):
        seen = {}
        node.subscribe(pattern, handler=lambda one: seen.setdefault(one.payload.kind, []).append(one))
        return seen

    return advised


def only(seen, kind):
    until(lambda: seen.get(kind))
    message = seen[kind][0]
    assert message.subject == message.payload.subject
    return message.payload


def test_peers_are_told_of(make, spawn, advised):
    node = make("node")
    seen = advised(node)
    leaves, dies = spawn("leaves"), spawn("dies")
    until(lambda: len(seen.get("peer_up", ())) == 2)
    leaves.ask("close")
    dies.kill()
    assert only(seen, "peer_left").about == "leaves"
    lost = only(seen, "peer_lost")
    assert (lost.about, lost.severity, lost.subject) == ("dies", "warning", "_OZ.ADVISORY.WARN.PEER_LOST")
    assert seen["peer_up"][0].subject == "_OZ.ADVISORY.INFO.PEER_UP"


def test_advisories_are_had_by_class_and_by_receiving(make):
    node = make("node")
    warnings = node.subscribe("_OZ.ADVISORY.WARN.>")
    everything = node.subscribe(ADVISORIES)
    other = make("other")
    assert everything.receive(DEADLINE).payload.kind == "peer_up"
    other.close()
    assert everything.receive(DEADLINE).payload.kind == "peer_left"
    with pytest.raises(oz.Timeout):
        warnings.receive(0)


def test_advisories_stay_within_their_node(make, met, advised):
    node, other = make("node"), make("other")
    met(node, other)
    seen, elsewhere = advised(node), advised(other)

    def fail(_):
        raise ValueError("on purpose")

    node.subscribe("a", handler=fail)
    node.wait_ready(DEADLINE)
    node.publish("a")
    assert only(seen, "handler_failed").about == "a"
    node.publish("a")
    assert elsewhere == {}


def test_a_handler_that_fails_is_told_of_with_counts_not_too_often(make, advised):
    node = make("node")
    seen = advised(node)

    def fail(_):
        raise ValueError("on purpose")

    node.subscribe("a", handler=fail)
    node.wait_ready(DEADLINE)
    began = time.monotonic()
    for _ in range(100):
        node.publish("a")
    node.flush()
    until(lambda: sum(one.payload.count for one in seen.get("handler_failed", ())) == 100)
    assert len(seen["handler_failed"]) <= 2 + (time.monotonic() - began)
    first = seen["handler_failed"][0].payload
    assert (first.severity, first.subject) == ("error", "_OZ.ADVISORY.ERROR.HANDLER_FAILED")
    assert "ValueError" in first.text
    assert node.stats.failed == 100


def test_a_slow_handler_is_told_of(make, advised, collected):
    node = make("node")
    seen = advised(node)
    go = threading.Event()
    quick = collected()
    node.subscribe("a", handler=lambda _: go.wait(DEADLINE), max_pending=10, overflow="drop_oldest")
    node.subscribe("a", handler=quick)
    node.wait_ready(DEADLINE)
    for number in range(50):
        node.publish("a", number)
    node.flush()
    quick.wait(50)
    advisory = only(seen, "slow_consumer")
    assert advisory.severity == "warning"
    until(lambda: sum(one.payload.count for one in seen["slow_consumer"]) == node.stats.dropped >= 39)
    go.set()


def test_a_gap_is_told_of(make, spawn, met, advised):
    node, other = make("node"), make("other")
    seen = advised(node)
    node.subscribe("a", handler=print)
    met(node, other)
    engine_of(other).sockets.main.engine.report_loss(7)
    advisory = only(seen, "gap")
    assert (advisory.about, advisory.count, advisory.origin) == ("other", 7, advisory.origin)
    assert node.stats.lost == 7


def test_a_pattern_that_runs_out_of_time_is_told_of(make, advised):
    node = make("node")
    seen = advised(node)
    node.subscribe("(a|aa)+$", dialect="regex", handler=print)
    node.wait_ready(DEADLINE)
    node.publish("a" * 40 + "b")
    advisory = only(seen, "pattern_timeout")
    assert advisory.severity == "warning"


def test_name_servers_are_told_of(make, advised, free_port, serving):
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    node = make("node", nameserver=endpoint, join_timeout=0)
    seen = advised(node)
    with serving(endpoint):
        assert only(seen, "nameserver_found").about == endpoint
    lost = only(seen, "nameserver_lost")
    assert (lost.about, lost.severity) == (endpoint, "warning")


def test_a_malformed_subject_or_class_of_advisories_gets_nothing(make, advised, caplog):
    node = make("node")
    seen = advised(node, "_OZ.ADVISORY.ERROR.>")
    make("other")
    node.wait_for_peers("other", timeout=DEADLINE)
    with caplog.at_level(logging.CRITICAL, "oz"):
        node.wait_ready(DEADLINE)
    assert seen == {}


def test_advisories_are_asked_for_alone(make):
    node = make("node")
    with pytest.raises(ValueError, match="subscription of their own"):
        node.subscribe([ADVISORIES, "a"])


def test_an_advisory_cannot_be_answered_nor_requested(make):
    node = make("node")
    got = node.subscribe(ADVISORIES)
    make("other")
    with pytest.raises(oz.ReplyError):
        got.receive(DEADLINE).reply(1)


def test_unsubscribed_advisories_stop(make):
    node = make("node")
    got = node.subscribe(ADVISORIES)
    make("one")
    got.receive(DEADLINE)
    got.unsubscribe()
    make("two")
    node.wait_for_peers("two", timeout=DEADLINE)
    with pytest.raises(oz.ClosedError):
        got.receive(1)
