"""Directory in which the nodes of one host find each other: its default path, and checks of its mode and owner.

A process that can write in the directory can impersonate any node. Therefore the directory must belong to the user of
the node, and no other user may enter it.
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
    """Return the default of the setting `directory`: `$XDG_RUNTIME_DIR/oz` or `$TMPDIR/oz-<uid>`.

    `$XDG_RUNTIME_DIR` is used only if it is an absolute path and belongs to this user, as the XDG Base
    Directory Specification 0.8 demands. After `sudo -E`, for example, it belongs to another user. If `$TMPDIR` is not
    an absolute path, `/tmp` is used.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and _is_own_directory(runtime):
        return Path(runtime, "oz")
    # tempfile.gettempdir falls back to the working directory, which differs from node to node.
    temporary = os.environ.get("TMPDIR", "")
    return Path(temporary if os.path.isabs(temporary) else "/tmp", f"oz-{user()}")


def private_directory(directory: str | os.PathLike[str], *, source: str = "argument") -> Path:
    """Create a directory that only this user can enter, or check an existing directory.

    Args:
        directory: absolute path of the directory. Missing parents are created with the same mode.
        source: source of the path for error messages, such as "argument"; see `Setting.source`.

    Returns:
        The path of the directory.

    Raises:
        ConfigurationError: the path is a symbolic link or not a directory, belongs to another user, or has another
            mode than 700. The error is also raised if the system refuses to create the directory, or if all users
            can replace it: they can write to a parent directory that has no sticky bit.
    """
    path = Path(directory)
    if not hasattr(socket, "AF_UNIX"):
        rule = f"{sys.platform} has no Unix sockets; give the node connect= or bind="
        raise ConfigurationError("directory", str(path), source, rule)
    try:
        _make(path)
        fault = _fault(path) or _fault_above(path)
    except OSError as error:
        fault = f"{error.strerror or error}; give a directory that this user can create and enter"
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
    for parent in (path, *path.parents):
        if os.path.lexists(parent):
            break
        missing.append(parent)
    for directory in reversed(missing):
        with suppress(FileExistsError):  # another node was faster
            directory.mkdir(_MODE)


def _fault(path: Path) -> str | None:
    found = path.lstat()
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        return "it is a symbolic link, which its owner can point to another directory; give the target of the link"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory; remove it, or give another path"
    if mode & stat.S_ISVTX and mode & stat.S_IWOTH:
        own = path / f"oz-{user()}"
        return f"it is shared by all users, and only this user may enter the directory of a bus; give {own}"
    if found.st_uid != user():
        return (
            f"it belongs to user {found.st_uid}, who could impersonate each node, and not to user {user()}; "
            "remove it, or give another path"
        )
    if mode & 0o777 != _MODE:
        return f"its mode is {mode:04o}, which lets other users in: chmod 700 {path}, or give another path"
    return None


def _fault_above(path: Path) -> str | None:
    """Return an error text if all users can replace the directory in one of its parents; None otherwise."""
    parent = path.parent.resolve(strict=True)
    for directory in (parent, *parent.parents):
        mode = directory.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            advice = f"chmod +t {directory}, or give another path"
            return f"all users can replace it, because all users can write in {directory}: {advice}"
    return None
