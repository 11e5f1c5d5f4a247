"""Sockets that may meet any of many trusted keys: which is tried, and when."""

import itertools
import threading

import pytest
import zmq

import oz
import oz.asyncio
from oz.transport import credentials
from oz.transport.handshakes import Handshakes, Outcome
from support.keyring import Keyring, published_anew
from support.ports import lasting_endpoint
from support.receiving import receive_until, received
from support.waiting import DEADLINE, Thread, until

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")


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
