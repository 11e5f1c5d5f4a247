"""Reader of the configuration file and its tables `[node]`, `[limits]` and `[security]`."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from oz.configuration import limits
from oz.configuration.settings import BY_NAME, nearest_name
from oz.errors import ConfigurationError
from oz.system import user

VARIABLE = "OZ_CONFIG"
FILE = "oz.toml"
TABLE = "node"
SECURITY_TABLE = "security"

MAX_FILE_SIZE = 1 << 16
"""Maximum size of a configuration file in bytes. A larger file is refused."""

MAX_DOTS = 1_000
"""Maximum number of dots in one line. The time of `tomllib` grows with the third power of the dots in a key."""

_ANOTHER = f"or name another file with {VARIABLE}; {VARIABLE}=/dev/null means no file"


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """Path at which the configuration file may be.

    Attributes:
        path: absolute path of the file.
        place: "OZ_CONFIG", "working directory" or "user's configuration".
        state: "read", "wrong" (the file has a fault), "not there" (no file has this path), or "not needed" (an earlier
            candidate exists).
    """

    path: Path
    place: str
    state: str


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Contents of the configuration file.

    Attributes:
        candidates: all paths at which the file may be, in the order in which they are tried.
        path: path of the file that was read; None without a file.
        table: table `[node]`, without unknown names. The values are not checked yet.
        limits: table `[limits]`, without unknown names and wrong values.
        security: table `[security]`; None without this table.
        faults: all faults of the file, except wrong values in `[node]` and `[security]`.
        limit_faults: faults of `[limits]`, which are also in `faults`.
    """

    candidates: tuple[ConfigurationFile, ...] = ()
    path: Path | None = None
    table: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    security: Mapping[str, Any] | None = None
    faults: tuple[ConfigurationError, ...] = ()
    limit_faults: tuple[ConfigurationError, ...] = ()


def read_settings() -> FileSettings:
    """Read the configuration file: `$OZ_CONFIG` if it is set, otherwise `./oz.toml`, otherwise the user's file."""
    places = _candidate_paths()
    at = next((at for at, (path, _) in enumerate(places) if os.path.isfile(path)), len(places))
    if os.environ.get(VARIABLE):
        at = 0  # If the variable names a missing file, reading it reports the error.
    found = _read_file(*places[at]) if at < len(places) else FileSettings()
    states = ["not there"] * at + ["wrong" if found.faults else "read"] + ["not needed"] * len(places)
    candidates = tuple(ConfigurationFile(*place, state) for place, state in zip(places, states, strict=False))
    return replace(found, candidates=candidates)


def _candidate_paths() -> list[tuple[Path, str]]:
    named = os.environ.get(VARIABLE)
    if named:
        return [(Path(os.path.abspath(os.path.expanduser(named))), VARIABLE)]
    places = []
    with suppress(OSError):  # The working directory was removed.
        places.append((Path.cwd() / FILE, "working directory"))
    home = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG Base Directory Specification 0.8 demands that programs ignore a relative path.
    home = home if os.path.isabs(home) else os.path.expanduser("~/.config")
    if os.path.isabs(home):
        places.append((Path(home, "oz", "config.toml"), "user's configuration"))
    return places


def _read_file(path: Path, place: str) -> FileSettings:
    """Read one file. Unknown keys are faults and are left out of the tables."""
    try:
        with open_file(path) as file:
            if place == "working directory" and _is_foreign(path, file):
                return _with_fault(path, f"{_FOREIGN_FILE}{VARIABLE}={path}")
            text, is_shared = read_text(file), is_world_writable(file)
        whole = tomllib.loads(text)
    except OSError as error:
        return _with_fault(path, f"{error.strerror or error}; make it readable, {_ANOTHER}")
    # ValueError: wrong TOML, a number of thousands of digits, or text that is not UTF-8.
    except (ValueError, RecursionError) as error:
        return _with_fault(path, f"not TOML: {error}; correct it, {_ANOTHER}")
    table = whole.pop(TABLE, {})
    if not isinstance(table, dict):
        return _with_fault(path, f"write settings below a line [{TABLE}]", TABLE, table)
    security = whole.pop(SECURITY_TABLE, None)
    if security is not None and not isinstance(security, dict):
        return _with_fault(
            path, f"write key and trusted below a line [{SECURITY_TABLE}]", SECURITY_TABLE, security
        )
    if security is not None and is_shared:
        return _with_fault(path, f"{WORLD_WRITABLE}: chmod o-w {path}", SECURITY_TABLE)
    given, limit_faults = limits.limits_of(whole.pop(limits.TABLE, {}), path, text)
    # A table with an unknown name belongs to another program, but a value outside of the tables is a fault.
    strays = {key: value for key, value in whole.items() if not isinstance(value, dict)}
    faults = [
        _fault(path, f"write it below a line [{TABLE}], or remove it", *stray) for stray in strays.items()
    ]
    faults += [_unknown(path, key, table[key]) for key in table if key not in BY_NAME]
    # A similar name is a fault: if a misspelled [security] were ignored, the node would run without keys.
    faults += [
        _fault(path, f"no table of oz is called [{key}]; did you mean [{near}]? Otherwise rename the table")
        for key in whole
        if key not in strays and (near := nearest_name(key.lower(), (TABLE, SECURITY_TABLE, limits.TABLE)))
    ]
    known = {key: value for key, value in table.items() if key in BY_NAME}
    return FileSettings((), path, known, given, security, (*faults, *limit_faults), tuple(limit_faults))


def _with_fault(path: Path, rule: str, key: str | None = None, value: object = None) -> FileSettings:
    return FileSettings(path=path, faults=(_fault(path, rule, key, value),))


def open_file(path: Path) -> BinaryIO:
    """Open a file of settings for reading, without blocking.

    Raises:
        OSError: the file cannot be read, or is neither a regular file nor /dev/null. A read from a pipe may block for
            ever, and a read from a device may never end.
    """
    file = open(path, "rb", opener=_open_nonblocking)  # noqa: SIM115 - the caller closes it
    found = os.fstat(file.fileno())
    if stat.S_ISREG(found.st_mode) or os.path.samestat(found, os.stat(os.devnull)):
        return file
    file.close()
    raise OSError("it is a pipe or a device; give a regular file")


WORLD_WRITABLE = "all users can write it, and so choose the trusted keys"


def is_world_writable(file: BinaryIO) -> bool:
    """Return whether all users can write to a file, so that they can choose the keys that the file names."""
    return bool(os.fstat(file.fileno()).st_mode & stat.S_IWOTH)


def _open_nonblocking(path: str, flags: int) -> int:
    # Without O_NONBLOCK, `open` of a named pipe blocks until another process opens the pipe. Windows has no such pipes.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def load_toml(file: BinaryIO, max_size: int = MAX_FILE_SIZE) -> dict[str, Any]:
    """Read a file of settings.

    Args:
        file: open file, in binary mode.
        max_size: maximum size of the file in bytes.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is larger than `max_size`, has a line with more than `MAX_DOTS` dots, or is not TOML.
        RecursionError: the file is nested too deep.
    """
    return tomllib.loads(read_text(file, max_size))


def read_text(file: BinaryIO, max_size: int = MAX_FILE_SIZE) -> str:
    """Read the text of a file of settings.

    Args:
        file: open file, in binary mode.
        max_size: maximum size of the file in bytes.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is larger than `max_size`, has a line with more than `MAX_DOTS` dots, or is not UTF-8.
    """
    data = file.read(max_size + 1)
    if len(data) > max_size:
        raise ValueError(f"it is larger than {max_size:,} bytes")
    if any(line.count(b".") > MAX_DOTS for line in data.splitlines()):
        raise ValueError(f"a line has more than {MAX_DOTS} dots")
    return data.decode()


_FOREIGN_FILE = "another user created it in a directory of all users; read it, and if you trust it set "


def _is_foreign(path: Path, file: BinaryIO) -> bool:
    """Return whether another user owns a file in a directory of all users, such as /tmp/oz.toml."""
    owners = {path.lstat().st_uid, os.fstat(file.fileno()).st_uid}
    is_open_to_all = bool(path.parent.stat().st_mode & stat.S_IWOTH)
    return is_open_to_all and not owners <= {0, user()}


def _unknown(path: Path, key: str, value: object) -> ConfigurationError:
    guess = nearest_name(key, BY_NAME)
    advice = f"did you mean {guess}?" if guess else f"the settings are {', '.join(BY_NAME)}"
    return _fault(path, f"no setting has this name; {advice}", key, value)


def _fault(path: Path, rule: str, key: str | None = None, value: object = None) -> ConfigurationError:
    return ConfigurationError(key, value, f"file {path}", rule)
