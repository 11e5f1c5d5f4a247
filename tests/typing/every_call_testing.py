"""Every public call of oz.testing once. They are checked, not run."""

import asyncio
from typing import assert_type

import oz
from oz.testing import RecordedMessage, VirtualLoop, message


def alone(asked: RecordedMessage) -> None:
    """Answer a message that nobody sent."""
    assert_type(message("svc.price", b"tea", headers={"unit": "kg"}), RecordedMessage)
    asked.reply(b"42", headers={})
    assert_type(asked.replies, list[oz.Message])


def on_a_virtual_clock() -> None:
    """Run on a loop whose clock jumps."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        print(runner.get_loop().time())
    loop = VirtualLoop()
    assert_type(loop.time(), float)
