"""The files of a journal: names, durable replacement, and holding one against retention.

No name leads anywhere else: a symbolic link, a pipe or a device in the place of a file is not opened, since
whoever may write into the directory would choose what is read, or overwritten.

What the system fails to write is a `SystemFault`, set apart from mistakes of the caller.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from oz.system import LOCK_EX, LOCK_NB, LOCK_SH, flock

SEALED = ".arrow"
STREAM = ".arrows"
TEMPORARY = ".tmp"
LOCK = "writer.lock"
MANIFEST = "manifest.json"
MARK = "acknowledged"
EPOCHS = "epochs.json"
DAMAGED = ".damaged"
MOST = (1 << 63) - 1
"""The largest offset that a column can hold."""

_ELSEWHERE = (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR)
"""What systems say where there is no file: Linux ELOOP of a link, FreeBSD EMLINK; ENXIO of a socket."""

_SEGMENT = re.compile(r"(\d{20})(\.arrows?)")


class Segment(NamedTuple):
    """A segment that is there.

    Attributes:
        base: the offset of its first record.
        suffix: `SEALED`, or `STREAM` while it is not.
    """

    base: int
    suffix: str

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.base:020d}{self.suffix}"

    @property
    def is_sealed(self) -> bool:
        """Whether it is an Arrow file that no longer grows."""
        return self.suffix == SEALED


def named(directory: Path) -> tuple[list[Segment], list[str]]:
    """List the files that are named as segments are; whether they are this journal's is not looked at.

    Returns:
        Those that could be segments, both forms of one; and the names of those that cannot: no regular files,
        or with a number that no record has.
    """
    found: list[Segment] = []
    others: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if match := _SEGMENT.fullmatch(entry.name):
                    one = Segment(int(match[1]), match[2])
                    if one.base <= MOST and entry.is_file(follow_symlinks=False):
                        found.append(one)
                    else:
                        others.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    return sorted(found), sorted(others)


def is_journal(directory: Path) -> bool:
    """Tell whether a directory is a journal, if only by what says that its segments should be there."""
    if not directory.is_dir():
        return False
    return bool(named(directory)[0]) or any((directory / name).exists() for name in (MANIFEST, MARK, EPOCHS))


def is_leftover(name: str) -> bool:
    """Tell whether a name is that of a file which `replacing` did not finish."""
    whole = name.removesuffix(TEMPORARY)
    return whole != name and (whole in (MANIFEST, EPOCHS) or _SEGMENT.fullmatch(whole) is not None)


def sync_directory(directory: Path) -> None:
    """Make the directory's entries durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of it, whatever the system takes at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@contextmanager
def replacing(path: Path) -> Iterator[int]:
    """Write a file that takes the place of `path` durably, whole or not at all; gives its descriptor."""
    temporary = path.with_name(path.name + TEMPORARY)
    temporary.unlink(missing_ok=True)
    descriptor = os.open(
        temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, file_mode(path.parent)
    )
    try:
        yield descriptor
        os.fsync(descriptor)
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    sync_directory(path.parent)


def file_mode(directory: Path) -> int:
    """Say who may read a new file: its owner, and the group where the directory is set up for one.

    A directory with the set-group-ID bit gives its files to its own group; if that may read the directory, it
    may read the files.
    """
    mode = os.stat(directory).st_mode
    return 0o640 if mode & stat.S_ISGID and mode & stat.S_IRGRP else 0o600


class NotRegular(OSError):
    """Something else is in the place of a file."""

    def __init__(self, path: Path) -> None:
        """Say so of a path."""
        super().__init__(
            errno.ELOOP, f"{path} is {_kind(path)}, and a file should be there; put it elsewhere"
        )

    def __str__(self) -> str:
        return str(self.strerror)


def _kind(path: Path) -> str:
    kinds = {stat.S_ISLNK: "a symbolic link", stat.S_ISDIR: "a directory", stat.S_ISFIFO: "a pipe"}
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # gone again
        mode = 0
    return next((kind for test, kind in kinds.items() if test(mode)), "no regular file")


def is_regular(path: Path) -> bool:
    """Tell whether there is a file, and no link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def open_to_write(path: Path, flags: int = os.O_RDWR | os.O_CREAT, mode: int | None = None) -> int:
    """Open a file for writing, or make it.

    Args:
        path: the file.
        flags: those of `os.open` that say how.
        mode: of a new file; None for `file_mode`.

    Raises:
        NotRegular: something else is in its place.
        OSError: another fault of the system.
    """
    new = file_mode(path.parent) if mode is None else mode
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, new)
    except OSError as error:
        if error.errno in _ELSEWHERE:
            raise NotRegular(path) from None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise NotRegular(path)


def read_note(path: Path) -> bytes:
    """Read a file that is to say something about the journal.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: something else is in its place, such as a directory.
    """
    descriptor = open_regular(path)
    if descriptor is None:
        if os.path.lexists(path):
            raise ValueError(f"{path} is no regular file")
        raise FileNotFoundError(path)
    with open(descriptor, "rb") as file:
        return file.read()


def open_regular(path: Path) -> int | None:
    """Open a file for reading, if it is there and is one; a pipe in its place is not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, *_ELSEWHERE):
            return None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def set_aside(path: Path) -> str | None:
    """Rename the file that is in the place of one to write.

    Returns:
        The name that it has now; None when there was nothing.
    """
    kept = free_name(path)
    try:
        os.rename(path, kept)
    except FileNotFoundError:
        return None
    return kept.name


def free_name(path: Path) -> Path:
    """Find a name under which to keep a file that another takes the place of."""
    kept = path.with_name(path.name + DAMAGED)
    number = 1
    while os.path.lexists(kept):
        number += 1
        kept = path.with_name(f"{path.name}{DAMAGED}-{number}")
    return kept


def open_held(path: Path) -> int | None:
    """Open a segment for reading and hold it against retention until the descriptor is closed.

    Returns:
        The descriptor, or None when there is no such file.
    """
    descriptor = open_regular(path)
    if descriptor is None:
        return None
    flock(descriptor, LOCK_SH)
    if os.fstat(descriptor).st_nlink == 0:  # removed between the two calls
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def unheld(path: Path) -> Iterator[bool]:
    """Keep readers from holding a file meanwhile; gives False when one holds it, True also if it is gone."""
    descriptor = open_regular(path)
    if descriptor is None:
        yield True
        return
    try:
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
            is_free = True
        except BlockingIOError:
            is_free = False
        yield is_free
    finally:
        os.close(descriptor)


def remove_unless_held(path: Path) -> bool:
    """Remove a file that no reader holds; tell whether it is gone."""
    with unheld(path) as is_free:
        if is_free:
            path.unlink(missing_ok=True)
        return is_free


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors that making room mends."""


class SystemFault(Exception):
    """The system failed to write, as opposed to whatever the records were taken from.

    Attributes:
        error: what it said.
        is_full: whether making room mends it.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error
        self.is_full = error.errno in FULL


@contextmanager
def system() -> Iterator[None]:
    """Run something whose OSErrors come from the system, and raise them as `SystemFault`."""
    try:
        yield
    except OSError as error:
        raise SystemFault(error) from error
