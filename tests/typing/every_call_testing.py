"""Every public call of oz.testing once. They are checked, not run."""

import asyncio
from typing import assert_type

from oz.testing import Bus, Node, Publisher, RecordedMessage, Subscriber, VirtualLoop, message


def alone(asked: RecordedMessage) -> None:
    """Reply to a message that was created by hand."""
    assert_type(message("svc.price", b"tea", headers={"unit": "kg"}), RecordedMessage)
    asked.reply(b"42", headers={})
    assert_type(asked.replies, list[RecordedMessage])


def on_a_virtual_clock() -> None:
    """Run on a loop whose clock jumps."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        print(runner.get_loop().time())
    loop = VirtualLoop()
    assert_type(loop.time(), float)


def on_a_bus() -> None:
    """Make a bus, run on it and let things go wrong."""
    with Bus(seed=1) as bus:
        assert_type(bus.run(asyncio.sleep(3600, 1)), int)
        assert_type(bus.publisher(last_value=True), Publisher)
        assert_type(bus.subscriber(filtering="publisher"), Subscriber)
        assert_type(bus.node("here", codec="json"), Node)
        assert_type(bus.now(), float)
        assert_type(bus.make_loop(), VirtualLoop)
        bus.cut("here", bus.publisher())
        bus.stall("here", bus.subscriber())
        bus.disturb(10, longest=1.0)
        bus.heal()
        bus.blocking(bus.subscriber()).receive(timeout=1.0)
        bus.kill("here")
    bus.close()


async def on_a_loop_of_its_user() -> None:
    """Use a bus on a loop that runs."""
    async with Bus() as bus, bus.node() as node:
        await node.publish("a", b"")


async def members(publisher: Publisher, subscriber: Subscriber, node: Node) -> None:
    """Know what is closed, and where."""
    print(publisher.closed, subscriber.closed, node.closed)
