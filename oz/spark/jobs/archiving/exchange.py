"""Two directories change places at once: no reader sees both, or neither."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from pathlib import Path

from oz.errors import LakeError

_HERE = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE
_NOT_POSSIBLE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


def exchange(one: Path, other: Path) -> None:
    """Let two directories change places, atomically.

    Raises:
        LakeError: this file system cannot do it.
        OSError: the system failed to.
    """
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        failure = errno.ENOSYS
    else:
        done = call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), ctypes.c_uint(_EXCHANGE))
        failure = ctypes.get_errno() if done else 0
    if failure in _NOT_POSSIBLE:
        raise LakeError(
            f"{other}: this file system cannot exchange two directories at once (Linux can, on ext4, xfs, "
            "btrfs and tmpfs; NFS cannot). Readers would see records twice or not at all: do not compact"
        )
    if failure:
        raise OSError(failure, os.strerror(failure), str(one), None, str(other))


def try_exchange(directory: Path) -> None:
    """Try it with two empty directories that are made for it.

    Args:
        directory: where to make them; not there yet, and gone afterwards.

    Raises:
        LakeError: this file system cannot do it.
        OSError: the system failed to.
    """
    one, other = directory / "one", directory / "other"
    try:
        one.mkdir(parents=True)
        other.mkdir()
        exchange(one, other)
    finally:
        shutil.rmtree(directory)
