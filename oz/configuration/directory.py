"""The directory in which the nodes of one host find each other: where it is, and who may write in it.

Whoever can write there can pose as any node. So it belongs to the user who runs the node, and to nobody else.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path

from oz.errors import ConfigurationError
from oz.system import user

_MODE = 0o700


def default_directory() -> Path:
    """Say where nodes find each other when nobody says anything: `$XDG_RUNTIME_DIR/oz` or `$TMPDIR/oz-<uid>`.

    `$XDG_RUNTIME_DIR` counts when it is an absolute path and belongs to this user, as its specification
    demands (XDG Base Directory Specification 0.8); after `sudo -E` it does not. `$TMPDIR` is `/tmp` if unset.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and _is_own_directory(runtime):
        return Path(runtime, "oz")
    # Not tempfile.gettempdir, which falls back to the working directory: no two nodes would meet there.
    temporary = os.environ.get("TMPDIR", "")
    return Path(temporary if os.path.isabs(temporary) else "/tmp", f"oz-{user()}")


def private_directory(directory: str | os.PathLike[str], *, source: str = "argument") -> Path:
    """Make a directory that only this user can enter, or see that it is one.

    Args:
        directory: its absolute path; parents that are not there are made alike.
        source: where the path came from, as `Setting.source`; errors name it.

    Returns:
        The path.

    Raises:
        ConfigurationError: it is no directory or a symbolic link, belongs to somebody else, lets anybody else
            in, or stands where anybody can replace it; or the system does not allow it.
    """
    path = Path(directory)
    if not hasattr(socket, "AF_UNIX"):
        rule = f"{sys.platform} has no Unix sockets for it; give the node connect= or bind="
        raise ConfigurationError("directory", str(path), source, rule)
    try:
        _make(path)
        fault = _fault(path) or _fault_above(path)
    except OSError as error:
        fault = f"{error.strerror or error}; give a directory that this user may make and use"
    if fault:
        raise ConfigurationError("directory", str(path), source, fault)
    return path


def _is_own_directory(path: str) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == user()


def _make(path: Path) -> None:
    missing = []
    for one in (path, *path.parents):
        if os.path.lexists(one):
            break
        missing.append(one)
    for one in reversed(missing):
        with suppress(FileExistsError):  # another node was faster
            one.mkdir(_MODE)


def _fault(path: Path) -> str | None:
    """Say what is wrong with the directory itself."""
    found = path.lstat()
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        return (
            "it is a symbolic link, and the user who made it may lead it elsewhere; give the path it leads to"
        )
    if not stat.S_ISDIR(found.st_mode):
        return "it is there and no directory; remove it, or give another"
    if mode & stat.S_ISVTX and mode & stat.S_IWOTH:
        own = path / f"oz-{user()}"
        return f"it is for all users, and nobody else may enter that of a bus; give one within: {own}"
    if found.st_uid != user():
        return (
            f"it belongs to user {found.st_uid}, who could pose as any node, and not to {user()}; "
            "remove it, or give another"
        )
    if mode & 0o777 != _MODE:
        return f"its mode is {mode:04o}, and only its owner may enter it: chmod 700 {path}, or give another"
    return None


def _fault_above(path: Path) -> str | None:
    """Say which directory above lets anybody put another in its place."""
    parent = path.parent.resolve(strict=True)
    for one in (parent, *parent.parents):
        mode = one.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            advice = f"chmod +t {one}, or give another"
            return f"anybody can put another in its place, as {one} may be written by all: {advice}"
    return None
