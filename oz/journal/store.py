"""The files of a journal: in a local directory, or on a file system of `pyarrow.fs`, such as S3."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pyarrow as pa

from oz.errors import JournalError
from oz.journal.format import LOCK, MARK, SegmentFile, open_regular, sort_segments

_URI = re.compile(r"[a-z][a-z0-9+.-]+://")


class _LocalFile:
    def __init__(self, path: Path) -> None:
        self._descriptor = open_regular(path)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, count: int, place: int) -> bytes:
        return os.pread(self._descriptor, count, place)

    def read_into(self, target: memoryview, place: int) -> int:
        done = 0
        while done < len(target):
            count = os.preadv(self._descriptor, [target[done:]], place + done)
            if not count:
                break
            done += count
        return done

    def close(self) -> None:
        os.close(self._descriptor)


class LocalStore:
    """A journal in a local directory.

    Attributes:
        directory: the path of the directory.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def segments(self) -> list[SegmentFile]:
        """List the segments, sorted by offset.

        Raises:
            JournalError: the directory is absent or not readable.
        """
        try:
            return sort_segments(os.listdir(self.directory))
        except OSError as error:
            raise JournalError(f"{self.directory}: the journal cannot be read: {error.strerror}") from None

    def exists(self) -> bool:
        """Return whether the directory holds a journal."""
        if not os.path.lexists(self.directory):
            return False
        has_writer = any(os.path.lexists(self.directory / name) for name in (LOCK, MARK))
        return has_writer or bool(self.segments())

    def open(self, name: str) -> _LocalFile:
        """Open a file.

        Raises:
            FileNotFoundError: the file is absent.
            DamageError: the file is not a regular file, or the operating system does not open it.
        """
        return _LocalFile(self.directory / name)

    def identity(self, name: str) -> Hashable:
        """Return a value that changes when a file is replaced or modified.

        Raises:
            FileNotFoundError: the file is absent.
        """
        status = os.lstat(self.directory / name)
        return name, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def size(self, name: str) -> int:
        """Return the size of a file in bytes.

        Raises:
            FileNotFoundError: the file is absent.
        """
        return os.lstat(f"{self.directory}/{name}").st_size

    def path(self, name: str) -> str:
        """Return the absolute path of a file."""
        return os.path.abspath(self.directory / name)


class _RemoteFile:
    def __init__(self, file: Any) -> None:
        self._file = file
        self.size: int = file.size()

    def read(self, count: int, place: int) -> bytes:
        data: bytes = self._file.read_at(count, place)
        return data

    def read_into(self, target: memoryview, place: int) -> int:
        data = self.read(len(target), place)
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()


class RemoteStore:
    """The sealed files of a journal on a file system of `pyarrow.fs`. Active segments are not read."""

    def __init__(self, uri: str) -> None:
        """Connect to a file system.

        Raises:
            JournalError: pyarrow does not know the URI, or the file system denies access.
        """
        from pyarrow import fs  # the import takes 20 ms, and local journals do not need it

        self._uri = uri.rstrip("/")
        self._selector = fs.FileSelector
        try:
            self._fs, self._root = fs.FileSystem.from_uri(self._uri)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise JournalError(f"{uri}: the journal cannot be opened: {error}") from None

    def segments(self) -> list[SegmentFile]:
        """List the sealed segments, sorted by offset.

        Raises:
            JournalError: the file system denies access.
        """
        try:
            found = self._fs.get_file_info(self._selector(self._root, allow_not_found=True))
        except (pa.ArrowException, OSError) as error:
            raise JournalError(f"{self._uri}: the journal cannot be read: {error}") from None
        return [file for file in sort_segments(info.base_name for info in found) if file.is_sealed]

    def exists(self) -> bool:
        """Return whether the directory has a sealed segment."""
        return bool(self.segments())

    def open(self, name: str) -> _RemoteFile:
        """Open a file.

        Raises:
            FileNotFoundError: the file is absent.
        """
        return _RemoteFile(self._fs.open_input_file(f"{self._root}/{name}"))

    def identity(self, name: str) -> Hashable:
        """Return the URI of a file. It suffices as the identity, because a sealed file is never modified."""
        return f"{self._uri}/{name}"

    def size(self, name: str) -> int:
        """Return the size of a file in bytes.

        Raises:
            FileNotFoundError: the file is absent.
        """
        info = self._fs.get_file_info(f"{self._root}/{name}")
        if info.size is None:
            raise FileNotFoundError(f"{self._uri}/{name}")
        return int(info.size)

    def path(self, name: str) -> str:
        """Return the URI of a file."""
        return f"{self._uri}/{name}"


Store = LocalStore | RemoteStore


def is_uri(directory: str | os.PathLike[str]) -> bool:
    """Return whether the name of a directory is a URI of `pyarrow.fs`."""
    return isinstance(directory, str) and _URI.match(directory) is not None


def open_store(directory: str | os.PathLike[str]) -> Store:
    """Return the store of the journal at a path or a URI.

    Raises:
        JournalError: there is no journal, or it cannot be read.
    """
    text = os.fspath(directory)
    store = RemoteStore(text) if is_uri(directory) else LocalStore(Path(text))
    if not store.exists():
        raise JournalError(f"{text}: there is no journal here; `oz record` or oz.journal.Writer creates one")
    return store
