"""Oracle of the journal tests: reads the files and the records without the code that wrote them."""

import random
import re
import struct
import zlib
from pathlib import Path

STAMP = re.compile(rb"oz\.batch ([0-9a-f]{8}) (\d{20}) (\d{10}) (\d{20})")
MARK = struct.Struct("<16sQQQI")


def content(*key):
    """Return subject and payload that belong to a key, such as round, group and number."""
    chance = random.Random(repr(key))
    name = ".".join(map(str, key))
    return f"r.{chance.randrange(20)}.x", f"{name} ".encode() + chance.randbytes(
        chance.choice((0, 9, 90, 900))
    )


def key_of(payload):
    """Return the key of a payload of `content`."""
    return tuple(map(int, payload.split(b" ", 1)[0].split(b".")))


def acknowledged(directory):
    """Return segment, first offset, size and end of the acknowledged mark."""
    segment, first, size, end, crc = MARK.unpack(Path(directory, "acknowledged").read_bytes())
    assert crc == zlib.crc32(MARK.pack(segment, first, size, end, 0)[:-4])
    return segment.rstrip(b"\0").decode(), first, size, end


def active(directory):
    """Return the path of the last active segment; None if there is none."""
    return max(Path(directory).glob("*.arrows"), default=None)


def sealed(directory):
    """Return the paths of the sealed segments, by offset."""
    return sorted(Path(directory).glob("*.parquet"))


def batches_of(stream):
    """Return first byte, end byte, first offset and end offset of each batch of an intact stream."""
    data = Path(stream).read_bytes()
    found = []
    for stamp in STAMP.finditer(data):
        begin = data.rindex(b"\xff\xff\xff\xff", 0, stamp.start())
        first, rows, size = (int(stamp[at]) for at in (2, 3, 4))
        if begin + size <= len(data) and (not found or begin >= found[-1][1]):
            found.append((begin, begin + size, first, first + rows))
    return found


def overwrite(path, place, data):
    """Write bytes into the middle of a file."""
    with Path(path).open("r+b") as file:
        file.seek(place)
        file.write(data)


def flip(path, bit):
    """Flip a bit of a file; a second call undoes it."""
    with Path(path).open("r+b") as file:
        file.seek(bit // 8)
        [byte] = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def ranges_of(offsets):
    """Return a set of offsets as sorted ranges of first and end."""
    found = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset:
            found[-1][1] = offset + 1
        else:
            found.append([offset, offset + 1])
    return [tuple(item) for item in found]


def rows_of(directory, **bounds):
    """Return the messages of a journal as {offset: (subject, payload)}, and the offsets of its gaps."""
    from oz.journal import Journal, JournalGap

    rows, gaps = {}, set()
    for record in Journal(directory).read(**bounds):
        if isinstance(record, JournalGap):
            gaps |= set(range(record.first, record.end))
        else:
            assert record.offset not in rows
            rows[record.offset] = (record.subject, record.payload)
    return rows, gaps


def lost_by(findings):
    """Return the offsets that findings of `verify`, `repair` or a writer report as lost."""
    return {
        at for finding in findings if finding.first is not None for at in range(finding.first, finding.end)
    }


def read_or_error(directory, pattern=None):
    """Return the rows that can be read before an error, and the error."""
    from oz.journal import Journal, JournalError, Record

    rows = {}
    try:
        for record in Journal(directory).read(pattern):
            if isinstance(record, Record):
                rows[record.offset] = (record.subject, record.payload)
    except JournalError as error:
        return rows, error
    return rows, None
