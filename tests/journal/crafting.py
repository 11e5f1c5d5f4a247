"""Files that an attacker crafts: sealed segments and streams with right checksums and wrong contents.

The checksums are computed here, from docs/journal.md, and not by the code that checks them.
"""

import json
import os
import random
import sys
import warnings
import zlib
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from oz.journal import SCHEMA
from support.journals import STAMP

_RESERVED = "crc32:"


def table_of(rows, first=0, **columns):
    """Return `rows` messages in columns of a journal; `columns` replaces some."""
    made = {
        "offset": pa.array(range(first, first + rows), pa.int64()),
        "time": pa.array([1_700_000_000_000_000] * rows, pa.timestamp("us", "UTC")),
        "kind": pa.array([0] * rows, pa.int8()),
        "subject": pa.array([f"a.{at}" for at in range(rows)]),
        "payload": pa.array([b"%d" % at for at in range(rows)], pa.binary()),
    }
    made |= columns
    return pa.table([made.get(field.name, pa.nulls(rows, field.type)) for field in SCHEMA], SCHEMA)


def sealed_file(directory, table, *, first=0, end=None, metadata=(), **options):
    """Write a sealed segment with right checksums; return its path.

    Args:
        directory: the directory of the journal.
        table: the records, of any schema.
        first: first offset in the name and in the metadata.
        end: the offset after the last there; by default as the table has rows.
        metadata: entries that replace the right entries.
        options: options of `pyarrow.parquet.ParquetWriter`.
    """
    end = first + table.num_rows if end is None else end
    options = {"compression": "zstd", "write_page_checksum": True, "store_schema": False, **options}
    entries = {
        "oz.version": "1",
        "oz.journal": "1" * 16,
        "oz.segment": "2" * 16,
        "oz.previous": "",
        "oz.first": first,
        "oz.end": end,
        "oz.times": "1700000000000000 1700000000000000",
        "oz.gaps": "0",
        "oz.empty": "",
        "oz.missing": "",
        **dict(metadata),
    }
    path = directory / "crafted"
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        writer.write_table(table)
        groups = max(1, -(-table.num_rows // (1 << 20)))
        reserved = _RESERVED + "0" * (8 * table.num_columns * groups)
        writer.add_key_value_metadata({key: str(value) for key, value in entries.items()})
        writer.add_key_value_metadata({"oz.checksums": reserved})
    data = bytearray(path.read_bytes())
    found = pq.read_metadata(path)
    assert found.num_row_groups == groups
    checksums = ""
    for number in range(groups):
        for at in range(table.num_columns):
            column = found.row_group(number).column(at)
            begin = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
            checksums += f"{zlib.crc32(data[begin : begin + column.total_compressed_size]):08x}"
    place = data.rindex(reserved.encode())
    data[place : place + len(reserved)] = (_RESERVED + checksums).encode()
    footer = data[-int.from_bytes(data[-8:-4], "little") - 8 :]
    path.unlink()
    named = directory / f"{first:020}-{end:020}-{zlib.crc32(footer):08x}.parquet"
    named.write_bytes(data)
    return named


def stamped(batch, segment, *, first=0, rows=None, options=None, patch=(b"", b"")):
    """Return the message of a batch with a stamp that has the right checksum; `patch` replaces bytes."""
    rows = batch.num_rows if rows is None else rows
    sink = pa.BufferOutputStream()
    writer = pa.ipc.new_stream(sink, SCHEMA, options=options)
    blank = b"oz.batch %08x %020d %010d %020d" % (0, first, rows, 0)
    writer.write_batch(batch, custom_metadata={"oz.batch": blank})
    data = sink.getvalue().to_pybytes()
    data = bytearray(data[data.rindex(b"\xff\xff\xff\xff", 0, STAMP.search(data).start()) :])
    if patch[0]:
        assert data.count(patch[0]) == 1
        data = bytearray(bytes(data).replace(*patch))
    place = data.index(blank)
    data[place : place + len(blank)] = b"oz.batch %08x %020d %010d %020d" % (0, first, rows, len(data))
    data[place + 9 : place + 17] = b"%08x" % zlib.crc32(data, zlib.crc32(segment.encode()))
    return bytes(data)


def stream_file(directory, *messages, segment="2" * 16, first=0, end=0, schema=SCHEMA, named=None):
    """Write an active segment of messages, and a mark that acknowledges all of it; return its path."""
    head = {
        "oz.version": "1",
        "oz.journal": "1" * 16,
        "oz.segment": segment,
        "oz.previous": "",
        "oz.first": first,
    }
    data = schema.with_metadata({key: str(value) for key, value in head.items()}).serialize().to_pybytes()
    data += b"".join(messages)
    path = directory / f"{first:020}-{named or segment}.arrows"
    path.write_bytes(data)
    mark = segment.encode() + b"".join(item.to_bytes(8, "little") for item in (first, len(data), end))
    (directory / "acknowledged").write_bytes(mark + zlib.crc32(mark).to_bytes(4, "little"))
    return path


def bomb(directory, form):
    """Write a small file that decodes to gigabytes; return its path."""
    if form == "sealed":
        # References to one value of a dictionary take no space, however many they are.
        rows = 1 << 20
        same = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([bytes(16_000)]))
        field = pa.field("payload", same.type, nullable=False)
        table = table_of(rows, subject=pa.array(["a"] * rows), payload=pa.array([b""] * rows, pa.binary()))
        return sealed_file(directory, table.set_column(4, field, same), use_dictionary=["payload", "subject"])
    batch = table_of(1, payload=pa.array([bytes(1 << 30)], pa.binary())).to_batches()[0]
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    return stream_file(directory, stamped(batch, "2" * 16, options=options), end=1)


def read_flipped_footers(directory, count, seed):
    """Flip a bit of a footer, name the file by the right checksum, and read it in a child process."""
    from oz.journal import Journal, JournalError

    directory = Path(directory)
    base = sealed_file(directory, table_of(10))
    data = base.read_bytes()
    base.unlink()
    place = len(data) - int.from_bytes(data[-8:-4], "little") - 8
    chance = random.Random(seed)
    outcomes = {}
    for _ in range(count):
        footer = bytearray(data[place:])
        bit = chance.randrange(8 * len(footer))
        footer[bit // 8] ^= 1 << bit % 8
        path = directory / f"{0:020}-{10:020}-{zlib.crc32(footer):08x}.parquet"
        path.write_bytes(data[:place] + footer)
        child = os.fork()
        if child == 0:
            code = 2
            with suppress(BaseException):
                try:
                    code = 0 if all(record.subject for record in Journal(directory).read()) else 2
                except JournalError:
                    code = 1
                Journal(directory).verify()
                os._exit(code)
            os._exit(2)
        outcome = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        outcomes.setdefault(outcome, []).append(bit)
        path.unlink()
    print(json.dumps(outcomes))


def main(directory, limit):
    """Read a journal with little memory, and print the outcome."""
    import resource

    from oz.journal import Journal, JournalError

    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    outcomes = {}
    for name, work in (
        ("read", lambda: sum(1 for _ in Journal(directory).read())),
        ("verify", lambda: len(Journal(directory).verify().findings)),
    ):
        try:
            outcomes[name] = work()
        except JournalError as error:
            outcomes[name] = str(error)
        except MemoryError:
            outcomes[name] = "MemoryError"
    print(json.dumps(outcomes))


if __name__ == "__main__":
    if sys.argv[1] == "footers":
        # Python 3.12 and later warn of a fork beside threads. The threads of Arrow survive a fork.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        read_flipped_footers(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main(sys.argv[1], int(sys.argv[2]))
