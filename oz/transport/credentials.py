"""The credentials of sockets: their key, those that they trust, and the permissions of these.

Files are read when they are made, and again when they have changed: whole, or not at all.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import zmq

from oz.configuration.permission_file import read_permissions
from oz.errors import ConfigurationError, TransportUnavailable
from oz.logs import peer_logger
from oz.security.access import Rights
from oz.security.permissions import Permissions
from oz.transport.authenticator import authenticate
from oz.transport.capabilities import has
from oz.transport.certificates import PUBLIC, read_secret, read_trusted, still_trusted
from oz.transport.endpoints import host_of
from oz.transport.mechanisms import NULL, mechanism_at
from oz.transport.probing import Probed, probe

_log = peer_logger("oz.security")

_LOOK_EVERY, _LOOK_SOON = 0.5, 0.05
"""Seconds between two looks at whether a file has changed, and between two that somebody unknown causes."""

_BACKLOG = 2_048
"""Connections that wait to be accepted, if the system allows so many; ZeroMQ has 100. Beyond that the system
drops packets, and it looks as if nobody spoke."""

_MOST_FOUND = 4_096
"""Endpoints of which it is remembered whose key was there."""

_numbers = itertools.count()

T = TypeVar("T")


class Credentials:
    """The key of sockets, the keys that they trust, and the permissions of these.

    Attributes:
        public_key: the own public key, 40 characters of Z85.
        directory: of the certificates that are trusted.
        domain: what ZeroMQ calls those whom it admits.
        refused: how many connections were refused for their keys.
    """

    def __init__(
        self,
        key: Path,
        trusted: Path,
        permissions: Path | None,
        servers: Mapping[str, str],
    ) -> None:
        """Read the files; see `oz.Security`.

        Raises:
            ConfigurationError, TransportUnavailable: as `oz.Security`.
        """
        if not has("curve"):
            raise TransportUnavailable(
                "this libzmq was built without CURVE, so nothing can be secured; the wheels of pyzmq have it"
            )
        self.domain = f"oz-{next(_numbers)}"
        self.refused = 0
        self._counting = threading.Lock()
        # A program may go to another directory, where other files have these names.
        key, trusted = key.absolute(), trusted.absolute()
        self._key_file, self.directory = key, trusted
        self._pair = read_secret(key)
        self.public_key = self._pair.public
        self._trusted = Reloaded(trusted, read_trusted, still_trusted)
        self._permissions = (
            None if permissions is None else Reloaded(permissions.absolute(), _read_permissions)
        )
        names = set(self.trusted.values())
        self._servers = dict(servers)
        self._found: dict[str, str] = {}
        self._rights = Rights(self._trusted.value, self.permissions)
        for endpoint, name in self._servers.items():
            if name not in names:
                rule = f"no certificate of {self.directory} is called so; add {name}{PUBLIC}"
                raise ConfigurationError(f"servers[{endpoint!r}]", name, "argument", rule)

    # who is trusted --------------------------------------------------------------------------------------

    @property
    def trusted(self) -> Mapping[str, str]:
        """The names of the certificates that are trusted, by public key."""
        return MappingProxyType(self._trusted.value)

    @property
    def permissions(self) -> Permissions | None:
        """The permissions of the file as it is now; None where everything is allowed."""
        return None if self._permissions is None else self._permissions.value

    def admits(self, key: str, address: str) -> bool:
        """Tell whether a peer may connect; see `Admission`."""
        if key in self.trusted or key in self._trusted.look_for_stranger():
            return True
        self._count()
        text = "a connection from %s is refused: its key %s is not in %s; this side has %s"
        _log.warning(text, address, key, self.directory, self.public_key)
        return False

    def turn_away(self, endpoint: str, why: str) -> None:
        """Record that a listener has refused a connection that did not prove to have a key.

        Args:
            endpoint: where.
            why: in words.
        """
        self._count()
        text = "a connection at %s is refused: %s; this side has %s"
        _log.warning(text, endpoint, why, self.public_key)

    def _count(self) -> None:
        with self._counting:
            self.refused += 1

    # the sockets -----------------------------------------------------------------------------------------

    def serve(self, socket: zmq.Socket[Any]) -> None:
        """Demand CURVE and a trusted key at what a socket binds from now on.

        Raises:
            ConfigurationError: another authenticator answers for its context.
        """
        authenticate(socket.context, self)
        self._set_pair(socket)
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.ZAP_DOMAIN, self.domain.encode())
        socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)
        # Who does not know the key of this side tries several at once, and many may come at the same time.
        socket.set(zmq.BACKLOG, _BACKLOG)
        if socket.get(zmq.RCVHWM) == 1:
            # libzmq hands up nothing then, of whoever has to prove a key.
            socket.set(zmq.RCVHWM, 2)

    def prepare(self, socket: zmq.Socket[Any], key: str) -> None:
        """Prepare a socket to connect to the holder of a key, and to nobody else."""
        self._set_pair(socket)
        socket.set(zmq.CURVE_SERVER, 0)
        socket.set(zmq.CURVE_SERVERKEY, key.encode())

    def candidates(self, endpoint: str) -> list[str]:
        """Return the keys that the listener at an endpoint may have, the likeliest first."""
        named = self._servers.get(endpoint)
        if named is not None:
            return [key for key, name in self.trusted.items() if name == named]
        # Its own last: it is trusted where all have one directory, and few have one key for all.
        return sorted(self.trusted, key=lambda key: key == self.public_key)

    def probe(self, endpoint: str, kind: int, where: str | None = None) -> tuple[Probed, str | None]:
        """Find out which of the trusted keys the listener at an endpoint has, if any; see `probe`.

        Args:
            endpoint: by which `servers` names it.
            kind: the type of the socket that is to connect.
            where: the endpoint to connect to, if it is another one, as that of links.
        """
        candidates = self.candidates(endpoint)
        where = where or endpoint
        if not candidates:
            return Probed.STRANGER, None
        found: tuple[Probed, str | None] = (Probed.STRANGER, None)
        if (likely := self._found.get(endpoint) or self._key_named(host_of(endpoint))) in candidates:
            found = probe(where, kind, self._pair, [likely])
        others = [one for one in candidates if one != likely]
        if found[0] is Probed.STRANGER and others:
            found = probe(where, kind, self._pair, others)
        if found[0] is Probed.STRANGER and mechanism_at(where) == NULL:
            return Probed.KEYLESS, None
        if found[1] is not None:
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            self._found[endpoint] = found[1]
        return found

    def _key_named(self, name: str | None) -> str | None:
        """Return the trusted key whose certificate is called so, as that of a host may be; None for none."""
        return next((key for key, its in self.trusted.items() if its == name), None)

    def refused_by(self, endpoint: str, key: str | None) -> str:
        """Say in words that somebody does not trust the own key."""
        return (
            f"{endpoint} does not trust the key of this side, {self.public_key}; it has {key}. "
            f"Put {self._key_file.stem}{PUBLIC} into the directory that it trusts"
        )

    def why_not(self, found: Probed, endpoint: str, key: str | None) -> str | None:
        """Say in words why nobody is connected to; None if somebody is, or nobody listens yet."""
        match found:
            case Probed.REFUSED:
                return self.refused_by(endpoint, key)
            case Probed.STRANGER:
                return self._strange_to(endpoint)
            case Probed.KEYLESS:
                return (
                    f"{endpoint} has no key at all, and this side, which has {self.public_key}, speaks to "
                    "nobody without one. Give it security=, or let OZ_SECURITY or [security] name a file "
                    "with its key"
                )
            case Probed.SILENT:
                return (
                    f"{endpoint} accepts connections and proves no key: it may have much to do, or is no "
                    f"listener of ZeroMQ. This side has {self.public_key}, and trusts what is in "
                    f"{self.directory}"
                )
        return None

    def _strange_to(self, endpoint: str) -> str:
        candidates, trusted = self.candidates(endpoint), self.trusted
        if not candidates:
            return f"{endpoint}: no key is trusted; put certificates into {self.directory}"
        theirs = ", ".join(f"{trusted[one]} {one}" for one in candidates[:3])
        return (
            f"{endpoint} has no key that this side trusts: none of {theirs}"
            f"{f' and {len(candidates) - 3} more' if len(candidates) > 3 else ''}. This side has "
            f"{self.public_key}, and trusts what is in {self.directory}"
        )

    def rights(self) -> Rights:
        """Return who is trusted and what is allowed, the same object as long as that is the same."""
        # Each frame that comes asks for it, so the clock is read once.
        now = time.monotonic()
        trusted = self._trusted.at(now)
        permissions = None if self._permissions is None else self._permissions.at(now)
        if trusted is not self._rights.trusted or permissions is not self._rights.permissions:
            self._rights = Rights(trusted, permissions)
        return self._rights

    def _set_pair(self, socket: zmq.Socket[Any]) -> None:
        socket.set(zmq.CURVE_PUBLICKEY, self._pair.public.encode())
        socket.set(zmq.CURVE_SECRETKEY, self._pair.secret.encode())


def _read_permissions(path: Path) -> Permissions:
    return read_permissions(path, lambda text: _log.warning("%s", text))


class Reloaded(Generic[T]):
    """The content of a file, or a directory of files; read again when it has changed."""

    def __init__(
        self, path: Path, read: Callable[[Path], T], kept: Callable[[Path, T], T] | None = None
    ) -> None:
        """Read it.

        Args:
            path: of the file or the directory.
            read: reads it whole, or raises.
            kept: gives what of the content before holds on where it cannot be read; all of it unless given.
                Without it a change is read when it has stood for a look: who writes a file may be halfway.
        """
        self._path, self._read, self._kept = path, read, kept
        self._lock = threading.Lock()
        self._seen = self._changing = _state(path)
        self._value = read(path)
        self._looked_at = time.monotonic()
        self._due_at = self._looked_at + _LOOK_EVERY
        self._asked_at = -inf

    @property
    def value(self) -> T:
        """Its content now; the one before, while that makes no sense."""
        return self.at(time.monotonic())

    def at(self, now: float) -> T:
        """Return the same; `now` is the time of the monotonic clock."""
        return self._value if now < self._due_at else self.look(_LOOK_EVERY)

    def look_for_stranger(self) -> T:
        """Return what it says now, unless somebody unknown has had it looked at a moment ago.

        Looks at other times do not count: a key that was added right after one is in it.
        """
        now = time.monotonic()
        if now - self._asked_at < _LOOK_SOON:
            return self.look(_LOOK_SOON)
        self._asked_at = now
        return self.look(0.0)

    def look(self, every: float) -> T:
        """Return what it says, and look whether that has changed if the last look is so many seconds ago."""
        is_halfway = self._changing != self._seen
        if time.monotonic() - self._looked_at >= (_LOOK_SOON if is_halfway else every):
            with self._lock:
                self._looked_at = time.monotonic()
                before, self._changing = self._changing, _state(self._path)
                is_still = self._changing == before or self._kept is not None
                if is_still and self._changing != self._seen:
                    self._seen = self._changing
                    self._reload()
                is_halfway = self._changing != self._seen
                self._due_at = self._looked_at + (_LOOK_SOON if is_halfway else _LOOK_EVERY)
        return self._value

    def _reload(self) -> None:
        try:
            self._value = self._read(self._path)
        except Exception as error:
            # Whatever is wrong: who asks what it says is in the middle of something else.
            if self._kept is not None:
                self._value = self._kept(self._path, self._value)
            _log.error("%s has changed, and what it said before holds: %s", self._path, error)
        else:
            _log.info("%s has changed, and was read again", self._path)


def _state(path: Path) -> object:
    """Return what changes when a file does, or one of a directory.

    Each node of a process looks at its directory of keys twice a second: without a `Path` for each file.
    """
    try:
        own = _marks(os.stat(path))
        if not path.is_dir():
            return own
        with os.scandir(path) as entries:
            return own, sorted((one.name, _marks_at(one.path)) for one in entries)
    except OSError:
        return None


def _marks_at(path: str) -> tuple[int, ...]:
    """Return those of a file in a directory; none where a link leads nowhere, which hides no other file."""
    try:
        return _marks(os.stat(path))
    except OSError:
        return ()


def _marks(found: os.stat_result) -> tuple[int, ...]:
    # A change of the mode alone is one of `st_ctime_ns`: what was refused for its mode is read again.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
