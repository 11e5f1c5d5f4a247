"""The forwarder between two buses: what crosses, and what stays."""

import pytest

import oz
from oz.errors import ConfigurationError
from oz.services.forwarder import Forwarder
from support.inside import engine_of, shell_of
from support.joined import Buses, payloads, up_to, wait_for_interest, wants
from support.waiting import DEADLINE, until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def buses():
    with Buses() as made:
        yield made


@pytest.fixture
def joined(buses):
    """A node on each of two buses, and a forwarder between them."""
    near, far = buses.node("lan", "near"), buses.node("wan", "far")
    return near, far, buses.forwarder("lan", "wan")


def test_nothing_crosses_that_nobody_wants(joined):
    near, far, forwarder = joined
    wanted = far.subscribe("*.wanted.>")
    wait_for_interest(near, "a.wanted.1")
    for number in range(100):
        near.publish(f"a.wanted.{number}", b"%d" % number)
        near.publish(f"a.unwanted.{number}", b"x" * 1_000)
        # On its own bus nobody wants it, so that it does not even come to the forwarder.
        far.publish(f"a.wanted.back.{number}", b"x" * 1_000)
    near.publish("a.wanted.end", b"end")
    got = [one for one in up_to(wanted, b"end") if len(one) < 1_000]
    assert got == [b"%d" % number for number in range(100)]
    stats = until(lambda: forwarder.stats.passed == 101 and forwarder.stats)
    assert stats.received == 101
    assert stats.size == sum(len(b"%d" % number) for number in range(100)) + 3
    assert stats.unwanted == stats.looped == stats.refused == stats.lost == 0


DIALECTS = [
    ("nats", "*.east.>", "time.east.x", "time.west.x"),
    ("rv", "*.EAST.>", "time.EAST.x", "time.WEST.x"),
    ("kubemq", "kube.*.east", "kube.us.east", "kube.us.west"),
    ("redis", "sensor:[ab]?:*", "sensor:a1:x", "sensor:c1:x"),
    ("regex", r"^order\.(new|fill)\..*$", "order.fill.1", "order.old.1"),
    ("mqtt", "+/east/#", "time/east/x", "time/west/x"),
    ("amqp", "#.amqp.*", "time.us.amqp.x", "time.us.other.x"),
    ("zmq", b"raw\xff", b"raw\xff\xfe", b"raw\xfe"),
    ("raims.glob", "glob*east", "glob.us.east", "glob.us.west"),
]


def test_patterns_of_every_dialect_cross(buses):
    near, far = buses.node("lan", dialect="zmq"), buses.node("wan")
    forwarder = buses.forwarder("lan", "wan")
    wanted = [far.subscribe(pattern, dialect=dialect) for dialect, pattern, _, _ in DIALECTS]
    wait_for_interest(near, *(subject for _, _, subject, _ in DIALECTS))
    for _, _, subject, other in DIALECTS:
        near.publish(other, b"no")
        near.publish(subject, b"yes")
    for (_, _, subject, _), subscription in zip(DIALECTS, wanted, strict=True):
        message = subscription.receive(DEADLINE)
        raw = subject if isinstance(subject, bytes) else subject.encode()
        assert (message.subject_bytes, message.payload) == (raw, b"yes")
    until(lambda: forwarder.stats.passed == len(DIALECTS))
    assert forwarder.stats.received == len(DIALECTS)


def test_everything_that_goes_with_a_message_crosses(joined):
    near, far, _ = joined
    wanted = far.subscribe("a.>")
    wait_for_interest(near, "a.b")
    headers = {"text": "é", "bytes": b"\0", "number": -1, "nothing": None}
    large = b"L" * 200_000
    near.publish("a.b", large, headers=headers, message_id=(b"series", 7))
    near.publish("a.c", [b"one", b"two"])
    first, second = (wanted.receive(DEADLINE) for _ in range(2))
    assert first.payload == large
    assert {name: first.headers[name] for name in headers} == headers
    assert first.id == (b"series", 7)
    assert second.frames == [b"a.c", b"one", b"two"]


def test_a_message_that_several_patterns_match_crosses_once(joined):
    near, far, forwarder = joined
    wanted = [far.subscribe(pattern) for pattern in ("a.*", ">", "*.b", "a.b")]
    wait_for_interest(near, "a.b", "z")
    near.publish("a.b", b"one")
    near.publish("z", b"end")
    assert up_to(wanted[1], b"end") == [b"one"]
    assert all(payloads(one, 1) == [b"one"] for one in wanted if one is not wanted[1])
    assert until(lambda: forwarder.stats.passed == 2)
    assert forwarder.stats.received == 2


def test_local_subjects_stay(joined):
    near, far, forwarder = joined
    strange = far.subscribe(r"^_(LOCAL|OTHER)\..*|^a$", dialect="regex")
    local = far.subscribe("_LOCAL.>")
    own = near.subscribe("_LOCAL.>")
    wait_for_interest(near, "a")
    near.publish("_LOCAL.secret", b"stays")
    near.publish("_OTHER.b", b"crosses")
    near.publish("a", b"end")
    assert up_to(strange, b"end") == [b"crosses"]
    assert payloads(own, 1) == [b"stays"]
    assert not local.waiting
    assert until(lambda: forwarder.stats.passed == 2)


def test_requests_and_replies_cross_both_ways(joined):
    for subject, asking, answering in (("limit.near", *joined[:2]), ("limit.far", *joined[1::-1])):
        answering.subscribe(subject, handler=lambda message: message.reply(message.payload * 2))
        wait_for_interest(asking, subject)
        assert asking.request(subject, b"ab", timeout=DEADLINE).payload == b"abab"


def test_a_reply_with_the_headers_of_its_request_crosses(joined):
    near, far, _ = joined
    far.subscribe("echo", handler=lambda message: message.reply(b"", headers=message.headers))
    wait_for_interest(near, "echo")
    reply = near.request("echo", headers={"kind": "test"}, timeout=DEADLINE)
    assert reply.headers["kind"] == "test"


def test_that_a_handler_raised_crosses_too(joined):
    near, far, _ = joined

    def refuse(message):
        raise ValueError("bad size")

    far.subscribe("ask", handler=refuse)
    wait_for_interest(near, "ask")
    with pytest.raises(oz.ReplyError, match="ValueError at 'ask': bad size"):
        near.request("ask", timeout=None)


def test_several_replies_cross(joined, buses):
    near, far, forwarder = joined
    for name in (b"one", b"two"):
        node = buses.node("wan")
        node.subscribe("who", handler=lambda message, name=name: message.reply(name))
        node.wait_ready(DEADLINE)
    far.subscribe("who", handler=lambda message: message.reply(b"far"))
    until(lambda: forwarder.legs[1].ledger.interests.get((oz.compile("who"), "")) == 3)
    wait_for_interest(near, "who")
    near.subscribe("who", handler=lambda message: message.reply(b"near"))
    until(lambda: engine_of(near).sockets.main.engine.sender.routes.count("who") == 2)
    replies = near.request_many("who", timeout=DEADLINE, limit=4)
    assert {reply.payload for reply in replies} == {b"one", b"two", b"far", b"near"}


def test_that_nobody_answers_is_known_at_once_across_too(joined, buses):
    near, _, _ = joined
    near.wait_ready(DEADLINE)
    with pytest.raises(oz.NoResponders):
        near.request("limit.eur", timeout=DEADLINE)
    third = buses.node("wan")
    third.subscribe("limit.*", handler=lambda message: message.reply(b"yes"))
    wait_for_interest(near, "limit.eur")
    assert near.request("limit.eur", timeout=DEADLINE).payload == b"yes"
    third.close()
    wait_for_interest(near, "limit.eur", gone=True)
    with pytest.raises(oz.NoResponders):
        near.request("limit.eur", timeout=DEADLINE)


def test_unsubscribing_takes_the_interest_back(joined):
    near, far, forwarder = joined
    wanted = [far.subscribe(pattern) for pattern in ("a.b", "a.*")]
    wait_for_interest(near, "a.b", "a.c")
    wanted[1].unsubscribe()
    wait_for_interest(near, "a.c", gone=True)
    near.publish("a.c", b"no")
    near.publish("a.b", b"yes")
    assert payloads(wanted[0], 1) == [b"yes"]
    assert forwarder.stats.received == 1


def test_late_joiners_on_either_side_are_served(buses):
    buses.forwarder("lan", "wan")
    far = buses.node("wan")
    wanted = far.subscribe("a.*")
    early = buses.node("lan")
    wait_for_interest(early, "a.b")
    early.publish("a.b", b"early")
    assert payloads(wanted, 1) == [b"early"]
    late, last = buses.node("lan"), buses.node("wan")
    also = last.subscribe("*.b")
    wait_for_interest(late, "a.b", "z.b")
    # What is of interest to one of them is there at once; that the other is known shows by its own subject.
    late.publish("a.b", b"late")
    assert payloads(wanted, 1) == payloads(also, 1) == [b"late"]


def test_what_is_not_allowed_does_not_cross(buses):
    near, far = buses.node("lan", echo=False), buses.node("wan", echo=False)
    forwarder = buses.forwarder("lan", {"bus": "wan", "allow": ["md.>", "rv:NEWS.*"]})
    everything, _ = far.subscribe(">"), far.subscribe("orders.>")
    back = near.subscribe(">")
    wait_for_interest(near, "md.eur", "NEWS.x")
    wait_for_interest(far, "orders.1")
    assert not wants(near, "orders.1")
    near.publish("orders.1", b"stays")
    near.publish("md.eur", b"crosses")
    assert payloads(everything, 1) == [b"crosses"]
    assert forwarder.stats.received == 1
    # Nothing was said of the other direction.
    far.publish("orders.1", b"comes")
    assert payloads(back, 1) == [b"comes"]


def test_replies_cross_whatever_is_allowed(buses):
    near, far = buses.node("lan"), buses.node("wan")
    buses.forwarder({"bus": "lan", "allow": "limit.*"}, {"bus": "wan", "allow": "nothing"})
    near.subscribe("limit.*", handler=lambda message: message.reply(b"yes"))
    wait_for_interest(far, "limit.eur")
    assert far.request("limit.eur", timeout=DEADLINE).payload == b"yes"


def test_losses_on_one_bus_are_told_on_the_other(joined):
    near, far, forwarder = joined
    gaps = far.subscribe("_OZ.ADVISORY.*.GAP")
    wanted = far.subscribe("a.*")
    wait_for_interest(near, "a.b")
    near.publish("a.b", b"one")
    assert payloads(wanted, 1) == [b"one"]
    # What is lost on its way to the forwarder.
    engine_of(near).sockets.main.engine.report_loss(7)
    assert gaps.receive(DEADLINE).payload.count == 7
    near.publish("a.b", b"two")
    assert payloads(wanted, 1) == [b"two"]
    # Every stream has told where it stands by then, before what follows on it.
    engine_of(near).sockets.main.engine.report_loss(0)
    near.publish("a.b", b"three")
    assert payloads(wanted, 1) == [b"three"]
    assert forwarder.stats.lost == 7
    assert far.stats.lost == 7


def test_who_was_cut_off_is_told_that_something_may_be_missing(joined):
    near, far, forwarder = joined
    gaps, wanted = far.subscribe("_OZ.ADVISORY.*.GAP"), far.subscribe("a.*")
    wait_for_interest(near, "a.b")
    near.publish("a.b", b"one")
    assert payloads(wanted, 1) == [b"one"]
    endpoint = forwarder.legs[1].engine.sockets.announcement.local_endpoint
    shell_of(far).call(lambda: engine_of(far).sockets.sub.socket.disconnect(endpoint))
    wait_for_interest(near, "a.b", gone=True)
    near.publish("a.b", b"missed")
    shell_of(far).call(lambda: engine_of(far).sockets.sub.socket.connect(endpoint))
    wait_for_interest(near, "a.b")
    assert gaps.receive(DEADLINE).payload.count is None
    near.publish("a.b", b"two")
    assert payloads(wanted, 1) == [b"two"]


def test_one_side_is_no_forwarder():
    with pytest.raises(ConfigurationError, match="two buses or more"):
        Forwarder([{"bus": "lan"}])


def test_one_bus_twice_is_no_forwarder(buses):
    twice = [{"bus": "lan", "directory": buses.directory}] * 2
    with pytest.raises(ConfigurationError, match="leg 2: bus = 'lan': leg 1 joins this bus by the same way"):
        Forwarder(twice)


def test_a_side_needs_a_bus_and_known_settings(buses):
    with pytest.raises(ConfigurationError, match="leg 2"):
        Forwarder([{"bus": "lan", "directory": buses.directory}, {"directory": buses.directory}])
    with pytest.raises(ConfigurationError, match="nonsense"):
        Forwarder([{"bus": "lan", "nonsense": 1}, {"bus": "wan"}])


@pytest.mark.parametrize(
    ("legs", "said"),
    [
        ([{"bus": "a", "nameservr": "x"}, {"bus": "b"}], r"leg 1: nameservr.*did you mean nameserver"),
        ([{"bus": "a"}, {"bsu": "b"}], r"leg 2: bsu.*did you mean bus"),
        ([{"bus": "a", "codec": "json"}, {"bus": "b"}], r"leg 1: codec.*it has advertise, allow"),
        ("a", "a list of legs"),
        (["a", "b"], "a list of legs"),
    ],
)
def test_leg_that_makes_no_sense_is_refused_with_what_was_meant(legs, said):
    with pytest.raises(ConfigurationError, match=said):
        Forwarder(legs)
