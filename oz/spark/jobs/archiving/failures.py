"""What went wrong on an executor, as its own error instead of Spark's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from oz.errors import JournalError

_RAISED = re.compile(r"^oz\.[\w.]*(?:JournalError|RangeGone): (.+)$", re.MULTILINE)


@contextmanager
def errors_of_executors() -> Iterator[None]:
    """Raise what a reader of the journal raised on an executor; other failures stay as Spark reports them.

    Raises:
        JournalError: the journal is damaged, or something of it is gone.
    """
    try:
        yield
    except PySparkException as error:
        found = _RAISED.search(str(error))
        if found is None:
            raise
        raise JournalError(found[1]) from error
