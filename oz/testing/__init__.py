"""Testing: messages for handlers alone, and an event loop on a virtual clock.

::

    async def quote(message):
        await message.reply(f"{message.payload} costs 42")


    asked = oz.testing.message("svc.price", "tea")
    asyncio.run(quote(asked))
    assert asked.replies[0].payload == "tea costs 42"

Below that is a model of what oz uses of ZeroMQ: `network` has who listens where and the faults, `context` the
processes that sockets are made by, `proxy` the proxies between them. No real socket, thread or time is in it.
"""

from oz.testing.loop import Deadlock, VirtualLoop
from oz.testing.messages import RecordedMessage, message

__all__ = ["Deadlock", "RecordedMessage", "VirtualLoop", "message"]
