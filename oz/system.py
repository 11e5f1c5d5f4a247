"""Features that some operating systems lack, so that oz can be imported on all of them."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from oz.errors import JournalError

try:
    import fcntl
except ImportError:
    HAS_FCNTL = False
else:
    HAS_FCNTL = True

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]

LOCK_EX, LOCK_NB = 2, 4
"""Operations of `flock`. Source: flock(2)."""

POLLIN, POLLHUP = getattr(select, "POLLIN", 1), getattr(select, "POLLHUP", 16)


def is_reader_gone(descriptor: int) -> bool:
    """Return whether the reader of a pipe or socket has closed it, without a write.

    Args:
        descriptor: of any file.

    Returns:
        False on Windows, which has no `poll`: there only a write can show it.
    """
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))


class Poll:
    """`select.poll` for systems that have only `select.select`: the methods that oz uses."""

    def __init__(self) -> None:
        """Start without descriptors."""
        self._descriptors: list[int] = []

    def register(self, descriptor: object, events: int = POLLIN) -> None:
        """Poll a descriptor, or an object with `fileno`, for input."""
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()  # type: ignore[attr-defined]
        self._descriptors.append(number)

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """Wait for input, for `timeout` milliseconds at most; return the readable descriptors."""
        seconds = None if timeout is None or timeout < 0 else timeout / 1000
        if not self._descriptors:
            # On Windows `select` needs a descriptor.
            time.sleep(seconds or 0)
            return []
        readable, _, _ = select.select(self._descriptors, [], [], seconds)
        return [(descriptor, POLLIN) for descriptor in readable]


make_poll: Callable[[], Poll] = getattr(select, "poll", Poll)
"""Class of poll objects: that of Python if it exists."""


def after_fork(work: Callable[[], object]) -> None:
    """Call a function in the child of every fork, if the system has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=work)


SERVICE_DESCRIPTORS = 65_536
"""File descriptors that a service requests."""


def raise_descriptors(wanted: int = SERVICE_DESCRIPTORS) -> None:
    """Raise the limit of file descriptors of this process, if the system allows it. Only commands call this.

    Args:
        wanted: new limit. A higher limit stays.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(OSError, ValueError):  # macOS has a bound of its own
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def user() -> int:
    """Return the effective user id; 0 on a system without users."""
    return os.geteuid() if hasattr(os, "geteuid") else 0


def flock(descriptor: int, operation: int) -> None:
    """Lock a file as `fcntl.flock` does.

    Raises:
        JournalError: the system has no such locks.
        BlockingIOError: with `LOCK_NB`: another process has it.
    """
    if not HAS_FCNTL:
        raise JournalError(
            f"a journal needs locks of files (flock), and {sys.platform} has none: keep it on Linux or macOS"
        )
    fcntl.flock(descriptor, operation)


def ioctl(descriptor: Any, request: int, argument: bytes) -> bytes:
    """Call `fcntl.ioctl`. It needs `HAS_FCNTL`."""
    return fcntl.ioctl(descriptor, request, argument)


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Block SIGINT in the context, also in programs that are started there, if threads have a signal mask."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
