"""CURVE keys and their certificates, in the file format of pyzmq and czmq.

A key pair has two files: the public certificate `NAME.key`, and the secret certificate `NAME.key_secret`. Only the
owner may read the secret certificate. oz does not use `zmq.auth.create_certificates`, because its secret certificates
can be read by all users.
Sources: ZeroMQ RFC 32 (Z85), czmq's zcert(3).
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
from oz.errors import ConfigurationError
from oz.security.identity import KEY_SIZE, is_key
from oz.system import user
from oz.transport.capabilities import has, require_curve

PUBLIC, SECRET = ".key", ".key_secret"

_MAX_BYTES = 65_536
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
    """Public key and secret key, each as 40 characters of Z85."""

    public: str
    secret: str

    def __repr__(self) -> str:
        """Show the public key only."""
        return f"KeyPair(public={self.public!r})"


def new_key_pair() -> KeyPair:
    """Create a key pair.

    Raises:
        MissingDependency: this libzmq has no CURVE.
    """
    require_curve()
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def write_certificates(directory: Path, name: str, pair: KeyPair) -> tuple[Path, Path]:
    """Write the two files of a key pair. Existing files are not changed.

    Args:
        directory: directory of the files, to which only this user may have access. A missing directory is created.
        name: file name without its ending: letters, digits and `.-_@`.
        pair: public key and secret key.

    Returns:
        The paths of the public file and the secret file.

    Raises:
        ConfigurationError: other users have access to the directory, the name cannot be used, or a file exists.
    """
    check_name(name)
    private_directory(directory.absolute(), source="argument")
    secret = directory / f"{name}{SECRET}"
    advice = "Keep it secret, and do not change its mode."
    text = _TEXT.format(kind="SECRET", name=name, advice=advice, public=pair.public)
    _write(secret, f'{text}    secret-key = "{pair.secret}"\n', 0o600)
    return write_public(directory, name, pair.public), secret


def write_public(directory: Path, name: str, public: str) -> Path:
    """Write a public certificate.

    Args:
        directory: existing directory of the file.
        name: file name without its ending.
        public: public key in Z85.

    Raises:
        ConfigurationError: the name cannot be used, or the file exists.
    """
    check_name(name)
    path = directory / f"{name}{PUBLIC}"
    _write(path, public_text(name, public), 0o644)
    return path


def public_text(name: str, public: str) -> str:
    """Return the text of a public certificate."""
    return _TEXT.format(kind="public", name=name, advice="It may be published.", public=public)


def read_public(path: Path) -> str:
    """Read the public key of a public or secret certificate.

    Raises:
        ConfigurationError: the file cannot be read, or has no public key.
    """
    return _read(path)[0]


def read_secret(path: Path) -> KeyPair:
    """Read a secret certificate.

    Raises:
        ConfigurationError: the file cannot be read, has no secret key, belongs to another user, may be read by
            other users, or is a symbolic link.
    """
    beside = path.with_suffix(SECRET)
    if path.suffix == PUBLIC and beside.exists():
        # Check this first: `_read` would report the mode of the file, although the mode is right for a public
        # certificate.
        raise _wrong(path, f"it is a public certificate; {beside.name} beside it has the secret key")
    public, secret = _read(path, is_secret=True)
    if secret is None:
        raise _wrong(path, f"it has no secret key; {path.stem}{SECRET} beside it may have one")
    if has("curve") and zmq.curve_public(secret[0].encode()).decode() != public:
        rule = "its secret key does not belong to its public key; create a new pair, or restore the file"
        raise _wrong(path, rule, secret[1])
    return KeyPair(public, secret[0])


def read_trusted(directory: Path) -> dict[str, str]:
    """Read all public certificates of a directory.

    Args:
        directory: directory of certificates. Files that do not end in `.key` are ignored.

    Returns:
        Dictionary from each public key to the name of its file without the ending.

    Raises:
        ConfigurationError: the directory or a file cannot be read, all users may write to the directory or a file,
            or two files have the same key.
    """
    try:
        if os.stat(directory).st_mode & stat.S_IWOTH:
            raise _wrong(directory, f"all users may add keys: chmod o-w {directory}")
        paths = sorted(path for path in directory.iterdir() if path.suffix == PUBLIC)
    except OSError as error:
        raise _wrong(directory, f"{error.strerror or error}; give a directory of certificates") from None
    found: dict[str, str] = {}
    for path in paths:
        key = _read(path, is_trusted=True)[0]
        if key in found:
            raise _wrong(path, f"{found[key]}{PUBLIC} has the same key; remove one of the files")
        found[key] = path.stem
    return found


def still_trusted(directory: Path, before: Mapping[str, str]) -> dict[str, str]:
    """Return the keys whose certificates are still in a directory. Other files are not read.

    Args:
        directory: directory of the certificates. While the directory is missing, all keys are returned.
        before: earlier result of `read_trusted`.
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
    """Raise ConfigurationError if a text cannot be the name of a certificate."""
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise ConfigurationError(
            "name", name, "argument", "use letters, digits and .-_@, 100 at most, and begin with no dot"
        )


def _write(path: Path, text: str, mode: int) -> None:
    try:
        # The file has its mode from the start, so that no other user can read it before a chmod. O_EXCL follows no
        # symbolic link.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        advice = "it exists; choose another name, or remove it" if path.exists() else str(error)
        raise _wrong(path, advice) from None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _why(path: Path, error: OSError) -> str:
    # O_NOFOLLOW reports a symbolic link as ELOOP.
    if path.is_symlink() and error.errno == errno.ELOOP:
        return f"it is a symbolic link, and oz reads no secret key through a link; name {path.resolve()}"
    return error.strerror or str(error)


def _read(
    path: Path, *, is_secret: bool = False, is_trusted: bool = False
) -> tuple[str, tuple[str, int] | None]:
    """Read the keys of a certificate.

    Args:
        path: path of the certificate.
        is_secret: whether to refuse a symbolic link, and a file to which other users than its owner have access.
        is_trusted: whether to refuse a file to which all users may write.

    Returns:
        The public key; and a pair of the secret key and its line number, or None if the file has no secret key.
    """
    no_links = getattr(os, "O_NOFOLLOW", 0) if is_secret else 0
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | no_links)
    except OSError as error:
        raise _wrong(path, f"{_why(path, error)}; give a certificate, as oz keys new creates it") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        # `open` refuses the descriptor of a directory, and would not close it.
        os.close(descriptor)
        raise _wrong(path, "it is no regular file; give a certificate, as oz keys new creates it")
    with open(descriptor, encoding="utf-8", errors="replace") as file:
        if is_secret:
            _check_private(path, found)
        if is_trusted and found.st_mode & stat.S_IWOTH:
            raise _wrong(path, f"all users may change the key: chmod o-w {path}")
        text = file.read(_MAX_BYTES)
    keys: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if field := _FIELD.fullmatch(line.strip()):
            if not is_key(field[2]):
                raise _wrong(path, f"its {field[1]} is no key of {KEY_SIZE} characters in Z85", number)
            keys[field[1]] = field[2], number
    if "public-key" not in keys:
        raise _wrong(path, "it has no public key; give a certificate, as oz keys new creates it")
    return keys["public-key"][0], keys.get("secret-key")


def _check_private(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (user(), 0):
        raise _wrong(path, f"it belongs to user {found.st_uid}, not to {user()}: change its owner")
    if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise _wrong(path, f"its mode is {mode:04o}, and only its owner may read it: chmod 600 {path}")


def _wrong(path: Path, rule: str, line: int | None = None) -> ConfigurationError:
    where = f"file {path}" if line is None else f"file {path}, line {line}"
    return ConfigurationError(None, None, where, rule)
