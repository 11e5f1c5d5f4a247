"""Credentials of sockets: the key of the socket, the trusted keys and their permissions.

The files are read at the start, and again after each change. If a changed file cannot be used, the earlier content
stays in force.
"""

from __future__ import annotations

import itertools
import os
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import zmq

from oz.configuration.permission_file import read_permissions
from oz.errors import ConfigurationError
from oz.logs import peer_logger
from oz.security.access import Rights
from oz.security.permissions import Permissions
from oz.transport.authenticator import authenticate
from oz.transport.capabilities import require_curve
from oz.transport.certificates import PUBLIC, read_secret, read_trusted, still_trusted
from oz.transport.endpoints import host_of
from oz.transport.mechanisms import NULL, mechanism_at
from oz.transport.probing import Probed, probe
from oz.transport.refusals import RefusalLog

_log = peer_logger("oz.security")

_CHECK_INTERVAL, _SHORT_INTERVAL = 0.4, 0.05
"""Seconds between two checks for a change of a file. The short interval applies after an unknown key, and while a file
changes.

Publishers and subscribers ask for the content every 0.5 s. The interval is shorter than that, so that each request
checks the file.
"""

_BACKLOG = 2_048
"""Maximum number of connections that wait until the listener accepts them; the system may have a lower limit. The
default of libzmq is 100. Beyond the limit, the system drops the packets of callers, and they get no answer."""

_MAX_FOUND = 4_096
"""Maximum number of endpoints whose last key is cached. At this number the cache is cleared."""

_MAX_REFUSED_KEYS = 100
"""Maximum number of refused keys that are kept for error messages. A further key replaces the oldest."""

_numbers = itertools.count()

T = TypeVar("T")


class Credentials:
    """Key of a socket, trusted keys and their permissions.

    Attributes:
        public_key: public key of this program, 40 characters of Z85.
        directory: directory of the trusted certificates.
        domain: ZAP domain of the sockets. The authenticator finds these credentials by the domain of a request.
        refused: number of connections that were refused because the peer proved no trusted key.
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
            ConfigurationError, MissingDependency: for the same reasons as `oz.Security`.
        """
        require_curve()
        self.domain = f"oz-{next(_numbers)}"
        self.refused = 0
        self._refused_keys: dict[str, None] = {}
        self._counting = threading.Lock()
        self._refusals = RefusalLog()
        # Make the paths absolute, because a program may change its working directory.
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
                rule = f"{self.directory} has no certificate of this name; add {name}{PUBLIC}"
                raise ConfigurationError(f"servers[{endpoint!r}]", name, "argument", rule)

    # trust

    @property
    def trusted(self) -> Mapping[str, str]:
        """Dictionary from each trusted public key to the name of its certificate."""
        return MappingProxyType(self._trusted.value)

    @property
    def permissions(self) -> Permissions | None:
        """Current content of the permission file; None without a file."""
        return None if self._permissions is None else self._permissions.value

    def read_permissions_again(self) -> Permissions | None:
        """Read the permission file now if it has changed, and return the permissions; see `Reloaded.check_again`."""
        return None if self._permissions is None else self._permissions.check_again()

    def admits(self, key: str, address: str) -> bool:
        """Return whether a peer may connect; see `Admission`."""
        if key in self.trusted or key in self._trusted.value_for_unknown_key():
            return True
        with self._counting:
            if len(self._refused_keys) >= _MAX_REFUSED_KEYS:
                del self._refused_keys[next(iter(self._refused_keys))]
            self._refused_keys[key] = None
        self._count(
            "an unknown key",
            f"a connection from {address} is refused: its key {key} is not in {self.directory}",
        )
        return False

    @property
    def refused_keys(self) -> list[str]:
        """Keys that were refused last, at most `_MAX_REFUSED_KEYS`."""
        with self._counting:
            return [*self._refused_keys]

    def turn_away(self, endpoint: str, why: str) -> None:
        """Count and log a caller that a listener has refused because the caller proved no key.

        Args:
            endpoint: endpoint of the listener.
            why: reason of the refusal, for the log.
        """
        self._count(why, f"a connection at {endpoint} is refused: {why}")

    def _count(self, reason: str, text: str) -> None:
        with self._counting:
            self.refused += 1
            lines = self._refusals.add(reason, text, time.monotonic())
        self._log(lines)

    def log_refused(self, now: float) -> None:
        """Write the log lines about refused connections that are due; see `RefusalLog`.

        Args:
            now: current time, in seconds of `time.monotonic`.
        """
        with self._counting:
            lines = self._refusals.lines(now)
        self._log(lines)

    def _log(self, lines: list[str]) -> None:
        for line in lines:
            _log.warning("%s; this side has %s", line, self.public_key)

    # sockets

    def serve(self, socket: zmq.Socket[Any]) -> None:
        """Make a socket demand CURVE and a trusted key from its peers. Endpoints that are bound already stay unchanged.

        Raises:
            ConfigurationError: the context has another authenticator.
        """
        authenticate(socket.context, self)
        self._set_pair(socket)
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.ZAP_DOMAIN, self.domain.encode())
        socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)
        # A caller that does not know the key of this side tries several keys at once, each on its own connection.
        socket.set(zmq.BACKLOG, _BACKLOG)
        if socket.get(zmq.RCVHWM) == 1:
            # libzmq delivers nothing with CURVE and a limit of 1.
            socket.set(zmq.RCVHWM, 2)

    def prepare(self, socket: zmq.Socket[Any], key: str) -> None:
        """Set the keys of a socket before it connects to a listener whose public key is `key`."""
        self._set_pair(socket)
        socket.set(zmq.CURVE_SERVER, 0)
        socket.set(zmq.CURVE_SERVERKEY, key.encode())

    def candidates(self, endpoint: str) -> list[str]:
        """Return the keys that the listener at an endpoint may have, the likeliest first."""
        named = self._servers.get(endpoint)
        if named is not None:
            return [key for key, name in self.trusted.items() if name == named]
        # The key of this side comes last: all programs may share one directory of trusted keys, but a program rarely
        # connects to itself.
        return sorted(self.trusted, key=lambda key: key == self.public_key)

    def probe(self, endpoint: str, kind: int, where: str | None = None) -> tuple[Probed, str | None]:
        """Try the trusted keys at an endpoint; see `probe` of `oz.transport.probing`.

        Args:
            endpoint: endpoint of the listener, in the spelling of `servers`.
            kind: ZeroMQ type of the socket that connects, such as `zmq.SUB`.
            where: endpoint to which the search connects, for example the link endpoint. None means `endpoint`.
        """
        candidates = self.candidates(endpoint)
        where = where or endpoint
        if not candidates:
            return Probed.STRANGER, None
        found: tuple[Probed, str | None] = (Probed.STRANGER, None)
        if (likely := self._found.get(endpoint) or self._key_named(host_of(endpoint))) in candidates:
            found = probe(where, kind, self._pair, [likely])
        others = [candidate for candidate in candidates if candidate != likely]
        if found[0] is Probed.STRANGER and others:
            found = probe(where, kind, self._pair, others)
        if found[0] is Probed.STRANGER and mechanism_at(where) == NULL:
            return Probed.KEYLESS, None
        if found[1] is not None:
            if len(self._found) >= _MAX_FOUND:
                self._found.clear()
            self._found[endpoint] = found[1]
        return found

    def _key_named(self, name: str | None) -> str | None:
        return next((key for key, its in self.trusted.items() if its == name), None)

    def why_not(self, found: Probed, endpoint: str, key: str | None) -> str | None:
        """Return why a socket cannot connect to an endpoint, as the end of a sentence that begins with the endpoint.

        The result is None if the socket can connect, or if nothing listens at the endpoint yet.

        Args:
            found: outcome of a search or of a handshake.
            endpoint: endpoint of the listener.
            key: public key of the listener; None if it is unknown.
        """
        match found:
            case Probed.REFUSED:
                return (
                    f"has the key {key} and does not trust the key of this side, {self.public_key}: on its host, run "
                    f"oz keys trust {self._key_file.stem}{PUBLIC} --in DIR with the directory that it trusts"
                )
            case Probed.STRANGER:
                return self._strange_to(endpoint, key)
            case Probed.KEYLESS:
                return (
                    "has no key at all, and this side connects only to listeners with a key: give it security= (nodes "
                    "and commands also read OZ_SECURITY)"
                )
            case Probed.SILENT:
                return "accepts connections and proves no key: it may be busy, or is no listener of ZeroMQ"
        return None

    def _strange_to(self, endpoint: str, key: str | None) -> str:
        trust = f"oz keys trust --in {shlex.quote(str(self.directory))}"
        if key is not None:
            return f"has the key {key}, which this side does not trust: run {trust} --name NAME -- {shlex.quote(key)}"
        named = self._servers.get(endpoint)
        remedy = f"run {trust} FILE with its certificate"
        if named is not None:
            remedy = f"servers= demands the certificate {named!r}"
        return f"has no key that this side trusts: {remedy}"

    def rights(self) -> Rights:
        """Return the trusted keys and their permissions. The object is the same until one of the files changes."""
        # Read the clock only once, because this method is called for each received frame.
        now = time.monotonic()
        trusted = self._trusted.at(now)
        permissions = None if self._permissions is None else self._permissions.at(now)
        if trusted is not self._rights.trusted or permissions is not self._rights.permissions:
            self._rights = Rights(trusted, permissions)
        return self._rights

    @property
    def is_changing(self) -> bool:
        """Whether a changed permission file is not read yet. First, two checks in a row must find the same state."""
        return self._permissions is not None and self._permissions.is_changing

    def _set_pair(self, socket: zmq.Socket[Any]) -> None:
        socket.set(zmq.CURVE_PUBLICKEY, self._pair.public.encode())
        socket.set(zmq.CURVE_SECRETKEY, self._pair.secret.encode())


def _read_permissions(path: Path) -> Permissions:
    return read_permissions(path, lambda text: _log.warning("%s", text))


class Reloaded(Generic[T]):
    """Content of a file, or of all files in a directory, that is read again after a change."""

    def __init__(
        self, path: Path, read: Callable[[Path], T], kept: Callable[[Path, T], T] | None = None
    ) -> None:
        """Read the content.

        Args:
            path: path of the file or the directory.
            read: function that returns the whole content, or raises an error.
            kept: function that is called with the earlier content if `read` raises an error. It returns the part that
                stays in force. If None, the whole earlier content stays in force, and a changed file is read only
                after two checks in a row found the same state.
        """
        self._path, self._read, self._kept = path, read, kept
        self._lock = threading.Lock()
        self._seen = self._changing = _state(path)
        self._value = read(path)
        self._checked_at = time.monotonic()
        self._due_at = self._checked_at + _CHECK_INTERVAL
        self._asked_at = -inf

    @property
    def value(self) -> T:
        """Current content; the earlier content if the file cannot be used."""
        return self.at(time.monotonic())

    @property
    def is_changing(self) -> bool:
        """Whether a detected change is not read yet."""
        return self._changing != self._seen

    def at(self, now: float) -> T:
        """Return the content as `value` does.

        Args:
            now: current time, in seconds of `time.monotonic`.
        """
        return self._value if now < self._due_at else self.refresh(_CHECK_INTERVAL)

    def value_for_unknown_key(self) -> T:
        """Check for a change at once, so that a recently added key is found, and return the content.

        Callers with unknown keys cause at most one check in `_SHORT_INTERVAL` seconds.
        """
        now = time.monotonic()
        if now - self._asked_at < _SHORT_INTERVAL:
            return self.refresh(_SHORT_INTERVAL)
        self._asked_at = now
        return self.refresh(0.0)

    def refresh(self, interval: float) -> T:
        """Check for a change if the last check was at least `interval` seconds ago, and return the content."""
        if time.monotonic() - self._checked_at >= (_SHORT_INTERVAL if self.is_changing else interval):
            with self._lock:
                self._checked_at = time.monotonic()
                before, self._changing = self._changing, _state(self._path)
                is_still = self._changing == before or self._kept is not None
                if is_still and self._changing != self._seen:
                    self._seen = self._changing
                    self._reload()
                self._due_at = self._checked_at + (_SHORT_INTERVAL if self.is_changing else _CHECK_INTERVAL)
        return self._value

    def check_again(self) -> T:
        """Read a changed file now if its last change is at least `_SHORT_INTERVAL` seconds old; return the content."""
        with self._lock:
            state: Any = _state(self._path)
            if state not in (None, self._seen) and time.time_ns() - max(state[:2]) >= _SHORT_INTERVAL * 1e9:
                self._seen = self._changing = state
                self._reload()
        return self._value

    def _reload(self) -> None:
        try:
            self._value = self._read(self._path)
        except Exception as error:
            # Log all errors, because the caller did not change the file and expects no error.
            if self._kept is not None:
                self._value = self._kept(self._path, self._value)
            _log.error(
                "%s has changed and cannot be used; its earlier content stays in force: %s", self._path, error
            )
        else:
            _log.info("%s has changed, and was read again", self._path)


def _state(path: Path) -> object:
    """Return a value that changes when a file, or any file in a directory, changes; None if it cannot be read."""
    # Use `scandir`, which creates no `Path` for each file, because each node of a process checks its files twice a
    # second.
    try:
        own = _marks(os.stat(path))
        if not path.is_dir():
            return own
        with os.scandir(path) as entries:
            return own, sorted((entry.name, _marks_at(entry.path)) for entry in entries)
    except OSError:
        return None


def _marks_at(path: str) -> tuple[int, ...]:
    try:
        return _marks(os.stat(path))
    except OSError:
        # A broken link in the directory must not stop the check of the other files.
        return ()


def _marks(found: os.stat_result) -> tuple[int, ...]:
    # A change of the mode changes `st_ctime_ns`. Therefore a file that was refused for its mode is read again.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
