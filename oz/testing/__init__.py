"""Tools for tests: a bus in one process with a virtual clock and faults, and messages for tests of handlers.

::

    with oz.testing.Bus() as bus:

        async def main():
            async with bus.node("asks") as asks, bus.node("answers") as answers:
                answers.subscribe("svc.price", handler=price)
                await asyncio.sleep(3600)
                return await asks.request("svc.price", "tea")

        assert bus.run(main()).payload == 42

A bus uses *model sockets* on a virtual network: Python objects that behave like sockets of libzmq. The module `network`
implements bound endpoints and faults. `connections` implements the messages in transit. `sockets` implements the model
sockets. `context` implements the model of a process.
"""

from oz.testing.bus import Bus
from oz.testing.fronts import Publisher as Publisher
from oz.testing.fronts import Subscriber as Subscriber
from oz.testing.loop import Deadlock, VirtualLoop
from oz.testing.messages import RecordedMessage, message
from oz.testing.nodes import Node as Node

# Publisher, Subscriber and Node are imported for annotations. A bus creates their objects.
__all__ = ["Bus", "Deadlock", "RecordedMessage", "VirtualLoop", "message"]
