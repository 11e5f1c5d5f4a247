"""Arguments and calls that multicast refuses, with the reason."""

import pytest

from multicast import needs
from multicast.loopback import (
    FAST,
    GROUP,
    joined,
    options,
    payloads,
    publisher_at,
    receive_nothing,
    subscriber_at,
)
from oz.errors import ConfigurationError
from oz.options import Options
from oz.publisher.sync import Publisher
from oz.subscriber.sync import Subscriber
from oz.transport.errors import EndpointError
from support.keyring import Keyring
from support.ports import lasting_udp_port
from support.waiting import until

pytestmark = [needs.pgm, pytest.mark.timeout(180)]


def test_a_subscriber_refuses_filtering_by_the_publisher(endpoint):
    with pytest.raises(ConfigurationError, match="has no links"):
        Subscriber(endpoint, filtering="publisher")


def test_a_subscriber_refuses_keys_that_would_be_ignored(endpoint, tmp_path):
    security = Keyring(tmp_path, "desk").security("desk")
    with pytest.raises(EndpointError, match="multicast has no keys"):
        Subscriber(endpoint, security=security)


def test_a_subscriber_does_not_bind_multicast(endpoint):
    with pytest.raises(EndpointError, match="connect="):
        Subscriber(bind=endpoint)


@pytest.mark.parametrize(
    "arguments", [{"group": "g"}, {"overflow": "conflate"}, {"last_value": True}, {"ack": "handled"}]
)
def test_a_subscription_refuses_options_that_need_a_link(endpoint, arguments):
    with subscriber_at(endpoint) as subscriber, pytest.raises(ConfigurationError, match="has no links"):
        subscriber.subscribe("md.>", **arguments)
    with Subscriber() as subscriber:
        subscriber.subscribe("md.>", **arguments)
        with pytest.raises(ConfigurationError, match="has no links"):
            subscriber.connect(endpoint)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"last_value": True}, "last values need links"),
        ({"links": "tcp://127.0.0.1:5555"}, "no links"),
        ({"security": "keys.toml"}, "no keys"),
        ({"options": options(delimiter=b" ")}, "plain=True"),
    ],
)
def test_a_publisher_refuses_options_that_multicast_lacks(endpoint, arguments, says):
    with pytest.raises(ConfigurationError, match=says):
        Publisher(endpoint, **arguments)


def test_a_publisher_cannot_count_subscribers_and_has_one_endpoint(endpoint):
    with publisher_at(endpoint) as publisher:
        with pytest.raises(ConfigurationError, match="do not answer"):
            publisher.wait_for_subscribers(timeout=0)
        with pytest.raises(ConfigurationError, match="do not answer"):
            publisher.has_subscribers("md.x")
        with pytest.raises(EndpointError, match="second endpoint"):
            publisher.bind(f"epgm://lo;{GROUP}:{lasting_udp_port()}")
        with pytest.raises(EndpointError, match="no multicast endpoint"):
            publisher.bind("tcp://127.0.0.1:*")
        assert publisher.subscribers == []
        assert publisher.link_endpoints == ()
        publisher.close(timeout=0)


def test_a_publisher_of_links_does_not_become_one_for_multicast(endpoint):
    with (
        Publisher("tcp://127.0.0.1:*") as publisher,
        pytest.raises(ConfigurationError, match="options=Options"),
    ):
        publisher.bind(endpoint)


def test_options_of_another_type_are_refused():
    with pytest.raises(ConfigurationError, match=r"oz\.Multicast"):
        Options(multicast={"rate_kbps": 5})


def test_a_second_publisher_on_one_port_is_refused_until_the_first_has_closed(endpoint):
    with publisher_at(endpoint) as first:
        with pytest.raises(EndpointError, match="another publisher on this host has UDP port"):
            publisher_at(endpoint)
        first.close(timeout=0)
    publisher_at(endpoint).close(timeout=0)


def test_an_endpoint_may_be_left_and_joined_again(endpoint):
    with subscriber_at(endpoint) as subscriber:
        subscriber.disconnect(endpoint)
        assert subscriber.publishers == []
        subscriber.connect(endpoint)
        subscriber.subscribe("md.>")
        with publisher_at(endpoint, FAST) as publisher:
            joined(subscriber)
            publisher.unbind(endpoint)
            assert publisher.endpoints == ()
            publisher.bind(endpoint)

            def arrives():
                publisher.publish("md.x", b"1")
                return not receive_nothing(subscriber)

            until(arrives)
            publisher.publish("md.x", b"2")
            until(lambda: payloads(subscriber, 1) == [b"2"])
            publisher.close(timeout=0)
