"""The capabilities of this installation of ZeroMQ, and the line that adds one."""

from __future__ import annotations

import shlex
import sys

import zmq

from oz.errors import TransportUnavailable
from oz.system import user

APT_PACKAGES = ("libzmq3-dev", "build-essential", "python3-dev")
"""What Debian and Ubuntu need to build pyzmq against their own libzmq, which has PGM."""

MAPS = "/proc/self/maps"
"""Where Linux lists the libraries of this process."""

_NEEDED = {
    "pgm": "pgm",
    "epgm": "pgm",
    "norm": "norm",
    "tipc": "tipc",
    "vmci": "vmci",
    "ipc": "ipc",
    "ws": "WS",
    "wss": "WSS",
}


class MissingTransport(TransportUnavailable, zmq.ZMQError):
    """This libzmq was built without a transport; `errno` is EPROTONOSUPPORT, as in pyzmq."""

    def __init__(self, text: str) -> None:
        """Say which, and what adds it."""
        zmq.ZMQError.__init__(self, zmq.EPROTONOSUPPORT, text)


def has(feature: str) -> bool:
    """Tell whether this libzmq has a feature: `pgm`, `curve`, `ipc`, `draft`, or as `zmq.has` names others.

    What this pyzmq cannot be asked about counts as missing.
    """
    try:
        return bool(zmq.has(feature))
    except (zmq.ZMQError, ValueError):
        return False


def crypto_library() -> str:
    """Name the library that CURVE uses here; empty where that cannot be told.

    libzmq does not say. Its own tweetnacl is part of it; libsodium, many times as fast, is a file of its own.
    """
    if not has("curve"):
        return ""
    zmq.curve_keypair()
    try:
        with open(MAPS, encoding="utf-8", errors="replace") as maps:
            return "libsodium" if "libsodium" in maps.read() else "tweetnacl"
    except OSError:
        return ""


def pip_line(*arguments: str, python: str | None = None, verb: str = "install") -> str:
    """Write a line that runs pip for a Python: this very one, unless another is named."""
    return shlex.join([python or sys.executable or "python3", "-m", "pip", verb, *arguments])


def build_line(python: str | None = None) -> str:
    """Write the line that builds pyzmq against the libzmq of the system.

    Nothing of pip's cache is used: it may hold a pyzmq that was built without PGM.
    """
    built = pip_line("--no-cache-dir", "--force-reinstall", "--no-binary", "pyzmq", "pyzmq", python=python)
    return f"PYZMQ_NO_BUNDLE=1 {built}"


def apt_line(*packages: str) -> str:
    """Return a line that installs packages on Debian and Ubuntu, with `sudo` unless the user is root."""
    prefix = "" if user() == 0 else "sudo "
    return f"{prefix}apt-get update && {prefix}apt-get install -y {' '.join(packages)}"


def pgm_line() -> str:
    """Return the line that adds PGM on Debian and Ubuntu."""
    return f"{apt_line(*APT_PACKAGES)} && {build_line()}"


def require_pgm() -> None:
    """Refuse to go on without PGM.

    Raises:
        TransportUnavailable: this libzmq was built without; says the line that adds it.
    """
    if not has("pgm"):
        raise TransportUnavailable(f"this libzmq has no PGM; {_pgm_hint()}")


def check_transport(scheme: str, endpoint: str) -> None:
    """Refuse an endpoint whose transport this libzmq lacks.

    Args:
        scheme: what stands before `://`.
        endpoint: all of it, for the message.

    Raises:
        TransportUnavailable: libzmq was built without it; says what adds it.
    """
    needed = _NEEDED.get(scheme)
    if needed is None or has(needed):
        return
    hint = _pgm_hint() if needed == "pgm" else "use a libzmq that was built with it"
    raise MissingTransport(f"this libzmq has no {scheme} transport for {endpoint!r}; {hint}")


def _pgm_hint() -> str:
    return f"the wheels of pyzmq are built without it; on Debian and Ubuntu this line adds it: {pgm_line()}"
