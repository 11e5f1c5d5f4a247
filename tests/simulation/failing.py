"""Failures that a run would not notice: a loop logs the exception of a callback and goes on, and so does oz."""

from __future__ import annotations

import asyncio
import logging

from simulation.ledger import check


class _Errors(logging.Handler):
    """Keeps the texts of errors."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.texts = []

    def emit(self, record):
        self.texts.append(
            f"{record.getMessage()}: {record.exc_info[1]!r}" if record.exc_info else record.getMessage()
        )


async def unfailing(work):
    """Await something. Meanwhile no callback of the loop may raise, and oz may log no error."""
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
