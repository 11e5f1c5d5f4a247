"""A journal with batches of more than 8,192 records, as sealing makes them of small appends."""

from pathlib import Path

import msgpack
import pyarrow as pa
from oz.journal.schema import COLUMNS

from oz.journal import Record, Writer

SIZES = (8_191, 8_192, 8_193, 20_000, 20_000, 20_000)
"""The records of each batch, in order."""

FILES = (SIZES[:1], SIZES[1:2], SIZES[2:3], SIZES[3:5], SIZES[5:])
"""Those of each sealed segment."""

STARTS = tuple(sum(SIZES[:at]) for at in range(len(SIZES) + 1))
"""The first offset of each batch, and the end of what is sealed."""

TAIL = 9_000
"""The records behind that in the segment that grows, whose batches have 8,192 at most."""

END = STARTS[-1] + TAIL

CUTS = tuple(sorted({end for start in STARTS for end in (start - 1, start, start + 1)} - {-1}))
"""Offsets at, right before and right behind each boundary."""

TIME = 1_772_366_400_000_000_000
KINDS = 7
_APPENDED = 4_000  # records; sealing puts together what has fewer than 4,096
_HEADERS = [msgpack.packb({"key": f"k{at}"}) for at in range(KINDS)]


def subject(at: int) -> str:
    return f"s.{at % KINDS}.x"


def record(at: int) -> Record:
    """The record of an offset, as it is read."""
    return Record(
        subject(at), b"%d" % at, TIME + at, b"o" * 16, at, headers=_HEADERS[at % KINDS], kind=0, offset=at
    )


def make(directory: Path) -> Path:
    """Write the journal."""
    first = 0
    for sizes in FILES:
        _append(directory, first, sum(sizes), _APPENDED)
        first += sum(sizes)
    _append(directory, first, TAIL, TAIL, seal_on_close=False)
    return directory


def _append(directory: Path, first: int, rows: int, step: int, **options: bool) -> None:
    with Writer(directory, sync="never", **options) as writer:
        for start in range(first, first + rows, step):
            numbers = range(start, min(start + step, first + rows))
            writer.append_columns(
                {
                    "subject": [subject(at) for at in numbers],
                    "payload": [b"%d" % at for at in numbers],
                    "time_ns": [TIME + at for at in numbers],
                    "headers": [_HEADERS[at % KINDS] for at in numbers],
                    "sequence": numbers,
                    "origin": b"o" * 16,
                }
            )


def file_of(directory: Path, start: int) -> Path:
    """The sealed segment that begins at an offset."""
    return directory / f"{start:020d}.arrow"


def batches_of(path: Path) -> list[pa.RecordBatch]:
    """What other programs see in a sealed segment."""
    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
        assert tuple(reader.schema.names) == COLUMNS
        return [reader.get_batch(at) for at in range(reader.num_record_batches)]
