"""Places on any file system that pyarrow reaches: `s3://`, `gs://`, `file://` and others, and plain paths."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from pyarrow import fs

from oz.errors import JournalError
from oz.system import refuse_planted

_TEMPORARY = ".tmp"
_S3A = re.compile(r"\As3a://")  # Hadoop's word for it


class Place(NamedTuple):
    """A file or folder.

    Attributes:
        system: the file system, pyarrow's.
        path: where it is there.
        said: as the user wrote it, without what may be secret.
    """

    system: Any
    path: str
    said: str

    def within(self, name: str) -> Place:
        """Return the place of a file in this folder."""
        return Place(self.system, f"{self.path.rstrip('/')}/{name}", f"{self.said.rstrip('/')}/{name}")

    @property
    def _is_local(self) -> bool:
        return isinstance(self.system, fs.LocalFileSystem)

    @property
    def _is_renamed(self) -> bool:
        """Whether a file is written beside it first: not where a pipe or a device is."""
        return self._is_local and (os.path.isfile(self.path) or not os.path.lexists(self.path))

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """Write a file, which is there whole or not at all; gives what to write to.

        Raises:
            JournalError: the file system does not take it.
        """
        # What is put into an object store is there at the end of it; a local file is renamed.
        is_renamed = self._is_renamed
        path = f"{self.path}.{secrets.token_hex(8)}{_TEMPORARY}" if is_renamed else self.path
        with self.errors():
            if is_renamed:  # a name that nobody has taken, nor can lead elsewhere
                self._must_have_folder()
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            out = self.system.open_output_stream(path, compression=None)
        is_whole = False
        try:
            yield out
            with self.errors():
                out.close()
                if is_renamed:
                    self.system.move(path, self.path)
            is_whole = True
        finally:
            if not is_whole:
                self._discard(out, path if is_renamed or not self._is_local else None)

    def _must_have_folder(self) -> None:
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder):
            raise NotADirectoryError(f"there is no directory {folder}; make it first")

    def _discard(self, out: Any, path: str | None) -> None:
        """Take away what is not whole: to close it is what makes it appear."""
        with suppress(OSError):  # the first error is the one to tell
            out.close()
        if path is not None:
            with suppress(OSError):
                self.system.delete_file(path)

    def files(self) -> list[str]:
        """List the names of the files in this folder; none when it is not there.

        Raises:
            JournalError: the file system does not say.
        """
        with self.errors():
            selector = fs.FileSelector(self.path, allow_not_found=True)
            found = self.system.get_file_info(selector)
        return sorted(one.base_name for one in found if one.type == fs.FileType.File)

    def make_folder(self) -> None:
        """Make this folder, and those that it is in, as far as the file system has folders.

        Raises:
            JournalError: the file system does not let it.
        """
        if self._is_local:
            with self.errors():
                self.system.create_dir(self.path, recursive=True)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Say of an error at which place it was.

        Raises:
            JournalError: in place of it.
        """
        try:
            yield
        except OSError as error:
            raise JournalError(f"{self.said}: {' '.join(str(error).split())}") from error


def is_uri(text: str) -> bool:
    """Tell whether a text names a file system, and is no plain path."""
    return "://" in text


def place_of(text: str) -> Place:
    """Find a place by its URI or path.

    Args:
        text: such as `s3://bucket/folder`, also written `s3a://`, `file:///srv/lake`, or a path. What a URI
            may say after `?` is up to pyarrow: for S3 `region=` and `endpoint_override=`. Credentials are
            best left to the environment.

    Raises:
        JournalError: no file system is reached by it.
    """
    said = text.split("?")[0]
    if "@" in said:  # it may hold a secret
        said = said[: said.index("://") + 3] + said[said.index("@") + 1 :] if is_uri(said) else said
    try:
        if not is_uri(text):
            refuse_planted(text)
            return Place(fs.LocalFileSystem(), os.path.realpath(text), said)
        system, path = fs.FileSystem.from_uri(_S3A.sub("s3://", text))
    except (OSError, ValueError) as error:  # pyarrow's errors are such
        raise JournalError(f"{said}: {' '.join(str(error).split())}") from error
    return Place(system, path, said)
