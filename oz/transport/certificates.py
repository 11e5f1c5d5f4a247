"""CURVE keys and the certificates that hold them, in the files of pyzmq and czmq.

A name has two files: one that ends in `.key`, to give away, and one that ends in `.key_secret`, which only
its owner may read. pyzmq's own function lets everybody read both.
Source: ZeroMQ RFC 32 (Z85), czmq's zcert(3).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import zmq

from oz.configuration.directory import private_directory
from oz.errors import ConfigurationError, TransportUnavailable
from oz.security.identity import KEY_SIZE, is_key
from oz.system import user
from oz.transport.capabilities import has

PUBLIC, SECRET = ".key", ".key_secret"

_MOST_BYTES = 65_536
_FIELD = re.compile(r"""(public-key|secret-key)\s*=\s*["']?([^\s"']*)["']?\s*""")
_NAME = re.compile(r"[\w.@-]{1,100}")

_TEXT = """#   ZeroMQ CURVE {kind} certificate of {name}
#   {advice}

metadata
    name = "{name}"
curve
    public-key = "{public}"
"""


class KeyPair(NamedTuple):
    """A public key, and the secret one that belongs to it, in Z85."""

    public: str
    secret: str

    def __repr__(self) -> str:
        """Show no secret."""
        return f"KeyPair(public={self.public!r})"


def new_key_pair() -> KeyPair:
    """Make a key pair.

    Raises:
        TransportUnavailable: this libzmq has no CURVE.
    """
    if not has("curve"):
        raise TransportUnavailable(
            "this libzmq was built without CURVE, so it has no keys; the wheels of pyzmq have it: "
            "install pyzmq from one"
        )
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def write_certificates(directory: Path, name: str, pair: KeyPair) -> tuple[Path, Path]:
    """Write the two files of a key pair; no file that is there is touched.

    Args:
        directory: where; it is made if need be, and must belong to this user alone.
        name: of the files: letters, digits and `.-_@`.
        pair: the keys.

    Returns:
        The public file, and the secret one.

    Raises:
        ConfigurationError: the directory lets others in, the name will not do, or one of the files is there.
    """
    check_name(name)
    private_directory(directory.absolute(), source="argument")
    secret = directory / f"{name}{SECRET}"
    advice = "Give it to nobody, and leave its permissions as they are."
    text = _TEXT.format(kind="SECRET", name=name, advice=advice, public=pair.public)
    _write(secret, f'{text}    secret-key = "{pair.secret}"\n', 0o600)
    return write_public(directory, name, pair.public), secret


def write_public(directory: Path, name: str, public: str) -> Path:
    """Write a certificate that holds a public key only.

    Args:
        directory: where; it is there.
        name: of the file.
        public: the key.

    Raises:
        ConfigurationError: the name will not do, or the file is there.
    """
    check_name(name)
    path = directory / f"{name}{PUBLIC}"
    _write(path, public_text(name, public), 0o644)
    return path


def public_text(name: str, public: str) -> str:
    """Return the text of a certificate that holds a public key only."""
    return _TEXT.format(kind="public", name=name, advice="It may be given to anybody.", public=public)


def read_public(path: Path) -> str:
    """Read the public key of a certificate, which may be a secret one.

    Args:
        path: of the file.

    Raises:
        ConfigurationError: it cannot be read, or holds no public key.
    """
    return _read(path)[0]


def read_secret(path: Path) -> KeyPair:
    """Read a secret certificate.

    Args:
        path: of the file.

    Raises:
        ConfigurationError: it cannot be read, holds no secret key, belongs to somebody else, may be read by
            others, or is a symbolic link.
    """
    beside = path.with_suffix(SECRET)
    if path.suffix == PUBLIC and beside.exists():
        # Before its mode is looked at, which is right for what it is.
        raise _wrong(path, f"it is a public certificate; {beside.name} beside it has the secret key")
    public, secret = _read(path, is_secret=True)
    if secret is None:
        raise _wrong(path, f"it holds no secret key; {path.stem}{SECRET} beside it may")
    if has("curve") and zmq.curve_public(secret[0].encode()).decode() != public:
        rule = "its secret key is of another pair than its public key; make a new pair, or restore the file"
        raise _wrong(path, rule, secret[1])
    return KeyPair(public, secret[0])


def read_trusted(directory: Path) -> dict[str, str]:
    """Read all public certificates of a directory.

    Args:
        directory: where they are, in files that end in `.key`.

    Returns:
        The name of each file, without its ending, by the key it holds.

    Raises:
        ConfigurationError: the directory or a file cannot be read, anybody may write to one, or two files
            hold one key.
    """
    try:
        if os.stat(directory).st_mode & stat.S_IWOTH:
            raise _wrong(directory, f"anybody may put keys there: chmod o-w {directory}")
        paths = sorted(path for path in directory.iterdir() if path.suffix == PUBLIC)
    except OSError as error:
        raise _wrong(directory, f"{error.strerror or error}; give a directory of certificates") from None
    found: dict[str, str] = {}
    for path in paths:
        key = _read(path, is_trusted=True)[0]
        if key in found:
            raise _wrong(path, f"{found[key]}{PUBLIC} holds the same key; remove one of them")
        found[key] = path.stem
    return found


def still_trusted(directory: Path, before: Mapping[str, str]) -> dict[str, str]:
    """Return those of some keys whose certificates are still in a directory, whatever else is there.

    Args:
        directory: where they are; all are, while it is not there itself.
        before: what `read_trusted` has returned.
    """
    if not directory.is_dir():
        return dict(before)
    return {key: name for key, name in before.items() if _holds(directory / f"{name}{PUBLIC}", key)}


def _holds(path: Path, key: str) -> bool:
    try:
        return _read(path, is_trusted=True)[0] == key
    except ConfigurationError:
        return False


def check_name(name: str) -> None:
    """Refuse what is no name of a certificate.

    Raises:
        ConfigurationError: it has other characters than letters, digits and `.-_@`, or begins with a dot.
    """
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise ConfigurationError(
            "name", name, "argument", "use letters, digits and .-_@, 100 at most, and begin with no dot"
        )


def _write(path: Path, text: str, mode: int) -> None:
    try:
        # Nobody can read it for a moment, and no link leads elsewhere.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        advice = "it is there; choose another name, or remove it yourself" if path.exists() else str(error)
        raise _wrong(path, advice) from None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _why(path: Path, error: OSError) -> str:
    """Say why a file cannot be opened: what no link is followed for is no loop of links."""
    if path.is_symlink() and error.errno == errno.ELOOP:
        return f"it is a symbolic link, and a secret key is read from no link; name {path.resolve()}"
    return error.strerror or str(error)


def _read(
    path: Path, *, is_secret: bool = False, is_trusted: bool = False
) -> tuple[str, tuple[str, int] | None]:
    """Read the keys of a certificate.

    Args:
        path: of the file.
        is_secret: nobody but its owner may be able to read it.
        is_trusted: not everybody may be able to write it.

    Returns:
        The public key, and the secret one with the line that it is in.
    """
    no_links = getattr(os, "O_NOFOLLOW", 0) if is_secret else 0
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | no_links)
    except OSError as error:
        raise _wrong(path, f"{_why(path, error)}; give a certificate, as oz keys new makes it") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        # Nothing opens a directory as a file, not even to close it.
        os.close(descriptor)
        raise _wrong(path, "it is no regular file; give a certificate, as oz keys new makes it")
    with open(descriptor, encoding="utf-8", errors="replace") as file:
        if is_secret:
            _check_private(path, found)
        if is_trusted and found.st_mode & stat.S_IWOTH:
            raise _wrong(path, f"anybody may put another key there: chmod o-w {path}")
        text = file.read(_MOST_BYTES)
    keys: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if field := _FIELD.fullmatch(line.strip()):
            if not is_key(field[2]):
                raise _wrong(path, f"its {field[1]} is no key of {KEY_SIZE} characters in Z85", number)
            keys[field[1]] = field[2], number
    if "public-key" not in keys:
        raise _wrong(path, "it holds no public key; give a certificate, as oz keys new makes it")
    return keys["public-key"][0], keys.get("secret-key")


def _check_private(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (user(), 0):
        raise _wrong(path, f"it belongs to user {found.st_uid}, who may change it, and not to {user()}")
    if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise _wrong(path, f"its mode is {mode:04o}, and only its owner may read it: chmod 600 {path}")


def _wrong(path: Path, rule: str, line: int | None = None) -> ConfigurationError:
    where = f"file {path}" if line is None else f"file {path}, line {line}"
    return ConfigurationError(None, None, where, rule)
