"""The settings of a node: what each is for, and what it may be.

A kind of value says how it is read from text and what it may be. It raises a `ValueError` that says what to
give instead; who asked adds where the value stood.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from oz.configuration.directory import default_directory

MAX_BOUND = 16
"""What an announcement to a name server has room for."""

MAX_TEXT = 255
"""Bytes of a name or an endpoint: what an announcement to a name server has room for."""

_SOCKET_PATH = 107 if sys.platform == "linux" else 103
MAX_DIRECTORY = _SOCKET_PATH - len("/01234567-89ab-cdef-0123-456789abcdef")
"""Bytes of the directory's path: the sockets in it have names, and the system bounds the whole (unix(7))."""

MAX_PORT = 65_535

_SEPARATORS = re.compile(r"[,\s]+")
_BUS = re.compile(r"[\w-]*")
_TCP = re.compile(r"(?P<host>[^\s,]+):(?P<port>[0-9]{1,9}|\*)")


class SettingKind(Protocol):
    """The kind of a setting: how its values are read and checked."""

    def from_text(self, text: str) -> Any:
        """Read the value of an environment variable."""
        ...

    def check(self, value: Any) -> Any:
        """Return an argument, or a value of a file, in the form that the node uses."""
        ...


@dataclass(frozen=True, slots=True)
class Name:
    """Text that travels with announcements and is shown to people."""

    def from_text(self, text: str) -> str:
        """Take it as it is."""
        return self.check(text)

    def check(self, value: Any) -> str:
        """Refuse what is empty, too long or not printable.

        Raises:
            ValueError: it is no such text.
        """
        if isinstance(value, str) and value.isprintable() and 0 < len(value.encode()) <= MAX_TEXT:
            return value
        raise ValueError(f"give text of 1 to {MAX_TEXT} bytes, without control characters")


@dataclass(frozen=True, slots=True)
class BusName(Name):
    """Name of a bus: letters, digits, `_` and `-`, so that no pattern, endpoint or list passes for one."""

    def check(self, value: Any) -> str:
        """Return the name.

        Raises:
            ValueError: the name has a wildcard, a separator, a blank or another special character.
        """
        if isinstance(value, str) and not _BUS.fullmatch(value):
            raise ValueError("a bus has a plain name: give letters, digits, _ and - only, such as trading")
        return Name.check(self, value)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Endpoints, each once, in the order given.

    Attributes:
        most: how many there may be.
        are_bound: whether a node binds to them, so that a `*` may stand for the port.
    """

    most: int
    are_bound: bool = False

    def from_text(self, text: str) -> tuple[str, ...]:
        """Read endpoints between commas or blanks.

        Raises:
            ValueError: one of them is none, or there are too many.
        """
        return self.check([one for one in _SEPARATORS.split(text) if one])

    def check(self, value: Any) -> tuple[str, ...]:
        """Refuse what is neither an endpoint nor some of them.

        Raises:
            ValueError: it is so, or there are too many.
        """
        given: Any = [value] if isinstance(value, (str, bytes)) else value
        if not isinstance(given, (list, tuple, set, frozenset)):
            raise ValueError('give an endpoint such as "tcp://ns1:5756", or a list of them')
        if len(given) > self.most:
            raise ValueError(f"give at most {self.most} endpoints, not {len(given)}")
        given = [_as_text(one) for one in given]
        for one in given:
            self._check_one(one)
        return tuple(dict.fromkeys(given))

    def _check_one(self, endpoint: object) -> None:
        scheme, _, address = endpoint.partition("://") if isinstance(endpoint, str) else ("", "", "")
        is_whole = bool(address) and len(address.encode(errors="surrogateescape")) <= MAX_TEXT - 6
        if scheme == "tcp" and is_whole:
            self._check_tcp(endpoint, _TCP.fullmatch(address))
        elif scheme != "ipc" or not is_whole:
            raise ValueError(
                f"{_short(endpoint)} is no endpoint of a node; write tcp://HOST:PORT, or ipc:///PATH"
            )
        elif address == "*" and not self.are_bound:
            raise ValueError(f"{endpoint!r} is nothing to connect to; name the path that the other side has")

    def _check_tcp(self, endpoint: object, found: re.Match[str] | None) -> None:
        if found is None:
            raise ValueError(
                f"{_short(endpoint)} names no port, or is several; write each as tcp://HOST:PORT"
            )
        host, port = found["host"], found["port"]
        if port != "*" and int(port) > MAX_PORT:
            raise ValueError(f"{endpoint!r} names port {port}; the highest is {MAX_PORT}")
        if not self.are_bound and (host == "*" or port.strip("0") in ("", "*")):
            raise ValueError(
                f"{endpoint!r} is nothing to connect to; name the host and port of the other side"
            )


@dataclass(frozen=True, slots=True)
class PrivateDirectory:
    """The absolute path of a directory in which sockets find room; a leading `~` is a home directory."""

    def from_text(self, text: str) -> Path:
        """Take it as it is."""
        return self.check(text)

    def check(self, value: Any) -> Path:
        """Refuse what is no path, relative or too long.

        Raises:
            ValueError: it is so.
        """
        text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
        if not isinstance(text, str) or "\0" in text:
            raise ValueError("give the path of a directory")
        path = Path(os.path.expanduser(text))
        if not path.is_absolute():
            raise ValueError("give an absolute path: every node of the host looks in the same place")
        length = len(os.fsencode(path))
        if length > MAX_DIRECTORY:
            raise ValueError(
                f"give a path of at most {MAX_DIRECTORY} bytes, not {length}: "
                f"the system allows {_SOCKET_PATH} for that of a socket"
            )
        return path


def _as_text(endpoint: Any) -> Any:
    """Return an endpoint as text; ZeroMQ tells them as bytes, perhaps with a zero byte at the end."""
    if not isinstance(endpoint, bytes):
        return endpoint
    try:
        return endpoint.removesuffix(b"\0").decode()
    except UnicodeDecodeError:
        return endpoint


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 100 else f"{shown[:80]}…"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it came from.

    Attributes:
        name: what the setting is called.
        value: in the form that the node uses.
        source: "argument", "environment variable OZ_BUS", "file /x/oz.toml" or "default".
    """

    name: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Definition:
    """One setting: its name, its kind and its default.

    Attributes:
        name: as an argument and in a file.
        kind: what it may be.
        default: gives its value when nobody says anything.
        meaning: what it is for, in a few words.
    """

    name: str
    kind: SettingKind
    default: Callable[[], Any]
    meaning: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"OZ_{self.name.upper()}"


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


DEFINITIONS: tuple[Definition, ...] = (
    Definition("bus", BusName(), _always("default"), "the bus to join; nodes of others never hear of it"),
    Definition("name", Name(), _always(None), "what the node is called"),
    Definition("connect", Endpoints(1_024), _always(()), "nodes or name servers to connect to"),
    Definition("bind", Endpoints(MAX_BOUND, are_bound=True), _always(()), "where other hosts connect to it"),
    Definition("directory", PrivateDirectory(), default_directory, "where nodes of one host find each other"),
)
"""All settings, in the order in which they are shown."""

BY_NAME: dict[str, Definition] = {one.name: one for one in DEFINITIONS}


def meant(wrong: str, names: Iterable[str]) -> str | None:
    """Guess which of some names a wrong one was meant to be."""
    return next(iter(difflib.get_close_matches(wrong, names, n=1, cutoff=0.75)), None)
