"""The publisher process of `oz demo`: prints its endpoint, waits for its subscribers, replays the flights."""

from __future__ import annotations

import sys

import oz
from oz.demo import flights

END = "demo.end"
"""What follows the last flight, so that a subscriber knows that there are no more."""

PATIENCE = 10.0
"""Seconds that subscribers may take to come, to make room, and to fetch what is left."""


def replay(subscribers: int) -> None:
    """Publish every flight and then `END`, once so many subscribers are there.

    Raises:
        Timeout: they did not come.
        WouldBlock: one of them stopped reading.
    """
    messages = flights.load()
    publisher = oz.Publisher(
        bind="tcp://127.0.0.1:*", codec="msgpack", on_full="block", full_timeout=PATIENCE
    )
    with publisher:
        print(publisher.endpoint, flush=True)
        # Each subscribes to END last: whoever is seen there has subscribed to all that it wants.
        publisher.wait_for_subscribers(subscribers, subject=END, timeout=PATIENCE)
        publisher.publish_many(messages)
        publisher.publish(END, None)
        publisher.close(timeout=PATIENCE)


if __name__ == "__main__":
    replay(int(sys.argv[1]))
