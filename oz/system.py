"""Features that not every operating system has, looked for here so that oz can be imported everywhere."""

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
"""What `flock` is asked for. Source: flock(2)."""

POLLIN, POLLHUP = getattr(select, "POLLIN", 1), getattr(select, "POLLHUP", 16)


def is_reader_gone(descriptor: int) -> bool:
    """Tell whether nobody reads a pipe or socket any more, without writing to it.

    Args:
        descriptor: that is written to. It may also be no pipe at all.

    Returns:
        False also where only writing tells: Windows has no `poll`.
    """
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))


class Poll:
    """`select.poll` for systems that have only `select.select`, as far as oz uses it."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._descriptors: list[int] = []

    def register(self, descriptor: object, events: int = POLLIN) -> None:
        """Watch a file descriptor, or what has one, for something to read."""
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()  # type: ignore[attr-defined]
        self._descriptors.append(number)

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """Wait so many milliseconds, for ever without a number; give what is readable."""
        seconds = None if timeout is None or timeout < 0 else timeout / 1000
        if not self._descriptors:
            # Windows does not wait for nothing.
            time.sleep(seconds or 0)
            return []
        readable, _, _ = select.select(self._descriptors, [], [], seconds)
        return [(descriptor, POLLIN) for descriptor in readable]


make_poll: Callable[[], Poll] = getattr(select, "poll", Poll)
"""Make a poll object: Python's own, where there is one."""


def after_fork(work: Callable[[], object]) -> None:
    """Run something in the child of every fork, where processes fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=work)


SERVICE_DESCRIPTORS = 65_536
"""File descriptors that a service asks the system for."""


def raise_descriptors(wanted: int = SERVICE_DESCRIPTORS) -> None:
    """Allow this process more file descriptors, if the system does: for commands; a library must not.

    Args:
        wanted: how many; a limit that is higher stays.
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
    """Return the number of the user, which the system compares with owners of files; 0 without users."""
    return os.geteuid() if hasattr(os, "geteuid") else 0


def flock(descriptor: int, operation: int) -> None:
    """Lock a file, as `fcntl.flock`.

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
    """Ask the system about a device, as `fcntl.ioctl`; only where `HAS_FCNTL`."""
    return fcntl.ioctl(descriptor, request, argument)


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Hold Ctrl-C back, also from programs started meanwhile, where threads have a mask of signals."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
