"""Settings of a node: their names, their kinds of values, and their defaults.

A kind of value, such as `BusName`, reads a value from text and checks it. For a wrong value it raises `ValueError` with
the remedy. The caller adds the source of the value.
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
"""Maximum number of endpoints in the setting `bind`. A node announces itself with at most 64 endpoints, including
endpoints that are not in this setting."""

MAX_TEXT = 255
"""Maximum size of a name or an endpoint, in bytes. In the announcement of a node, a text has at most 512 characters."""

_SOCKET_PATH = 107 if sys.platform == "linux" else 103
MAX_DIRECTORY = _SOCKET_PATH - len("/01234567-89ab-cdef-0123-456789abcdef")
"""Maximum size of the directory's path, in bytes. The name of each socket in the directory is a UUID, and the system
limits the path of a socket; see unix(7)."""

MAX_PORT = 65_535

_SEPARATORS = re.compile(r"[,\s]+")
_BUS = re.compile(r"[\w-]*")
_TCP = re.compile(r"(?P<host>[^\s,]+):(?P<port>[0-9]{1,9}|\*)")


class SettingKind(Protocol):
    """Kind of value: it reads and checks the values of a setting."""

    def from_text(self, text: str) -> Any:
        """Convert the text of an environment variable to the type of the setting."""
        ...

    def check(self, value: Any) -> Any:
        """Convert an argument, or a value from a file, to the type of the setting."""
        ...


@dataclass(frozen=True, slots=True)
class Name:
    """Name of a node, which other nodes and commands show."""

    def from_text(self, text: str) -> str:
        """Return the checked name."""
        return self.check(text)

    def check(self, value: Any) -> str:
        """Return the checked name.

        Raises:
            ValueError: the name is not text, empty, too long or not printable.
        """
        if isinstance(value, str) and value.isprintable() and 0 < len(value.encode()) <= MAX_TEXT:
            return value
        raise ValueError(f"give text of 1 to {MAX_TEXT} bytes, without control characters")


@dataclass(frozen=True, slots=True)
class BusName(Name):
    """Name of a bus: letters, digits, `_` and `-`, so that a pattern or an endpoint is refused as a name."""

    def check(self, value: Any) -> str:
        """Return the checked name.

        Raises:
            ValueError: the name has a wildcard, a separator, a blank or another special character.
        """
        if isinstance(value, str) and not _BUS.fullmatch(value):
            raise ValueError(
                "the name of a bus has only letters, digits, _ and -: give a name such as trading"
            )
        return Name.check(self, value)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """List of endpoints. Repeated endpoints are removed.

    Attributes:
        max_count: maximum number of endpoints.
        are_bound: whether a node binds the endpoints, so that `*` may stand for the host or the port.
    """

    max_count: int
    are_bound: bool = False

    def from_text(self, text: str) -> tuple[str, ...]:
        """Return the endpoints of a text, in which commas or blanks separate them.

        Raises:
            ValueError: a part of the text is not an endpoint, or there are more than `max_count` endpoints.
        """
        return self.check([part for part in _SEPARATORS.split(text) if part])

    def check(self, value: Any) -> tuple[str, ...]:
        """Return the endpoints of an argument.

        Args:
            value: one endpoint, or a list, tuple or set of endpoints.

        Raises:
            ValueError: the value has another type, an endpoint is malformed, or there are too many endpoints.
        """
        given: Any = [value] if isinstance(value, (str, bytes)) else value
        if not isinstance(given, (list, tuple, set, frozenset)):
            raise ValueError('give an endpoint such as "tcp://ns1:5756", or a list of them')
        if len(given) > self.max_count:
            raise ValueError(f"give at most {self.max_count} endpoints, not {len(given)}")
        given = [_decode_endpoint(text) for text in given]
        for text in given:
            self._check_one(text)
        return tuple(dict.fromkeys(given))

    def _check_one(self, endpoint: object) -> None:
        scheme, _, address = endpoint.partition("://") if isinstance(endpoint, str) else ("", "", "")
        is_whole = bool(address) and len(address.encode(errors="surrogateescape")) <= MAX_TEXT - 6
        if scheme == "tcp" and is_whole:
            self._check_tcp(endpoint, _TCP.fullmatch(address))
        elif scheme != "ipc" or not is_whole:
            raise ValueError(
                f"{_short_repr(endpoint)} is not an endpoint of a node; write tcp://HOST:PORT or ipc:///PATH"
            )
        elif address == "*" and not self.are_bound:
            raise ValueError(
                f"{endpoint!r} has no path to connect to; give the path that the other side binds"
            )

    def _check_tcp(self, endpoint: object, found: re.Match[str] | None) -> None:
        if found is None:
            raise ValueError(
                f"{_short_repr(endpoint)} has no port, or is a list in one text; write each endpoint as tcp://HOST:PORT"
            )
        host, port = found["host"], found["port"]
        if port != "*" and int(port) > MAX_PORT:
            raise ValueError(f"{endpoint!r} has port {port}; give a port up to {MAX_PORT}")
        if not self.are_bound and (host == "*" or port.strip("0") in ("", "*")):
            raise ValueError(
                f"{endpoint!r} has no host and port to connect to; give those that the other side binds"
            )


@dataclass(frozen=True, slots=True)
class PrivateDirectory:
    """Absolute path of the directory for the sockets of nodes. A leading `~` is the home directory."""

    def from_text(self, text: str) -> Path:
        """Return the checked path."""
        return self.check(text)

    def check(self, value: Any) -> Path:
        """Return the checked path.

        Raises:
            ValueError: the value is not a path, is relative, or is too long.
        """
        text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
        if not isinstance(text, str) or "\0" in text:
            raise ValueError("give the path of a directory")
        path = Path(os.path.expanduser(text))
        if not path.is_absolute():
            raise ValueError("give an absolute path, so that all nodes of the host use the same directory")
        length = len(os.fsencode(path))
        if length > MAX_DIRECTORY:
            raise ValueError(
                f"give a path of at most {MAX_DIRECTORY} bytes, not {length}: "
                f"the system allows {_SOCKET_PATH} bytes for the path of a socket"
            )
        return path


def _decode_endpoint(endpoint: Any) -> Any:
    if not isinstance(endpoint, bytes):
        return endpoint
    try:
        # Some versions of libzmq add a zero byte to zmq.LAST_ENDPOINT.
        return endpoint.removesuffix(b"\0").decode()
    except UnicodeDecodeError:
        return endpoint


def _short_repr(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 100 else f"{shown[:80]}…"


@dataclass(frozen=True, slots=True)
class Setting:
    """Value of a setting with its source.

    Attributes:
        name: name of the setting.
        value: checked value of the setting.
        source: source of the value: "argument", "default", or for example "environment variable OZ_BUS" or
            "file /x/oz.toml".
    """

    name: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Definition:
    """Definition of one setting.

    Attributes:
        name: name of the setting, which is also the name of the argument and of the key in the file.
        kind: object that reads and checks values of the setting.
        default: function that returns the default value.
    """

    name: str
    kind: SettingKind
    default: Callable[[], Any]

    @property
    def variable(self) -> str:
        """Name of the environment variable that sets the value."""
        return f"OZ_{self.name.upper()}"


DEFINITIONS: tuple[Definition, ...] = (
    Definition("bus", BusName(), lambda: "default"),
    Definition("name", Name(), lambda: None),
    Definition("connect", Endpoints(1_024), tuple),
    Definition("bind", Endpoints(MAX_BOUND, are_bound=True), tuple),
    Definition("directory", PrivateDirectory(), default_directory),
)
"""All settings, in the order of `oz config show`."""

BY_NAME: dict[str, Definition] = {definition.name: definition for definition in DEFINITIONS}


def nearest_name(wrong: str, names: Iterable[str]) -> str | None:
    """Return the name that is most similar to a misspelled name; None if no name is similar."""
    return next(iter(difflib.get_close_matches(wrong, names, n=1, cutoff=0.75)), None)
