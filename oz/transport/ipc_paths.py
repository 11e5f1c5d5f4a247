"""Socket files of `ipc://` endpoints: the check before a bind, and the removal at close.

Before libzmq 4.3.5 binds a path, it removes any file at the path: the socket of another process, or a plain file. A
process whose socket file was removed keeps its connections, but accepts no new connections and gets no error. When a
socket closes, libzmq does not remove the file of a path that the program has named.
"""

from __future__ import annotations

import errno
import os
import socket as sockets
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import zmq

from oz.transport.errors import EndpointError

_SCHEME = "ipc://"
_REMEDY = "stop that process, or bind to another path"


class _SocketFile(NamedTuple):
    """Socket file that this process has bound.

    Attributes:
        path: absolute path of the file, because the program may change its working directory.
        identity: device and inode of the file. The kernel does not reuse the inode while the socket listens.
        pid: id of the process that bound the path.
    """

    path: str
    identity: tuple[int, int]
    pid: int


class SocketFiles:
    """Socket files of the `ipc://` endpoints that one socket has bound."""

    __slots__ = ("_files",)

    def __init__(self) -> None:
        """Start without files."""
        self._files: dict[str, _SocketFile] = {}

    def bind(self, socket: zmq.Socket[Any], endpoint: str, bind: Callable[..., Any] = zmq.Socket.bind) -> Any:
        """Bind a socket of pyzmq; refuse an `ipc://` path at which a process listens.

        The method tries to connect to the path. If no process listens there, the file is stale, and libzmq replaces it.
        Between this check and the bind, another process may bind the same path. libzmq then replaces the socket file of
        that process without an error. oz accepts this race.

        On macOS, a listener with a full backlog refuses the trial connection and therefore looks stale.

        Args:
            socket: socket that binds.
            endpoint: any endpoint of libzmq. Only an `ipc://` endpoint is checked.
            bind: unbound method that binds, such as `zmq.Socket.bind`.

        Returns:
            The value that `zmq.Socket.bind` returns.

        Raises:
            EndpointError: the path is in use or is not a socket (errno EADDRINUSE), or this process may not connect
                to the path (errno of the connection).
            zmq.ZMQError: libzmq refuses the bind for another reason.
        """
        path = _path_of(socket, endpoint)
        if path is not None:
            _check_free(path)
        try:
            manager = bind(socket, endpoint)
        except zmq.ZMQError as error:
            if error.errno == zmq.EADDRINUSE and endpoint.startswith(_SCHEME):
                # The endpoint is an abstract name, which libzmq does not replace.
                raise _in_use(endpoint.removeprefix(_SCHEME)) from None
            raise
        if path is not None:
            with suppress(OSError):
                found = os.lstat(path)
                identity = found.st_dev, found.st_ino
                self._files[endpoint] = _SocketFile(os.path.abspath(path), identity, os.getpid())
        return manager

    def remove(self, endpoint: str) -> None:
        """Remove the file of an endpoint, if this process bound the path and no other socket has replaced the file.

        Call the method before the socket stops listening. Later the kernel may give the inode of the file to another
        file, and the method could remove the wrong file.
        """
        file = self._files.pop(endpoint, None)
        if file is None or file.pid != os.getpid():
            return
        with suppress(OSError):
            found = os.lstat(file.path)
            if (found.st_dev, found.st_ino) == file.identity:
                os.unlink(file.path)

    def remove_all(self) -> None:
        """Remove the files of all endpoints; see `remove`."""
        for endpoint in [*self._files]:
            self.remove(endpoint)


def _path_of(socket: zmq.Socket[Any], endpoint: str) -> str | None:
    """Return the path of the file that a bind creates; None if libzmq creates no file or only a temporary file."""
    path = endpoint.removeprefix(_SCHEME).partition("\0")[0]
    if path == endpoint or path == "*" or path.startswith("@") or not hasattr(sockets, "AF_UNIX"):
        return None
    if len(os.fsencode(path)) > zmq.IPC_PATH_MAX_LEN:
        # libzmq refuses the path before it removes a file.
        return None
    if not isinstance(socket, zmq.backend.Socket):
        # A model socket of `oz.testing` creates no file.
        return None
    if int(zmq.backend.Socket.get(socket, zmq.USE_FD)) >= 0:
        # With USE_FD, the program has bound the path itself, and libzmq neither removes the file nor binds.
        return None
    return path


def _check_free(path: str) -> None:
    """Raise EndpointError if a path exists and is no socket, or if a process listens at it."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        # The file does not exist, or this process may not read its directory. The bind reports the second case.
        return
    if not stat.S_ISSOCK(mode):
        text = f"ipc path {path!r} is {_kind_of(mode)}, not a socket; remove it, or bind to another path"
        raise EndpointError(text, zmq.EADDRINUSE)
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        # A full backlog raises BlockingIOError at once.
        probe.setblocking(False)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except BlockingIOError:
            pass
        except OSError as error:
            # EPROTOTYPE: a socket of another type listens there.
            if error.errno != errno.EPROTOTYPE:
                text = f"ipc path {path!r} may be in use: {error.strerror}; {_REMEDY}"
                raise EndpointError(text, error.errno or zmq.EADDRINUSE) from None
    raise _in_use(path)


def _in_use(path: str) -> EndpointError:
    text = f"ipc path {path!r} is in use: a process listens there; {_REMEDY}"
    return EndpointError(text, zmq.EADDRINUSE)


def _kind_of(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    return "a symbolic link" if stat.S_ISLNK(mode) else "a file"
