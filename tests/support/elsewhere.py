"""Simulation of a system that is not POSIX; it runs before the import of oz."""

# The standard library and other packages need these modules, so they are imported before they are hidden.
import asyncio  # noqa: F401
import logging  # noqa: F401
import multiprocessing  # noqa: F401
import os
import random  # noqa: F401
import select
import shutil  # noqa: F401
import signal
import socket
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
from importlib import metadata  # noqa: F401

import click  # noqa: F401
import msgpack  # noqa: F401
import pyarrow  # noqa: F401
import regex  # noqa: F401
import rich.console  # noqa: F401
import zmq.asyncio  # noqa: F401

_MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty")
_NAMES = {
    os: (
        "fork",
        "register_at_fork",
        "geteuid",
        "getuid",
        "getpgid",
        "killpg",
        "environb",
        "O_DIRECTORY",
        "O_CLOEXEC",
    ),
    select: ("poll", "epoll", "POLLIN", "POLLHUP", "POLLERR", "POLLNVAL"),
    signal: ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGKILL", "pthread_kill", "pthread_sigmask"),
    socket: ("AF_UNIX", "SO_REUSEPORT", "if_nameindex"),
}


def hide():
    """Hide the modules and functions of POSIX until the process ends."""
    pair, unix = socket.socketpair, socket.AF_UNIX
    # Python has one of its own there, over TCP.
    socket.socketpair = lambda: pair(unix)
    for name in _MODULES:
        sys.modules[name] = None
    for module, names in _NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
