"""Testing: a bus in one process, on a clock that jumps and with faults; messages for handlers alone.

::

    with oz.testing.Bus() as bus:

        async def main():
            async with bus.node("asks") as asks, bus.node("answers") as answers:
                answers.subscribe("svc.price", handler=price)
                await asyncio.sleep(3600)
                return await asks.request("svc.price", "tea")

        assert bus.run(main()).payload == 42

Below that is a model of what oz uses of ZeroMQ: `network` has who listens where and the faults, `context` the
processes that sockets are made by, `proxy` the proxies between them. No real socket, thread or time is in it.
"""

from oz.testing.bus import Bus
from oz.testing.fronts import Publisher as Publisher
from oz.testing.fronts import Subscriber as Subscriber
from oz.testing.loop import Deadlock, VirtualLoop
from oz.testing.messages import RecordedMessage, message
from oz.testing.nodes import Node as Node

# The classes of a bus's members have names for annotations; a bus makes them.
__all__ = ["Bus", "Deadlock", "RecordedMessage", "VirtualLoop", "message"]
