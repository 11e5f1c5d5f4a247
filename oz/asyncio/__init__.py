"""Classes for asyncio. They have the names and arguments of the classes of `oz`, but methods that wait are coroutines.

::

    async with oz.asyncio.Subscriber("tcp://127.0.0.1:5555") as sub:
        sub.subscribe("time.*.east")
        async for message in sub:
            print(message.subject, message.payload)
"""

from oz.dropin.asyncio import Poller, PubSocket, SubSocket
from oz.node.aio import Node
from oz.publisher.aio import Publisher
from oz.subscriber.aio import Subscriber, Subscription

__all__ = [
    "Node",
    "Poller",
    "PubSocket",
    "Publisher",
    "SubSocket",
    "Subscriber",
    "Subscription",
]
