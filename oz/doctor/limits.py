"""Findings about the limits that this system sets."""

from __future__ import annotations

import sys
from pathlib import Path

from oz.doctor.finding import Finding, State

GROUP = "Limits"

FEW_FILES = 4_096
"""Each TCP connection of a ZeroMQ socket takes a file; the usual limit of a shell is 1,024."""

MANY_FILES = 65_536

SMALL_BUFFER = 4 << 20
"""Bytes. What arrives while ZeroMQ's thread is busy waits in the socket's buffer; multicast loses more."""

_CORE = Path("/proc/sys/net/core")


def limits() -> list[Finding]:
    """Look at limits that hurt when they are small."""
    return [_open_files(), *_buffers()]


def _open_files() -> Finding:
    try:
        import resource
    except ImportError:
        return Finding("open-files", GROUP, "no", "", f"{sys.platform} does not tell")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    value = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    note = "one for each connection and each socket"
    if soft == resource.RLIM_INFINITY or soft >= FEW_FILES:
        return Finding("open-files", GROUP, "yes", value, note)
    within = hard == resource.RLIM_INFINITY or hard > soft
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(MANY_FILES, hard)
    if not within:
        return Finding("open-files", GROUP, "low", value, f"{note}; only root can raise it here")
    return Finding("open-files", GROUP, "low", value, note, f"ulimit -n {wanted}")


def _buffers() -> list[Finding]:
    named = (
        ("receive-buffer", "rmem_max", "bytes a socket may ask for; bursts of multicast wait there"),
        ("send-buffer", "wmem_max", "bytes a socket may ask for"),
    )
    return [_buffer(*one) for one in named]


def _buffer(name: str, file: str, note: str) -> Finding:
    most = _number(_CORE / file)
    if most is None:
        return Finding(name, GROUP, "yes", "", "this system does not say")
    state: State = "yes" if most >= SMALL_BUFFER else "low"
    add = "" if state == "yes" else f"sudo sysctl -w net.core.{file}={SMALL_BUFFER}"
    return Finding(name, GROUP, state, f"{most:,}", note, add)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None
