"""The standard streams of a command, when one of them is closed, full, or read by nobody any more."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

_DESCRIPTORS = (0, 1, 2)


def stand_in() -> None:
    """Put something in the place of each standard stream that is closed, as after `<&-`.

    Its descriptor is taken: the next file or socket that is opened would get it, and what a library writes on
    stderr would go there. Reading and writing say what is wrong.
    """
    for descriptor in _DESCRIPTORS:
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is this one
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Closed(0, "input to read from")))
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Closed(1, "output to write to")))
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def settle() -> bool:
    """Write what is left in stdout and stderr; tell whether all of it could be.

    A stream that takes no more is dropped, or Python would try once more as it ends, and complain.
    """
    out, err = _settle(sys.stdout), _settle(sys.stderr)  # both, whatever becomes of the first
    return out and err


def _settle(stream: TextIO) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError):
        forget(stream)
        return False
    return True


def forget(stream: TextIO) -> None:
    """Let what is written to a stream, and what is left in it, go nowhere."""
    with suppress(OSError, ValueError):  # a test's stream is no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
        if isinstance(raw := _raw(stream), _Closed):
            raw.is_forgotten = True


def _raw(stream: TextIO) -> object:
    buffer = stream.buffer
    return buffer.raw if isinstance(buffer, io.BufferedWriter) else buffer


class _Closed(io.RawIOBase):
    """A stream that is not there."""

    def __init__(self, descriptor: int, what: str) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._what = what
        self.is_forgotten = False

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return False

    def readinto(self, _buffer: Any) -> int:
        raise self._error()

    def write(self, data: Any) -> int:
        if self.is_forgotten:
            return len(data)
        raise self._error()

    def _error(self) -> OSError:
        return OSError(f"there is no standard {self._what}")
