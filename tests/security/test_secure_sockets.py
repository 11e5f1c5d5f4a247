"""Sockets with keys: who comes in, who may subscribe to what, and who may publish it."""

import asyncio
import itertools
import logging
import threading
from socket import create_server

import pytest
import zmq

import oz
import oz.asyncio
from oz.transport import credentials
from oz.transport.handshakes import Handshakes, Outcome
from oz.transport.security import credentials_of
from oz.wire import keys
from oz.wire.batch import CONTROL, head_end, head_start
from support.inside import engine_of
from support.keyring import Keyring, published_anew
from support.ports import lasting_endpoint
from support.waiting import DEADLINE, Thread, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")

READER = 'subscribe = { allow = ["md.>"], deny = ["md.secret.>"] }'


@pytest.fixture
def ring(tmp_path):
    made = Keyring(tmp_path, "feed", "desk", "other")
    made.permit(desk=READER, other='subscribe = { allow = ["x.>"] }')
    return made


@pytest.fixture
def pub(ring):
    with oz.Publisher("tcp://127.0.0.1:*", security=ring.security("feed", permissions=True)) as made:
        yield made


@pytest.fixture
def sub(ring, pub):
    with oz.Subscriber(pub.endpoint, filtering="publisher", security=ring.security("desk")) as made:
        yield made


@pytest.fixture
def raw(ring, pub):
    """A plain SUB of somebody, which sees all that is sent to it."""
    made = []

    def connect(name, *prefixes):
        socket = ring.equip(zmq.Context.instance().socket(zmq.SUB), name, "feed")
        made.append(socket)
        socket.linger, socket.rcvtimeo = 0, round(1000 * DEADLINE)
        for prefix in prefixes:
            socket.subscribe(prefix)
        socket.connect(pub.endpoint)
        return socket

    yield connect
    for socket in made:
        socket.close(0)


def publish_until(pub, subject, is_there):
    """Publish until something has come."""
    while not is_there():
        pub.publish(subject, b"again")


def receive_until(sub, is_so):
    """Look at what comes, of which nothing is to be delivered."""
    while not is_so():
        with pytest.raises(oz.Timeout):
            sub.receive(timeout=0.01)


def received(sub, count):
    return [sub.receive(timeout=DEADLINE).subject for _ in range(count)]


# who comes in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_who_is_trusted_gets_messages(ring, pub, filtering):
    with oz.Subscriber(pub.endpoint, filtering=filtering, security=ring.security("desk")) as sub:
        sub.subscribe("md.eu.*")
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("md.eu.x", b"1")
        assert sub.receive(timeout=DEADLINE).payload == b"1"


def test_a_publisher_whose_connections_hold_one_message_hears_who_subscribes(ring):
    with (
        # It waits for room: the answer to the subscription may still be all that the connection holds.
        oz.Publisher(
            "tcp://127.0.0.1:*", high_water_mark=1, on_full="block", security=ring.security("feed")
        ) as pub,
        oz.Subscriber(pub.endpoint, filtering="publisher", security=ring.security("desk")) as sub,
    ):
        sub.subscribe("md.a")
        sub.wait_ready(DEADLINE)
        pub.publish("md.a", b"heard")
        assert sub.receive(timeout=DEADLINE).payload == b"heard"


def test_who_is_not_trusted_is_told_both_keys_when_it_connects(ring, pub, caplog):
    stranger = ring.make("stranger").public
    security = ring.security("stranger")
    with caplog.at_level(logging.WARNING, "oz.security"), pytest.raises(oz.PermissionDenied) as raised:
        oz.Subscriber(pub.endpoint, security=security)
    assert stranger in str(raised.value)
    assert ring.public("feed") in str(raised.value)
    assert any(
        stranger in one.getMessage() and ring.public("feed") in one.getMessage() for one in caplog.records
    )


def test_who_listens_with_a_key_that_is_not_trusted_is_not_connected_to(ring, pub):
    security = ring.security("desk")
    ring.distrust("feed")
    security = ring.security("desk")
    with pytest.raises(oz.PermissionDenied, match="has no key that this side trusts") as raised:
        oz.Subscriber(pub.endpoint, security=security)
    assert ring.public("desk") in str(raised.value)


def test_who_has_no_key_gets_nothing(pub, sub):
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.linger = 0
        socket.subscribe(b"")
        failed = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        socket.connect(pub.endpoint)
        assert failed.poll(1000 * DEADLINE)
        socket.disable_monitor()
        failed.close(0)
        sub.subscribe("md.eu")
        sub.wait_ready(DEADLINE)
        pub.publish("md.eu", b"")
        assert received(sub, 1) == ["md.eu"]
        assert not socket.poll(0)


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_who_has_no_key_and_waits_for_a_publisher_with_one_is_told_why(pub, kind):
    def wait():
        with oz.Subscriber(pub.endpoint, filtering="publisher") as sub:
            sub.subscribe("md.eu")
            sub.wait_ready(DEADLINE)

    async def wait_in_loop():
        async with oz.asyncio.Subscriber(pub.endpoint, filtering="publisher") as sub:
            sub.subscribe("md.eu")
            await sub.wait_ready(DEADLINE)

    with pytest.raises(oz.PermissionDenied, match="demands keys"):
        wait() if kind == "sync" else asyncio.run(wait_in_loop())


async def first_of(messages):
    async for message in messages:
        return message


WAITS = {
    "receive": lambda sub: sub.receive(),
    "receive within": lambda sub: sub.receive(timeout=DEADLINE),
    "receive_many": lambda sub: sub.receive_many(),
    "receive_batches": lambda sub: sub.receive_batches(),
    "run": lambda sub: sub.run(),
}


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
@pytest.mark.parametrize("wait", [*WAITS, "iteration"])
def test_a_subscriber_without_keys_is_told_that_a_publisher_demands_some(pub, wait, filtering):
    with oz.Subscriber(pub.endpoint, filtering=filtering) as sub:
        sub.subscribe("md.>")
        with pytest.raises(oz.PermissionDenied, match=f"{pub.endpoint} demands keys"):
            (WAITS | {"iteration": lambda sub: next(iter(sub))})[wait](sub)
        # Once; it may be given keys, or demand none, later.
        with pytest.raises(oz.Timeout):
            sub.receive(timeout=0)


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
@pytest.mark.parametrize("wait", [*WAITS, "iteration"])
def test_the_same_on_asyncio(pub, wait, filtering):
    async def run():
        async with oz.asyncio.Subscriber(pub.endpoint, filtering=filtering) as sub:
            sub.subscribe("md.>")
            with pytest.raises(oz.PermissionDenied, match=f"{pub.endpoint} demands keys"):
                await (WAITS | {"iteration": first_of})[wait](sub)

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_a_publisher_without_keys_is_told_that_a_subscriber_demands_some(ring, kind):
    async def wait_in_loop(endpoint):
        async with oz.asyncio.Publisher(connect=endpoint) as pub:
            await pub.wait_for_subscribers()

    def wait(endpoint):
        with oz.Publisher(connect=endpoint) as pub:
            pub.wait_for_subscribers()

    with oz.Subscriber(security=ring.security("desk"), filtering="publisher") as sub:
        sub.bind("tcp://127.0.0.1:*")
        sub.subscribe("md.>")
        with pytest.raises(oz.PermissionDenied, match=f"{sub.endpoint} demands keys"):
            wait(sub.endpoint) if kind == "sync" else asyncio.run(wait_in_loop(sub.endpoint))


def test_a_prefix_subscriber_asks_nobody_once_something_has_come(monkeypatch):
    asked = []
    monkeypatch.setattr("oz.transport.demands.mechanism_at", asked.append)
    with oz.Publisher("tcp://127.0.0.1:*") as pub, oz.Subscriber(pub.endpoint) as sub:
        sub.subscribe("md.>")
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("md.x", b"1")
        assert sub.receive().payload == b"1"
        with pytest.raises(oz.Timeout):
            sub.receive(timeout=0.6)
        assert not engine_of(sub).is_asking
    assert asked == []


def test_who_listens_without_keys_or_says_nothing_is_not_called_a_stranger(ring):
    desk = ring.security("desk")
    with oz.Publisher("tcp://127.0.0.1:*") as plain, pytest.raises(oz.PermissionDenied) as raised:
        oz.Subscriber(plain.endpoint, security=desk)
    assert "has no key at all" in str(raised.value)
    with create_server(("127.0.0.1", 0)) as mute, pytest.raises(oz.PermissionDenied) as raised:
        oz.Subscriber(f"tcp://127.0.0.1:{mute.getsockname()[1]}", security=desk)
    assert "accepts connections and proves no key" in str(raised.value)


KEYLESS = {
    "no CURVE": lambda ring: {},
    "PLAIN": lambda ring: {"plain_username": b"desk", "plain_password": b"desk"},
    "no key of its own": lambda ring: {"curve_serverkey": ring.public("feed").encode()},
    "a key that it does not have": lambda ring: {
        "curve_serverkey": ring.public("feed").encode(),
        "curve_publickey": ring.public("desk").encode(),
        "curve_secretkey": ring.pair("other").secret.encode(),
    },
    "another server's key": lambda ring: {
        "curve_serverkey": ring.public("other").encode(),
        "curve_publickey": ring.public("desk").encode(),
        "curve_secretkey": ring.pair("desk").secret.encode(),
    },
}


def called_without_key(ring, way, kind, endpoint):
    """Return a plain socket that calls without proving to have a key."""
    socket = zmq.Context.instance().socket(kind)
    socket.linger = 0
    for option, value in KEYLESS[way](ring).items():
        setattr(socket, option, value)
    socket.connect(endpoint)
    return socket


@pytest.mark.parametrize("way", KEYLESS)
def test_who_calls_without_a_key_is_logged_and_counted_where_it_calls(ring, way, caplog):
    feed = ring.security("feed")
    with (
        oz.Publisher("tcp://127.0.0.1:*", security=feed) as pub,
        called_without_key(ring, way, zmq.SUB, pub.endpoint),
    ):
        until(lambda: feed.refused)
    told = [one.getMessage() for one in caplog.records if "is refused" in one.getMessage()]
    assert ring.public("feed") in told[0]


def test_who_calls_a_subscriber_without_a_key_is_counted_as_well(ring):
    desk = ring.security("desk")
    with (
        oz.Subscriber(bind="tcp://127.0.0.1:*", security=desk) as sub,
        called_without_key(ring, "no CURVE", zmq.PUB, sub.endpoint),
    ):
        receive_until(sub, lambda: desk.refused)


def test_the_server_s_key_is_found_among_many(ring, pub):
    for at in range(40):
        ring.make(f"one{at}")
        ring.trust(f"one{at}")
    with oz.Subscriber(pub.endpoint, filtering="publisher", security=ring.security("desk")) as sub:
        sub.subscribe("md.eu")
        sub.wait_ready(DEADLINE)


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_nobody_needs_to_listen_yet_where_any_of_many_keys_may_come(ring, filtering):
    for number in range(20):
        ring.make(f"more-{number:02}")
        ring.trust(f"more-{number:02}")
    endpoint = lasting_endpoint()
    with oz.Subscriber(endpoint, filtering=filtering, security=ring.security("desk")) as sub:
        sub.subscribe("md.eu")
        coming = Thread(lambda: sub.receive(timeout=DEADLINE).payload)
        with oz.Publisher(endpoint, security=ring.security("more-17")) as pub:
            pub.wait_for_subscribers(timeout=DEADLINE)
            pub.publish("md.eu", b"1")
            assert coming.outcome() == b"1"


@pytest.fixture
def tried(monkeypatch):
    """Collect how many keys are tried at once."""
    counts, probe = [], credentials.probe

    def probing(endpoint, kind, pair, candidates):
        counts.append(len(candidates))
        return probe(endpoint, kind, pair, candidates)

    monkeypatch.setattr(credentials, "probe", probing)
    return counts


def test_the_key_that_an_endpoint_had_is_tried_alone_first(ring, pub, tried):
    desk = ring.security("desk")
    for _ in range(2):
        oz.Subscriber(pub.endpoint, security=desk).close()
    assert tried == [3, 1]


def test_the_key_whose_certificate_is_called_like_the_host_is_tried_alone_first(ring, tried):
    ring.make("localhost")
    ring.trust("localhost")
    with oz.Publisher("tcp://127.0.0.1:*", security=ring.security("localhost")) as pub:
        port = pub.endpoint.rpartition(":")[2]
        oz.Subscriber(f"tcp://localhost:{port}", security=ring.security("desk")).close()
    assert tried == [1]


def test_who_comes_in_a_trusted_key_s_place_later_is_told_of(ring):
    ring.make("stranger")
    endpoint = lasting_endpoint()
    with oz.Publisher(endpoint, security=ring.security("feed")):
        sub = oz.Subscriber(endpoint, security=ring.security("desk"))
    with (
        sub,
        published_anew(endpoint, ring.security("stranger")),
        pytest.raises(oz.PermissionDenied, match="has no key that this side trusts"),
    ):
        sub.receive(timeout=DEADLINE)


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_whose_key_is_refused_later_is_told_and_comes_back_when_it_is_trusted_again(ring, filtering):
    ring.make("guest")
    ring.trust("guest")
    with (
        oz.Publisher("tcp://127.0.0.1:*", security=ring.security("feed")) as pub,
        oz.Subscriber(pub.endpoint, filtering=filtering, security=ring.security("guest")) as sub,
    ):
        sub.subscribe("md.eu")
        pub.wait_for_subscribers(timeout=DEADLINE)
        ring.distrust("guest")
        with pytest.raises(oz.PermissionDenied, match="does not trust the key of this side"):
            sub.receive(timeout=DEADLINE)
        assert not pub.interest("md.eu")
        ring.trust("guest")
        coming = Thread(lambda: sub.receive(timeout=DEADLINE).payload)
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("md.eu", b"again")
        assert coming.outcome() == b"again"


def test_what_libzmq_has_given_up_is_not_known_to_it_any_more_when_the_next_connection_is_made(
    ring, tmp_path
):
    """It names by the endpoint what it has freed, and would end by that whatever stands there by then."""
    here, there = Keyring(tmp_path / "here"), ring
    for name in ("feed", "desk"):
        here.borrow(there, name)
    with (
        oz.Publisher("tcp://127.0.0.1:*", security=there.security("feed")) as strict,
        oz.Publisher("tcp://127.0.0.1:*", security=here.security("feed")) as pub,
        oz.Subscriber(strict.endpoint, security=here.security("desk")) as sub,
    ):
        sub.subscribe("md")
        until(lambda: strict.interest("md"))
        there.distrust("desk")
        with pytest.raises(oz.PermissionDenied):
            sub.receive(timeout=DEADLINE)
        with pytest.raises(zmq.ZMQError, match="No such file"):
            zmq.Socket.disconnect(sub, strict.endpoint)
        sub.connect(pub.endpoint)
        until(lambda: pub.interest("md"))
        sub.disconnect(strict.endpoint)
        pub.publish("md", b"stays")
        assert sub.receive(timeout=DEADLINE).payload == b"stays"


@pytest.mark.parametrize("filtering", ["prefix", "publisher"])
def test_a_publisher_may_come_back_with_another_of_the_trusted_keys(ring, filtering):
    endpoint = lasting_endpoint()
    with oz.Publisher(endpoint, security=ring.security("feed")) as pub:
        sub = oz.Subscriber(endpoint, filtering=filtering, security=ring.security("desk"))
        sub.subscribe("md.eu")
        pub.wait_for_subscribers(timeout=DEADLINE)
    with sub, published_anew(endpoint, ring.security("other")) as pub:
        coming = Thread(lambda: sub.receive(timeout=DEADLINE).payload)
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("md.eu", b"again")
        assert coming.outcome() == b"again"


@pytest.fixture
def looks(monkeypatch):
    """The outcomes of handshakes, a list for each look of a socket at them."""
    seen, read, begin, watched = [], Handshakes.read, Handshakes.begin, set()

    def beginning(handshakes, socket):
        if socket.type == zmq.SUB:
            watched.add(handshakes)
        begin(handshakes, socket)

    def reading(handshakes):
        found = list(read(handshakes))
        if handshakes in watched:
            seen.append([one.outcome for one in found])
        return iter(found)

    monkeypatch.setattr(Handshakes, "begin", beginning)
    monkeypatch.setattr(Handshakes, "read", reading)
    return seen


def assert_that_it_stays(sub, pub, looks):
    """Assert that all messages come, and no handshake fails any more, once one has succeeded."""
    receive_until(sub, lambda: any(Outcome.ADMITTED in one for one in looks))
    pub.wait_for_subscribers(timeout=DEADLINE)
    for number in range(10):
        seen = len(looks)
        pub.publish("md.eu", b"%d" % number)
        assert sub.receive(timeout=DEADLINE).payload == b"%d" % number
        receive_until(sub, lambda seen=seen: len(looks) > seen)
        outcomes = list(itertools.chain(*looks))
        assert outcomes[outcomes.index(Outcome.ADMITTED) :] == [Outcome.ADMITTED]


@pytest.fixture(params=["prefix", "publisher"])
def kept(ring, looks, request):
    """A subscriber that stays while its publisher ends, and the endpoint of that."""
    endpoint = lasting_endpoint()
    with oz.Publisher(endpoint, security=ring.security("feed")) as pub:
        sub = oz.Subscriber(endpoint, filtering=request.param, security=ring.security("desk"))
        sub.subscribe("md.eu")
        pub.wait_for_subscribers(timeout=DEADLINE)
        receive_until(sub, lambda: [Outcome.ADMITTED] in looks)
    looks.clear()
    with sub:
        yield sub, endpoint


def test_once_the_other_key_is_found_the_one_before_is_not_tried_any_more(ring, looks, kept):
    sub, endpoint = kept
    with published_anew(endpoint, ring.security("other")) as pub:
        assert_that_it_stays(sub, pub, looks)


def test_who_disconnects_and_connects_again_does_not_try_the_key_before_any_more(ring, looks, kept):
    sub, endpoint = kept
    with published_anew(endpoint, ring.security("other")) as pub:
        # Nobody has looked since then, so it is still called by the key before.
        sub.disconnect(endpoint)
        sub.connect(endpoint)
        assert_that_it_stays(sub, pub, looks)


def test_a_publisher_that_connects_finds_another_of_the_trusted_keys(ring):
    with oz.Subscriber(bind="tcp://127.0.0.1:*", security=ring.security("feed")) as sub:
        pub = oz.Publisher(connect=sub.endpoint, security=ring.security("desk"))
        endpoint = sub.endpoint
    with pub, oz.Subscriber(bind=endpoint, security=ring.security("other")) as sub:
        sub.subscribe("md.eu")
        coming = Thread(lambda: sub.receive(timeout=DEADLINE).payload)
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("md.eu", b"again")
        assert coming.outcome() == b"again"


def test_two_with_other_keys_serve_in_one_context(ring):
    with (
        zmq.Context() as context,
        oz.Publisher("tcp://127.0.0.1:*", context=context, security=ring.security("feed")) as one,
        oz.Publisher("tcp://127.0.0.1:*", context=context, security=ring.security("other")) as another,
        oz.Subscriber(context=context, filtering="publisher", security=ring.security("desk")) as sub,
    ):
        sub.subscribe("md.>")
        for publisher in (one, another):
            sub.connect(publisher.endpoint)
        sub.wait_ready(DEADLINE)
        one.publish("md.a", b"")
        another.publish("md.b", b"")
        assert sorted(received(sub, 2)) == ["md.a", "md.b"]
    assert not any(thread.is_alive() for thread in own_threads(context))


def own_threads(context):
    """Wait for the authenticator of a context that has ended; return it if it has not."""
    for thread in threading.enumerate():
        if thread.name == "oz-authenticator" and thread._target.__self__.context is context:
            thread.join(DEADLINE)
            yield thread


def test_a_context_with_an_authenticator_of_its_own_is_refused(ring):
    with zmq.Context() as context, context.socket(zmq.REP) as other:
        other.bind("inproc://zeromq.zap.01")
        with pytest.raises(oz.ConfigurationError, match="an authenticator already"):
            oz.Publisher("tcp://127.0.0.1:*", context=context, security=ring.security("feed"))


# who may subscribe -----------------------------------------------------------------------------------------


def test_what_may_not_be_had_is_refused_with_rule_and_witness(pub, sub):
    sub.subscribe("md.*.x")
    with pytest.raises(oz.PermissionDenied) as raised:
        sub.wait_ready(DEADLINE)
    assert raised.value.subject == "md.secret.x"
    assert "deny subscribe 'md.secret.>'" in raised.value.rule
    assert "line 4" in raised.value.rule
    assert pub.stats.denied == 1


def test_whoever_only_receives_is_told_too_once_and_gets_the_rest(pub, sub):
    sub.subscribe("md.eu")
    sub.subscribe("orders.>")
    with pytest.raises(oz.PermissionDenied, match="orders"):
        sub.receive(timeout=DEADLINE)
    pub.publish("orders.1", b"")
    pub.publish("md.eu", b"")
    assert received(sub, 1) == ["md.eu"]


def test_one_denied_among_many_that_are_declared_together_takes_nothing_from_the_others(pub, sub):
    for number in range(60):
        sub.subscribe(f"md.{number}")
    sub.subscribe("orders.>")
    with pytest.raises(oz.PermissionDenied, match="orders"):
        sub.receive(timeout=DEADLINE)

    def is_granted():
        with pytest.raises(oz.Timeout):
            sub.receive(timeout=0.01)
        return pub.interest("md.59")

    until(is_granted)
    assert not pub.interest("orders.1")


def test_iteration_is_told_too(pub, sub):
    sub.subscribe("orders.>")
    reading = Thread(lambda: next(iter(sub)))
    with pytest.raises(oz.PermissionDenied):
        reading.outcome()


def test_shared_patterns_and_groups_are_refused_as_well(ring, pub, sub):
    sub.subscribe("md.eu", group="workers")
    with pytest.raises(oz.PermissionDenied, match="join a group"):
        sub.wait_ready(DEADLINE)
    security = ring.security("desk")
    with oz.Subscriber(pub.endpoint, filtering="publisher", shared=True, security=security) as sharing:
        sharing.subscribe("md.secret.>")
        pub.wait_for_subscribers(0, timeout=0)
        until(lambda: pub.interest("md.secret.x") or pub.stats.denied > 1)
        assert not pub.interest("md.secret.x")


@pytest.mark.parametrize("prefix", [b"", b"m", b"md.", b"md.s", b"md.secret.x", b"\xff"])
def test_a_plain_prefix_is_granted_only_as_a_whole(pub, raw, sub, prefix):
    socket = raw("desk", prefix, b"md.eu.")
    until(lambda: pub.stats.denied)
    for subject in ("md.secret.x", "md.us.1", "md.eu.1"):
        publish_until(pub, subject, lambda: True)
    publish_until(pub, "md.eu.1", lambda: socket.poll(0))
    assert socket.recv_multipart()[0] == b"md.eu.1"


def test_nobody_hears_another_s_stream(pub, sub, raw):
    sub.subscribe("md.eu")
    sub.wait_ready(DEADLINE)
    (name,) = [one.name for one in engine_of(pub).router.streams.values()]
    before = pub.stats.denied
    thief = raw("other", keys.stream_key(name), b"x.")
    until(lambda: pub.stats.denied > before)
    for _ in range(10):
        pub.publish("md.eu", b"")
    assert received(sub, 10) == ["md.eu"] * 10
    publish_until(pub, "x.1", lambda: thief.poll(0))
    while thief.poll(0):
        assert thief.recv_multipart()[0] == b"x.1"


def test_permissions_that_change_hold_at_once_for_those_who_are_there(ring, pub, sub, caplog):
    sub.subscribe("md.eu")
    sub.wait_ready(DEADLINE)
    ring.permit(desk='subscribe = { allow = ["md.us"] }')
    with pytest.raises(oz.PermissionDenied):
        sub.receive(timeout=DEADLINE)
    assert not pub.interest("md.eu")
    sub.subscribe("md.us")
    until(lambda: pub.interest("md.us"))
    told = " ".join(one.getMessage() for one in caplog.records)
    assert f"a connection of key {ring.public('desk')} is ended" in told
    assert "what is trusted or allowed has changed" in told
    assert "Limits.unsent" not in told


def test_permissions_that_make_no_sense_change_nothing(ring, pub, sub, caplog):
    sub.subscribe("md.eu")
    sub.wait_ready(DEADLINE)
    with caplog.at_level(logging.ERROR, "oz.security"):
        ring.permissions.write_text('default = "perhaps"\n')
        until(lambda: "what it said before holds" in caplog.text)
    pub.publish("md.eu", b"")
    assert received(sub, 1) == ["md.eu"]


# who may publish -------------------------------------------------------------------------------------------


@pytest.fixture
def listener(ring):
    """A subscriber that publishers connect to; desk may publish md.> only."""
    ring.permit(
        desk='publish = { allow = ["md.>"], deny = ["md.secret.>"] }', other='publish = { allow = [">"] }'
    )
    with oz.Subscriber(
        bind="tcp://127.0.0.1:*", filtering="publisher", security=ring.security("feed", permissions=True)
    ) as made:
        yield made


def test_what_a_key_may_not_publish_is_dropped_and_counted(ring, listener):
    listener.subscribe(">")
    with oz.Publisher(connect=listener.endpoint, security=ring.security("desk")) as pub:
        listening = Thread(lambda: listener.receive(timeout=DEADLINE).subject)
        pub.wait_for_subscribers(timeout=DEADLINE)
        with pub.batch():
            for subject in ("orders.1", "md.secret.1", "md.1"):
                pub.publish(subject, b"")
        assert listening.outcome() == "md.1"
        assert listener.stats.denied == 2
        assert listener.stats.lost == 0


def test_plain_messages_are_looked_at_as_well(ring, listener):
    with (
        oz.Subscriber(bind="tcp://127.0.0.1:*", security=ring.security("feed", permissions=True)) as sub,
        ring.equip(zmq.Context.instance().socket(zmq.PUB), "desk", "feed") as socket,
    ):
        sub.subscribe(b"")
        socket.linger = 0
        socket.connect(sub.endpoint)
        receive_until(sub, lambda: socket.send_multipart([b"orders.1", b""]) or sub.stats.denied)
        socket.send_multipart([b"md.1", b""])
        assert received(sub, 1) == ["md.1"]


def test_nobody_speaks_in_the_name_of_another_publisher(ring, listener):
    listener.subscribe("md.>")
    with oz.Publisher(connect=listener.endpoint, security=ring.security("desk")) as pub:
        listening = Thread(lambda: listener.receive(timeout=DEADLINE))
        pub.wait_for_subscribers(timeout=DEADLINE)
        pub.publish("md.1", b"")
        first = listening.outcome()
        (source,) = next(iter(engine_of(listener).receiver.streams.by_key.values())).sources.values()
        name = next(iter(engine_of(listener).receiver.streams.by_key))
        forged = head_start(name, CONTROL, first.origin, source.epoch + 1) + head_end(10**9, 0)
        with ring.equip(zmq.Context.instance().socket(zmq.PUB), "other", "feed") as socket:
            socket.linger = 0
            socket.connect(listener.endpoint)
            receive_until(listener, lambda: socket.send(forged) or listener.stats.denied)
        pub.publish("md.2", b"")
        assert listener.receive(timeout=DEADLINE).subject == "md.2"
        assert listener.stats.contradictions == listener.stats.lost == 0


def test_a_publisher_that_was_connected_to_is_known_by_its_endpoint(ring, listener):
    with (
        oz.Publisher("tcp://127.0.0.1:*", security=ring.security("desk")) as desk,
        oz.Publisher("tcp://127.0.0.1:*", security=ring.security("other")) as other,
        oz.Subscriber(filtering="publisher", security=ring.security("feed", permissions=True)) as sub,
    ):
        sub.subscribe("*")
        for publisher in (desk, other):
            sub.connect(publisher.endpoint)
        sub.wait_ready(DEADLINE)
        desk.publish("a", b"")
        other.publish("b", b"")
        assert received(sub, 1) == ["b"]
        receive_until(sub, lambda: sub.stats.denied == 1)


# how it is made --------------------------------------------------------------------------------------------


def test_it_is_read_from_a_file_whose_paths_are_relative(ring, tmp_path):
    (tmp_path / "oz.toml").write_text(
        '[security]\nkey = "keys/feed.key_secret"\ntrusted = "trusted"\npermissions = "permissions.toml"\n'
        '[security.servers]\n"tcp://hub:1" = "desk"\n'
    )
    made = oz.Security.from_file(tmp_path / "oz.toml")
    assert made.public_key == ring.public("feed")
    assert set(made.trusted.values()) == {"feed", "desk", "other"}
    assert credentials_of(made).permissions is not None
    assert ring.pair("feed").secret not in repr(made)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", r"below a line \[security\]"),
        ("[security]\nkey = 'keys/feed.key_secret'\n", "trusted"),
        ("[security]\nkey = 1\ntrusted = 'trusted'\n", "give a path"),
        ("[security]\nkye = 'x'\n", "there are key, trusted"),
        ("[security]\nkey = 'gone'\ntrusted = 'trusted'\n", "No such file"),
        ("[security]\nkey = 'keys/feed.key_secret'\ntrusted = 'trusted'\nservers = 1\n", "for each endpoint"),
        (
            "[security]\nkey = 'keys/feed.key_secret'\ntrusted = 'trusted'\nservers = {'tcp://a:1' = 'b'}\n",
            "no certificate",
        ),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(ring, tmp_path, text, told):
    (tmp_path / "oz.toml").write_text(text)
    with pytest.raises(oz.ConfigurationError, match=told):
        oz.Security.from_file(tmp_path / "oz.toml")


@pytest.mark.parametrize("kind", [oz.Publisher, oz.Subscriber])
def test_what_is_no_security_is_refused(kind):
    with pytest.raises(TypeError, match=r"an oz\.Security"):
        kind(security="keys")
