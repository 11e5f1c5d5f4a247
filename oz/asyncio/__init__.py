"""The sockets that wait by awaiting: the same names, the same arguments.

::

    async with oz.asyncio.Subscriber("tcp://127.0.0.1:5555") as sub:
        sub.subscribe("time.*.east")
        async for message in sub:
            print(message.subject, message.payload)
"""

from oz.asyncio.node import Node
from oz.asyncio.publisher import Publisher
from oz.asyncio.subscriber import Subscriber
from oz.asyncio.subscriptions import NodeSubscription, ReceivedSubscription, Subscription
from oz.dropin.asyncio import Poller, PubSocket, SubSocket

__all__ = [
    "Node",
    "NodeSubscription",
    "Poller",
    "PubSocket",
    "Publisher",
    "ReceivedSubscription",
    "SubSocket",
    "Subscriber",
    "Subscription",
]
