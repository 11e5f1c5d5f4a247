"""Records as Python objects, and their layout in the columns of a journal.

The column `headers` is a MessagePack map of the headers of a message. Three entries hold the parts of a message
that have no column: `oz-frames` (a list of the frames after the first payload frame), `oz-id` (the id of the
message: bytes, or a list of a series and a number) and `oz-key` (the key of sticky queue groups).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from oz.message import Gap, Message


class Record(Message):
    """A message that was read from a journal: an `oz.Message` with an offset.

    `subject`, `payload`, `time_ns` (a multiple of 1,000, because a journal keeps microseconds), `origin`,
    `sequence`, `position`, `reply_to`, `headers`, `frames` and `subject_bytes` are as in `oz.Message`.

    Attributes:
        offset: the number of the record in the journal, from 0.
    """

    __slots__ = ("offset",)

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalGap(Gap):
    """Records or messages that are not in a journal.

    `count` is the number of lost messages or missing records; None if it is unknown. `origin` is `b""` and
    `subscription` None unless the recorder knew the publisher.

    Attributes:
        first: the first missing offset; for a recorded gap the offset of the gap record.
        end: the offset after the last missing offset, or after the gap record.
        reason: "retention": retention removed the records. "missing": the records were acknowledged, or their
            offsets were given, and they are lost. "recorded": the messages never reached the recorder.
        time_ns: when the loss was recorded, in nanoseconds since 1970; None unless the reason is "recorded".
        pattern: the pattern that the lost messages matched; None unless the reason is "recorded".
    """

    first: int
    end: int
    reason: str
    time_ns: int | None = None
    pattern: str | None = None


def read_records(
    batch: pa.RecordBatch, decode: Callable[[bytes], Any] | None
) -> Iterator[Record | JournalGap]:
    """Return the records of a batch with all columns, as objects."""
    raise NotImplementedError
