"""Detection of logged failures: event loops and oz log the exception of a callback, and continue."""

from __future__ import annotations

import asyncio
import logging

from simulation.ledger import check


class _Errors(logging.Handler):
    """Texts of logged errors."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.texts = []

    def emit(self, record):
        self.texts.append(
            f"{record.getMessage()}: {record.exc_info[1]!r}" if record.exc_info else record.getMessage()
        )


async def unfailing(work):
    """Await `work`. Fail if a callback of the loop raises, or if oz logs an error."""
    failed, errors, logger = [], _Errors(), logging.getLogger("oz")
    before = logger.level, logger.propagate
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    logger.addHandler(errors)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        await work
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        logger.removeHandler(errors)
    check(not failed, "on the loop there failed {}", failed[:1])
    check(not errors.texts, "oz logged {}", errors.texts[:1])
