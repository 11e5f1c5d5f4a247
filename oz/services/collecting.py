"""What a recorder has received and not handed over to be written, until it is worth an Arrow batch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oz.journal.columns import arranged
from oz.journal.schema import BATCH_BYTES, BATCH_ROWS
from oz.message import Arrived, Message, MessageBatch, PlainBatch
from oz.services.columns import Loss, columns_of

_log = logging.getLogger("oz.recorder")

OVERHEAD = 100
"""Bytes that a message takes besides its payload, about."""


class Rows(NamedTuple):
    """Messages that were received one after another, laid out to be written.

    Attributes:
        columns: as `Writer.append_columns` takes them.
        count: how many they are.
        bytes: the size of their payloads.
        time_ns: when the first was received.
    """

    columns: dict[str, Any]
    count: int  # type: ignore[assignment]
    bytes: int
    time_ns: int

    def halves(self) -> tuple[Rows, Rows]:
        """Divide them in two; there are two at least."""
        return self._part(0, self.count // 2), self._part(self.count // 2, self.count)

    def _part(self, start: int, end: int) -> Rows:
        columns = {
            name: values[start:end] if isinstance(values, (list, tuple, range, pa.Array)) else values
            for name, values in self.columns.items()
        }
        payloads = columns["payload"]
        sizes = pc.sum(pc.binary_length(payloads)).as_py() or 0
        time_ns = columns.get("time_ns")
        first_ns = time_ns[0].as_py() if isinstance(time_ns, pa.Array) else self.time_ns
        return Rows(columns, end - start, sizes, first_ns)


class Collector:
    """Collects messages until they are laid out, all at once: each Arrow batch has its price.

    That is done in the thread that receives. Another would have to wait for the interpreter's lock again and
    again, and while one waits each call into ZeroMQ costs several times as much.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._arrived: list[Arrived] = []
        self.count = 0
        """Messages."""
        self.bytes = 0
        """The size of their payloads, about."""

    @property
    def oldest_ns(self) -> int | None:
        """When the first was received; None when there is none."""
        return self._arrived[0].time_ns if self._arrived else None

    def add(self, arrived: Arrived) -> bool:
        """Take in what was received; False, and not so, if that exceeded a batch."""
        count, size = self.count + count_of(arrived), self.bytes + _bytes_of(arrived)
        if self._arrived and (count > BATCH_ROWS or size > BATCH_BYTES):
            return False
        self._arrived.append(arrived)
        self.count, self.bytes = count, size
        return True

    def take(self) -> list[Rows | Loss]:
        """Lay out what is there, in order, and hold it no longer; what cannot be stored is lost."""
        by_kind = groupby(self._arrived, _kind_of)
        rows = [one for _, some in by_kind for one in _laid_out(list(some))]
        self._arrived = []
        self.count = self.bytes = 0
        return rows


def _kind_of(arrived: Arrived) -> type:
    """Tell batches from messages, all of whose kinds can be laid out together."""
    return Message if isinstance(arrived, Message) else type(arrived)


def count_of(arrived: Arrived) -> int:
    """Count messages."""
    return len(arrived) if isinstance(arrived, (MessageBatch, PlainBatch)) else 1


def _bytes_of(arrived: Arrived) -> int:
    if isinstance(arrived, MessageBatch):
        return arrived.size
    return len(arrived.payload) if isinstance(arrived, Message) else sum(map(len, arrived.payloads))


def _laid_out(arrived: list[Arrived]) -> Iterator[Rows | Loss]:
    try:
        columns = arranged(columns_of(arrived))
    except (ValueError, TypeError, OverflowError) as error:
        yield from _divided(arrived, error)
        return
    payloads = columns["payload"]
    yield Rows(columns, len(payloads), payloads.nbytes - 4 * len(payloads), arrived[0].time_ns)


def _divided(arrived: list[Arrived], error: Exception) -> Iterator[Rows | Loss]:
    """Lay out those that can be stored of messages that cannot all be."""
    first, middle = arrived[0], len(arrived) // 2
    if middle:
        yield from _laid_out(arrived[:middle])
        yield from _laid_out(arrived[middle:])
    elif not isinstance(first, Message):
        yield from _laid_out([*first.messages()])
    else:
        _log.warning("a message cannot be recorded, and becomes a gap: %r: %s", first.subject, error)
        yield Loss(1, first.time_ns, first.origin, first.sequence)
