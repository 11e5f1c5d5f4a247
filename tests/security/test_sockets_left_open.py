"""Sockets with keys that nobody closes: the end of the interpreter is quiet."""

import pytest
import zmq

from support.keyring import Keyring
from support.scripts import run
from support.sizes import one_of_each

pytestmark = pytest.mark.skipif(not zmq.has("curve"), reason="this libzmq has no CURVE")

SYNC = """
import sys
import oz
feed, desk = (oz.Security(f"{sys.argv[1]}/keys/{one}.key_secret", trusted=f"{sys.argv[1]}/trusted")
              for one in ("feed", "desk"))
publisher = oz.Publisher("tcp://127.0.0.1:*", security=feed)
subscriber = oz.Subscriber(publisher.endpoint, filtering=sys.argv[2], security=desk)
subscriber.subscribe("md.>")
publisher.wait_for_subscribers(timeout=40)
# It is found by the garbage collector.
cycle = [subscriber]
cycle.append(cycle)
"""
ASYNC = """
import asyncio, sys
import oz, oz.asyncio
feed, desk = (oz.Security(f"{sys.argv[1]}/keys/{one}.key_secret", trusted=f"{sys.argv[1]}/trusted")
              for one in ("feed", "desk"))
async def main():
    global publisher, subscriber
    publisher = oz.asyncio.Publisher("tcp://127.0.0.1:*", security=feed)
    subscriber = oz.asyncio.Subscriber(publisher.endpoint, filtering=sys.argv[2], security=desk)
    subscriber.subscribe("md.>")
    await publisher.wait_for_subscribers(timeout=40)
    cycle = [subscriber]
    cycle.append(cycle)
asyncio.run(main())
"""


@pytest.mark.parametrize(("program", "filtering"), one_of_each([SYNC, ASYNC], ["publisher", "prefix"]))
def test_a_program_that_closes_nothing_ends_without_a_word(tmp_path, program, filtering):
    Keyring(tmp_path, "feed", "desk")
    assert run("-c", program, tmp_path, filtering) == ""
