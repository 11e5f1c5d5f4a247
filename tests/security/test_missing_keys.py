"""Timeouts of a side without keys that connects to a listener with keys: the error names the cause."""

import asyncio

import pytest
import zmq

import oz
import oz.asyncio
from oz.services import ask
from support.waiting import DEADLINE

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")

CAUSE = "demands keys does not answer a side without keys: give security="


def wait_blocking(kind, endpoint):
    if kind == "publisher":
        with oz.Publisher(connect=endpoint) as pub:
            pub.wait_for_subscribers(timeout=0.2)
    else:
        with oz.Subscriber(endpoint, filtering="publisher") as sub:
            sub.subscribe("md.eu")
            sub.wait_ready(timeout=0.2)


async def wait_in_loop(kind, endpoint):
    if kind == "publisher":
        async with oz.asyncio.Publisher(connect=endpoint) as pub:
            await pub.wait_for_subscribers(timeout=0.2)
    else:
        async with oz.asyncio.Subscriber(endpoint, filtering="publisher") as sub:
            sub.subscribe("md.eu")
            await sub.wait_ready(timeout=0.2)


@pytest.mark.parametrize("is_asyncio", [False, True])
@pytest.mark.parametrize("kind", ["publisher", "subscriber"])
def test_timeout_of_a_socket_without_keys_names_missing_keys(ring, pub, kind, is_asyncio):
    with oz.Subscriber(bind="tcp://127.0.0.1:*", security=ring.security("desk")) as sub:
        endpoint = sub.endpoint if kind == "publisher" else pub.endpoint
        with pytest.raises(oz.Timeout, match=CAUSE):
            asyncio.run(wait_in_loop(kind, endpoint)) if is_asyncio else wait_blocking(kind, endpoint)


def test_timeout_of_a_bound_publisher_does_not_name_keys():
    with oz.Publisher("tcp://127.0.0.1:*") as pub, pytest.raises(oz.Timeout) as raised:
        pub.wait_for_subscribers(timeout=0)
    assert "security=" not in str(raised.value)


def test_timeouts_of_a_node_without_keys_name_missing_keys(feed, directory):
    with oz.Node("plain", peers=feed.endpoint, directory=directory / "plain") as plain:
        with pytest.raises(oz.Timeout, match=f"{feed.endpoint} has not answered yet.*{CAUSE}.*OZ_SECURITY"):
            plain.wait_ready(0)
        with pytest.raises(oz.Timeout, match=f"0 of 1 peers are up.*{CAUSE}.*OZ_SECURITY"):
            plain.wait_for_peers(timeout=0.2)
        plain.wait_ready(DEADLINE)


def test_error_of_a_name_server_that_does_not_answer_names_missing_keys(server, directory):
    options = {"join_timeout": 0.2, "directory": directory / "plain"}
    with pytest.raises(oz.NameserverUnavailable, match=f"{CAUSE}.*OZ_SECURITY"):
        oz.Node("plain", nameserver=server.endpoint, **options)
    with pytest.raises(oz.NameserverUnavailable, match=CAUSE):
        ask(server.endpoint, timeout=0.2)
