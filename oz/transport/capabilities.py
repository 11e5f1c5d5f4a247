"""Capabilities of the installed libzmq, and the commands that install a missing capability."""

from __future__ import annotations

import shlex
import sys

import zmq

from oz.errors import MissingDependency
from oz.system import user
from oz.transport.errors import EndpointError

APT_PACKAGES = ("libzmq3-dev", "build-essential", "python3-dev")
"""Packages that are needed to build pyzmq with the libzmq of Debian or Ubuntu, which has PGM."""

MAPS = "/proc/self/maps"
"""File in which Linux lists the libraries of this process."""

# Feature of `zmq.has` that each transport needs.
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


def has(feature: str) -> bool:
    """Return whether libzmq has a feature, such as `pgm`, `curve`, `ipc` or `draft`.

    If `zmq.has` of this pyzmq does not know the feature, the function returns False.
    """
    try:
        return bool(zmq.has(feature))
    except (zmq.ZMQError, ValueError):
        return False


def crypto_library() -> str:
    """Return the name of the library that CURVE uses; empty if it is unknown.

    libzmq does not report the name. Therefore the function looks for the shared library libsodium, which is many times
    as fast as tweetnacl. tweetnacl is compiled into libzmq.
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
    """Return a command that runs pip with an interpreter, by default with the interpreter that runs now."""
    return shlex.join([python or sys.executable or "python3", "-m", "pip", verb, *arguments])


def build_line(python: str | None = None) -> str:
    """Return the command that builds pyzmq against the libzmq of the system.

    The command does not use pip's cache, because a pyzmq in the cache may have no PGM.
    """
    built = pip_line("--no-cache-dir", "--force-reinstall", "--no-binary", "pyzmq", "pyzmq", python=python)
    return f"PYZMQ_NO_BUNDLE=1 {built}"


def apt_line(*packages: str) -> str:
    """Return a command that installs packages on Debian and Ubuntu, with `sudo` unless the user is root."""
    prefix = "" if user() == 0 else "sudo "
    return f"{prefix}apt-get update && {prefix}apt-get install -y {' '.join(packages)}"


def pgm_line() -> str:
    """Return the command that adds PGM on Debian and Ubuntu."""
    return f"{apt_line(*APT_PACKAGES)} && {build_line()}"


def require_pgm() -> None:
    """Raise EndpointError with the command that adds PGM, if libzmq has no PGM."""
    if not has("pgm"):
        raise EndpointError(f"this libzmq has no PGM; {_pgm_hint()}", zmq.EPROTONOSUPPORT)


def check_transport(scheme: str, endpoint: str) -> None:
    """Raise EndpointError if libzmq was built without the transport of an endpoint.

    Args:
        scheme: text before `://`.
        endpoint: whole endpoint, for the message.
    """
    needed = _NEEDED.get(scheme)
    if needed is None or has(needed):
        return
    hint = _pgm_hint() if needed == "pgm" else "use a libzmq that was built with it"
    raise EndpointError(
        f"this libzmq has no {scheme} transport for {endpoint!r}; {hint}", zmq.EPROTONOSUPPORT
    )


def require_curve() -> None:
    """Raise MissingDependency if libzmq has no CURVE."""
    if not has("curve"):
        raise MissingDependency(
            "this libzmq was built without CURVE, so it has no keys; the wheels of pyzmq have it: "
            "install pyzmq from one"
        )


def _pgm_hint() -> str:
    return f"the wheels of pyzmq are built without it; on Debian and Ubuntu this line adds it: {pgm_line()}"
