"""`oz trace`: recipients, groups, permissions and forwarders of a message."""

import asyncio
import json
import threading

import msgpack
import pytest
import zmq

import oz
import oz.asyncio
from contract.adapter import command
from oz.journal import Journal, Recorder
from oz.node.trace import HEADER, MAX_REPORTS, TRACE, Traces
from oz.services.bridge import Forwarder
from services.buses.conftest import running
from support.keyring import Keyring
from support.waiting import DEADLINE, Thread, until


@pytest.fixture
def join(directory):
    """Return a factory of nodes that are closed at the end."""
    made = []

    def joined(name, bus="lan", **options):
        made.append(oz.Node(name, bus=bus, options=oz.NodeOptions(directory=directory), **options))
        return made[-1]

    yield joined
    for node in made:
        node.close(timeout=0)


@pytest.fixture
def trace(directory):
    """Run `oz trace` on the bus `lan`; return the exit code and the output."""

    def run(*arguments):
        joining = ("--bus", "lan", "--directory", directory, "--timeout", str(DEADLINE))
        code, out, err = command("trace", *arguments, *joining)
        assert "Traceback" not in err
        run.errors = err
        return code, out

    return run


def ready(node, *others):
    node.wait_ready(*(other.name for other in others), timeout=DEADLINE)


def test_answer_names_the_pattern_and_the_prefix_without_sending(join, trace):
    desk, other = join("desk"), join("other")
    received = desk.subscribe("md.*.dax")
    other.subscribe("md.x.sap")
    ready(desk, other)
    code, out = trace("md.x.dax")
    assert code == 0
    assert "desk\n   └─ md.*.dax (nats, prefix md.): receives" in out
    assert "other" not in out
    with pytest.raises(oz.Timeout):
        received.receive(timeout=0)


def test_subject_without_a_subscription_exits_with_3(join, trace):
    join("desk").subscribe("md.>")
    assert trace("other")[0] == 3


def test_marked_message_is_reported_with_times(join, trace):
    handled = []
    desk, queue = join("desk"), join("queue")
    desk.subscribe("order.*", lambda message: handled.append(message.payload))
    received = queue.subscribe("order.new")
    ready(desk, queue)
    code, out = trace("order.new", "--send", "text", "--json")
    assert code == 0
    assert (handled, received.receive(timeout=DEADLINE).payload) == (["text"], "text")
    hops = {hop["name"]: hop["reports"] for hop in json.loads(out)["hops"]}
    arrival, call = sorted(hops["desk"], key=lambda report: "handled" in report)
    assert 0 <= arrival["received"] <= call["began"] <= call["handled"]
    assert call["patterns"] == ["order.*"]
    assert [sorted(report) for report in hops["queue"]] == [["group", "patterns", "received"]]


def test_report_of_an_inline_handler_and_of_a_coroutine(directory, join, trace):
    join("inline").subscribe("a.b", lambda message: None, delivery=oz.Delivery(inline=True))
    end, is_ready = threading.Event(), threading.Event()

    async def serve():
        async def handle(message):
            await asyncio.sleep(0)

        async with oz.asyncio.Node("loop", bus="lan", options=oz.NodeOptions(directory=directory)) as node:
            node.subscribe("a.*", handle)
            await node.wait_ready("inline", timeout=DEADLINE)
            is_ready.set()
            await asyncio.to_thread(end.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert is_ready.wait(DEADLINE)
        hops = json.loads(trace("a.b", "--send", "", "--json")[1])["hops"]
    finally:
        end.set()
        thread.join()
    assert {hop["name"]: sum("handled" in report for report in hop["reports"]) for hop in hops} == {
        "inline": 1,
        "loop": 1,
    }


def test_member_of_a_group_that_receives_the_message_is_named(join, trace):
    counts = {"one": 0, "two": 0}

    def count(name):
        return lambda message: counts.update({name: counts[name] + 1})

    one, two = join("one"), join("two")
    for node in (one, two):
        node.subscribe("job.*", count(node.name), group="workers")
    ready(one, two)
    _, dry = trace("job.1")
    assert dry.count("group workers, picked") == dry.count("group workers, not picked") == 1
    assert counts == {"one": 0, "two": 0}
    _, out = trace("job.1", "--send", "")
    (picked,) = [name for name, number in counts.items() if number]
    branch = out[out.index(f"─ {picked}\n") :]
    assert branch.index("group workers, picked") < branch.index("handler of job.*")
    assert out.count("handler of job.*") == 1


def test_trace_crosses_a_forwarder(directory, join, trace):
    near, far = join("near"), join("far", bus="wan")
    for node in (near, far):
        node.subscribe("md.>", lambda message: None)
    legs = [{"bus": bus, "directory": directory} for bus in ("lan", "wan")]
    with running(Forwarder(legs, name="between")):
        near.wait_ready("between", timeout=DEADLINE)
        until(lambda: "to bus wan" in trace("md.dax")[1])
        code, out = trace("md.dax", "--send", "", "--json")
        assert code == 0
        hops = {hop["name"]: hop for hop in json.loads(out)["hops"]}
        assert (hops["between"]["kind"], len(hops["between"]["reports"])) == ("forwarder", 1)
        (wan,) = hops["between"]["buses"]
        assert [recipient["name"] for recipient in wan["recipients"]] == ["far"]
        (found,) = wan["hops"]
        assert (found["name"], found["subscriptions"][0]["pattern"]) == ("far", "md.>")
        assert sum("handled" in report for report in found["reports"]) == 1


def test_parallel_forwarders_show_each_path_and_the_forwarder_of_a_group(directory, join, trace):
    near, far = join("near"), join("far", bus="wan")
    handled = []
    for node in (near, far):
        node.subscribe("md.>", lambda message: handled.append(message.payload))
    far.subscribe("job.*", lambda message: handled.append(message.payload), group="workers")
    legs = [{"bus": bus, "directory": directory} for bus in ("lan", "wan")]
    with running(Forwarder(legs, name="between-1")), running(Forwarder(legs, name="between-2")):
        for node in (near, far):
            node.wait_ready("between-1", "between-2", timeout=DEADLINE)
        until(lambda: trace("md.x")[1].count("to bus wan\n│     └─ far") == 2)
        until(lambda: trace("job.x")[1].count("stands by for another forwarder") == 1)

        def send():
            handled.clear()
            # Without the reports of all recipients it ends at the timeout.
            _, out = trace("md.x", "--send", "plain")
            # Each command is a new node, which may publish before a forwarder knows it.
            return out if out.count("to bus wan\n│     └─ far\n") == 2 else ""

        out = until(send)
        assert handled == ["plain", "plain"]
        assert out.count("no answer") == out.count("does not answer") == 0
        handled.clear()
        _, out = trace("job.x", "--send", "group")
        assert handled == ["group"]
        assert out.count("to bus wan") == out.count("handler of job.*") == 1
        assert out.count("stands by for another forwarder") == 1


def test_journal_is_shown_with_time_and_offset(join, trace, tmp_path, monkeypatch):
    # On a busy machine the recorder may answer later than 2 seconds after its socket was found.
    monkeypatch.setattr("oz.node.roster.GREETING_TIME", DEADLINE)
    directory = tmp_path / "journal"
    with Recorder(directory, "md.>", source=join("recorder")) as recorder:
        thread = Thread(recorder.run)
        assert f"md.> (nats, prefix md.): receives, journal {directory}" in trace("md.x")[1]
        for _ in range(2):
            _, out = trace("md.x", "--send", "text", "--json")
        recorder.stop()
        thread.outcome()
    (hop,) = json.loads(out)["hops"]
    assert [hop["subscriptions"][0][name] for name in ("handler", "journal")] == ["", str(directory)]
    (recorded,) = [report for report in hop["reports"] if "recorded" in report]
    (received,) = [report for report in hop["reports"] if "received" in report]
    assert received["received"] <= recorded["recorded"]
    records = list(Journal(directory).read())
    assert [len(record.headers[HEADER]) for record in records] == [16, 16]
    assert recorded["offset"] == records[1].offset == 1


needs_curve = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


@pytest.fixture
def ring(tmp_path):
    made = Keyring(tmp_path, "desk", "tracer")
    made.configure("tracer")
    return made


@needs_curve
def test_denied_publication_names_the_rule(ring, join, trace):
    ring.permit(
        desk='subscribe = { allow = [">"] }',
        tracer='publish = { allow = ["md.>"], deny = ["md.secret.*"] }\nrequest = { allow = ["_OZ.TRACE"] }',
    )
    join("desk", security=ring.security("desk", permissions=True)).subscribe("md.>")
    _, out = trace("md.secret.x", "--security", ring.file("tracer"), "--json")
    (hop,) = json.loads(out)["hops"]
    assert "users.tracer.publish.deny[0]" in hop["rule"]
    assert "md.secret.*" in hop["denied"]
    assert (
        json.loads(trace("md.open", "--security", ring.file("tracer"), "--json")[1])["hops"][0]["denied"]
        == ""
    )


@needs_curve
def test_refused_subscription_names_the_rule(ring, join, trace):
    ring.permit(
        desk='subscribe = { allow = ["news"] }',
        tracer='publish = { allow = [">"] }\nrequest = { allow = ["_OZ.TRACE"] }',
    )
    join("desk", security=ring.security("desk", permissions=True)).subscribe("md.>")
    code, out = trace("md.x", "--security", ring.file("tracer"))
    assert code == 3
    assert "md.> (nats, prefix md.): the publisher refuses it: users.desk.subscribe.allow[0]" in out


@needs_curve
def test_key_without_the_right_gets_no_details(ring, join, trace):
    ring.permit(desk='subscribe = { allow = [">"] }', tracer='publish = { allow = [">"] }')
    desk = join("desk", security=ring.security("desk", permissions=True))
    received = desk.subscribe("md.>")
    _, out = trace("md.x", "--send", "text", "--security", ring.file("tracer"), "--json")
    assert received.receive(timeout=DEADLINE).payload == "text"
    (hop,) = json.loads(out)["hops"]
    assert "denies the request to '_OZ.TRACE'" in hop["untraced"]
    assert (hop["subscriptions"], hop["reports"]) == ([], [])
    assert "has a subscription; no details" in trace("md.x", "--security", ring.file("tracer"))[1]
    assert trace("news", "--security", ring.file("tracer"))[0] == 3
    assert "no declared subscription on bus lan matches news; without details: desk" in trace.errors


@needs_curve
def test_ping_without_the_right_exits_1_with_the_permission(ring, join, directory):
    ring.permit(desk='subscribe = { allow = [">"] }', tracer="")
    desk = join("desk", security=ring.security("desk", permissions=True))
    desk.subscribe("svc")
    joining = ("--bus", "lan", "--directory", directory, "--security", ring.file("tracer"))
    for target, subject in (("desk", "_OZ.STATISTICS"), ("svc", "svc")):
        code, _, err = command("ping", target, "--count", "1", "--wait", str(DEADLINE), *joining)
        assert code == 1
        assert f"'{subject}'" in err
        assert "tracer has no allow rule for request" in err


def asked(node, subject):
    """Ask the peers of a node about a subject; return the open question."""
    found = node._run(node._node.traces.ask(subject, DEADLINE))
    assert not found.missing
    return found


def test_questions_that_wait_are_bounded_by_bytes(join, monkeypatch):
    engine, answered = join("desk")._node, []
    monkeypatch.setattr(engine.publisher, "direct", lambda peer, *_: answered.append(peer))
    (link,) = engine.readiness._links_to(engine.id)
    # The engine's own `Traces` would answer between two questions, in the engine's thread.
    traces = Traces(engine)
    for number in range(50):
        question = [number.to_bytes(16), 0, b"md.x", b"", bytes(1_000_000)]
        traces.on_direct(link, msgpack.packb(question))
    traces.turn(engine.clock())
    assert len(answered) == 8


def test_reports_for_one_question_are_bounded(join):
    desk, feed = join("desk"), join("feed")
    received = desk.subscribe("md.>")
    ready(feed, desk)
    found = asked(feed, "md.x")
    for number in range(MAX_REPORTS + 10):
        feed.publish("md.x", number, headers={HEADER: found.id})
    for number in range(MAX_REPORTS + 10):
        assert received.receive(timeout=DEADLINE).payload == number
    # The answer to a later question comes after all reports.
    asked(feed, "md.x")
    assert len(found.reports) == MAX_REPORTS


def test_mark_without_a_question_and_malformed_messages_cause_no_report(join):
    desk, feed = join("desk"), join("feed")
    received = desk.subscribe("md.>")
    ready(feed, desk)
    ready(desk, feed)
    other = asked(feed, "md.x")
    for mark in (b"0" * 16, "text", 1, None):
        feed.publish("md.x", 1, headers={HEADER: mark})
        assert received.receive(timeout=DEADLINE).headers == {HEADER: mark}
    desk_id = next(peer.id for peer in feed.peers if peer.name == "desk")
    for content in (
        7,
        [],
        [other.id],
        [other.id, 0, b"md.x"],
        [other.id, 0, 1],
        [other.id, 1, {}],
        [other.id, 2, {"node": 1}],
        [b"", 9, 9],
    ):
        feed._node.publisher.direct(bytes.fromhex(desk_id), TRACE, msgpack.packb(content))
    assert asked(feed, "md.x").hops[1]["subscriptions"][0]["pattern"] == "md.>"
    assert other.reports == []
