"""TCP connections whose other end has vanished are noticed by the system."""

import sys

import pytest

import oz
from support.waiting import DEADLINE, until

KEEPALIVE_TIMER = "02"


@pytest.mark.skipif(sys.platform != "linux", reason="the system's table of connections is read")
@pytest.mark.parametrize("filtering", ["publisher", "prefix"])
def test_the_system_watches_both_ends_of_a_connection(filtering):
    with oz.Publisher("tcp://127.0.0.1:*") as pub, oz.Subscriber(pub.endpoint, filtering=filtering) as sub:
        sub.subscribe("a")
        sub.wait_ready(timeout=DEADLINE)
        endpoint = pub.endpoint if filtering == "prefix" else pub.link_endpoints[0]
        port = f":{int(endpoint.rpartition(':')[2]):04X}"

        def timers():
            rows = []
            # Sockets of links are of IPv6 and take IPv4 too.
            for name in ("tcp", "tcp6"):
                with open(f"/proc/self/net/{name}") as table:
                    rows += [line.split() for line in table][1:]
            # Established: 01. A connection that sends has another timer for a moment.
            return [row[5][:2] for row in rows if row[3] == "01" and port in row[1] + row[2]]

        until(lambda: timers() == [KEEPALIVE_TIMER, KEEPALIVE_TIMER])
