"""What multicast sockets refuse over `epgm://` on the loopback interface, and say why."""

import pytest
import zmq

import oz
import oz.asyncio
from multicast import needs
from multicast.loopback import FAST, GROUP, joined, payloads
from support.ports import lasting_udp_port

pytestmark = [needs.pgm, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"filtering": "publisher"}, "no way back"),
        ({"filtering": "publisher", "plain": True}, "no way back"),
        ({"shared": True}, "no way back"),
        ({"delimiter": b" "}, "plain=True"),
        ({"plain": True, "on_gap": print}, "on_gap"),
        ({"plain": True, "on_advisory": print}, "on_advisory"),
    ],
)
def test_a_subscriber_refuses_what_multicast_cannot_do(endpoint, options, says):
    with pytest.raises(ValueError, match=says):
        oz.Subscriber(endpoint, **options)


@pytest.mark.parametrize("options", [{"group": "g"}, {"overflow": "conflate"}, {"last_value": True}])
def test_a_subscription_refuses_what_multicast_cannot_do(endpoint, options):
    with (
        oz.Subscriber(endpoint) as subscriber,
        pytest.raises(ValueError, match="multicast goes to everybody"),
    ):
        subscriber.subscribe("md.>", **options)


def test_a_publisher_refuses_what_multicast_cannot_do(endpoint):
    for options, says in (({"last_value": True}, "last_value"), ({"delimiter": b" "}, "plain=True")):
        with pytest.raises(ValueError, match=says):
            oz.Publisher(endpoint, **options)
    with oz.Publisher(endpoint) as publisher:
        with pytest.raises(ValueError, match="hears nothing"):
            publisher.wait_for_subscribers(timeout=0)
        with pytest.raises(ValueError, match="hears nothing"):
            publisher.interest("md.x")
        with pytest.raises(ValueError, match="second endpoint"):
            publisher.bind(f"epgm://lo;{GROUP}:{lasting_udp_port()}")
        with pytest.raises(ValueError, match="none of multicast"):
            publisher.bind("tcp://127.0.0.1:*")
        publisher.close(0)


@pytest.mark.parametrize("option", ["CURVE_SERVER", "PLAIN_SERVER", "ZAP_DOMAIN"])
def test_security_that_would_be_ignored_is_refused(endpoint, option):
    with oz.Subscriber(endpoint) as subscriber, pytest.raises(ValueError, match="CURVE"):
        subscriber.setsockopt(getattr(zmq, option), 1)


def test_options_of_zeromq_are_those_of_multicast(endpoint):
    with oz.Subscriber(endpoint) as subscriber:
        with pytest.raises(ValueError, match="RATE"):
            subscriber.setsockopt(zmq.RATE, 5)
        with pytest.raises(ValueError, match="MULTICAST_MAXTPDU"):
            subscriber.multicast_maxtpdu = 5
        subscriber.rcvhwm = 10


def test_a_second_publisher_on_one_port_is_refused_until_the_first_has_closed(endpoint):
    with oz.Publisher(endpoint) as first:
        with pytest.raises(ValueError, match="another publisher holds UDP port"):
            oz.Publisher(endpoint)
        first.close(0)
    oz.Publisher(endpoint).close(0)


def test_multicast_needs_a_socket_that_was_made_for_it(endpoint):
    with oz.Subscriber() as subscriber, pytest.raises(ValueError, match=r"multicast=oz\.Multicast"):
        subscriber.connect(endpoint)
    with pytest.raises(TypeError, match=r"oz\.Multicast"):
        oz.Subscriber(endpoint, multicast={"rate_kbps": 5})
    with pytest.raises(ValueError, match="without it plain subscribers"):
        oz.Publisher("tcp://127.0.0.1:*", plain=True)


def test_an_endpoint_may_be_left_and_taken_again(endpoint):
    with oz.Subscriber(endpoint, multicast=FAST) as subscriber:
        subscriber.disconnect(endpoint)
        subscriber.connect(endpoint)
        subscriber.subscribe("md.>")
        with oz.Publisher(endpoint, multicast=FAST) as publisher:
            joined(subscriber, 1)
            publisher.publish("md.x", b"1")
            assert payloads(subscriber, 1) == [b"1"]
            publisher.close(0)
