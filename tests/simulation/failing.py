"""What is called back on a loop and fails: a loop logs that and goes on, and so a run would not notice."""

from __future__ import annotations

import asyncio

from simulation.ledger import check


async def unfailing(work):
    """Await something; nothing that its loop calls back meanwhile may raise."""
    failed = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    await work
    check(not failed, "on the loop there failed {}", failed[:1])
