"""Files of a journal by whoever may write in its directory: checksums are right, what they cover is not."""

from __future__ import annotations

import functools
import json
import logging
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from zlib import crc32

from oz.journal.messages import FILE_MAGIC, salt_of
from oz.journal.stamp import MARK, PREFIX, Stamp, read_stamp, stamp_message

import oz
from oz.journal import Journal, Writer, sealing

MARK_FILE, MANIFEST, EPOCHS = "acknowledged", "manifest.json", "epochs.json"
_MEMORY = Path("/dev/shm")
_INODE_AT, _JOURNAL_AT = 16, struct.calcsize("<4sIqQ32s")
_EDIT = struct.Struct("<HB")
_ODD = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63 - 1,
    2**64,
    -(2**63),
    1e300,
    float("inf"),
    float("nan"),
    "",
    "x",
    "%ff",
)


class Place(NamedTuple):
    """Where a message of Arrow stands in a segment, its stamp, and what the checksum starts from."""

    start: int
    end: int
    stamp: Stamp
    salt: int


@contextmanager
def directory() -> Iterator[Path]:
    """Make a directory in memory, where there is room for that."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as made:
        yield Path(made, "journal")


@functools.cache
def template() -> dict[str, bytes]:
    """The files of a journal with a sealed and a growing segment."""
    with directory() as made:
        for is_sealed in (True, False):
            with Writer(made, seal_on_close=is_sealed) as writer:
                writer.append([(f"a.{at}", bytes((at,)) * at) for at in range(12)])
        return {one.name: one.read_bytes() for one in made.iterdir() if one.is_file()}


def segment_of(is_sealed: bool) -> str:
    """Name a segment of the template."""
    suffix = ".arrow" if is_sealed else ".arrows"
    return next(name for name in template() if name.endswith(suffix))


@functools.cache
def places(name: str) -> list[Place]:
    """Find the messages of a segment of the template."""
    data = template()[name]
    salt = salt_of(json.loads(template()[MANIFEST])["journal"])
    at, found = len(FILE_MAGIC) if data.startswith(FILE_MAGIC) else 0, []
    while len(data) >= at + PREFIX.size:
        _, length = PREFIX.unpack_from(data, at)
        stamp = read_stamp(data[at : at + PREFIX.size + length], salt if found else 0)
        if stamp is None:
            break
        found.append(Place(at, at + PREFIX.size + length + stamp.body, stamp, salt if found else 0))
        at = found[-1].end
    return found


def edited(name: str, edits: bytes, *, is_stamped: bool) -> bytes:
    """Change bytes of a segment, and perhaps make its checksums right again."""
    data = bytearray(template()[name])
    for at, value in _EDIT.iter_unpack(edits[: len(edits) // _EDIT.size * _EDIT.size]):
        data[at % len(data)] = value
    for place in places(name) if is_stamped else ():
        message = data[place.start : place.end]
        _, length = PREFIX.unpack_from(message)
        has_room = 0 < length <= len(message) - PREFIX.size
        if has_room and MARK.search(message, 0, PREFIX.size + length):
            stamp_message(message, place.stamp, place.salt)
            data[place.start : place.end] = message
    return bytes(data)


def values(data: Iterator[int]) -> Any:
    """Make a value that JSON has of some bytes."""
    kind = next(data, 0)
    if kind < 2 * len(_ODD):
        return _ODD[kind % len(_ODD)]
    if kind < 100:
        return int.from_bytes(bytes(next(data, 0) for _ in range(kind % 9)), "little") - kind
    if kind < 150:
        return bytes(next(data, 0) for _ in range(kind % 40)).decode("latin-1")
    made = [values(data) for _ in range(kind % 3)]
    return made if kind < 200 else {str(number): one for number, one in enumerate(made)}


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place in a value of JSON at which another can be put: what holds it, and where."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield value, key
        yield from leaves(one)


def changed_note(name: str, data: bytes) -> bytes:
    """Put other values into a file of JSON, and make its checksum right."""
    whole = json.loads(template()[name])
    whole.pop("crc32", None)
    rest = iter(data)
    while (place := next(rest, None)) is not None:
        found = list(leaves(whole))
        holder, key = found[place % len(found)] if found else (whole, "x")
        if place == 255 and isinstance(holder, dict):
            holder.pop(key, None)
        elif place == 254 and isinstance(holder, list):
            holder.append(values(rest))
        else:
            holder[key] = values(rest)
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return json.dumps({**whole, "crc32": f"{crc32(text.encode()):08x}"}).encode()


@contextmanager
def quiet() -> Iterator[None]:
    """Have nothing logged: it would be all that a run writes."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def use(made: Path, way: int) -> None:
    """Do with a journal one of the things that its users do, and read it then; it may refuse both."""
    ways: tuple[Callable[[], object], ...] = (
        lambda: [len(one.payload) for one in Journal(made).read(gaps=True)],
        lambda: list(Journal(made).batches("a.1*", columns=["subject", "payload"])),
        lambda: Journal(made).verify(),
        lambda: Journal(made).segments("a.1"),
        lambda: Journal(made).repair(),
        lambda: Writer(made).close(),
    )
    # Ten million records that are lost are mended as they are to be, and for too long here.
    with patch.object(sealing, "MOST_LOST", 1_000), quiet():
        for one in (ways[way % len(ways)], ways[0]):
            with suppress(oz.JournalError):
                one()


def read_segment(data: bytes) -> None:
    """Read a segment in which bytes are changed, by `_EDIT`; what it is, is said by the first byte."""
    kind = data[0] if data else 0
    name = segment_of(bool(kind & 1))
    with directory() as made:
        made.mkdir(0o700)
        for one, whole in template().items():
            if one == name:
                whole = data[1:] if kind & 12 == 12 else edited(name, data[1:], is_stamped=not kind & 4)
            (made / one).write_bytes(whole)
        use(made, kind >> 4)


def read_note(data: bytes) -> None:
    """Read what notes say: the manifest, the epochs, and how far the journal is acknowledged."""
    kind = data[0] if data else 0
    with directory() as made:
        made.mkdir(0o700)
        for one, whole in template().items():
            (made / one).write_bytes(whole)
        if kind & 3 < 2:
            name = (MANIFEST, EPOCHS)[kind & 1]
            (made / name).write_bytes(data[1:] if kind & 4 else changed_note(name, data[1:]))
        else:
            _acknowledge(made / MARK_FILE, data[1:], is_sealed=bool(kind & 1))
        use(made, kind >> 4)


def _acknowledge(path: Path, data: bytes, *, is_sealed: bool) -> None:
    """Put bytes into the note; with checksums, and as of this very file, if they are to be believed."""
    if is_sealed:
        note = bytearray(template()[MARK_FILE])
        note[8:16] = data[:8].ljust(8, b"\0")
        struct.pack_into("<Q", note, _INODE_AT, path.stat().st_ino)
        more = data[8 : 8 + len(note) - 4 - _JOURNAL_AT]
        note[_JOURNAL_AT : _JOURNAL_AT + len(more)] = more
        data = bytes(note[:-4]) + struct.pack("<I", crc32(note[:-4]))
    path.write_bytes(data)
