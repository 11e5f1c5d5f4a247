"""Class `oz.Security`, with which programs pass keys and permissions to sockets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from oz.configuration import security_source
from oz.configuration.files import SECURITY_TABLE, WORLD_WRITABLE, is_world_writable, load_toml, open_file
from oz.configuration.settings import nearest_name
from oz.errors import ConfigurationError, MissingDependency
from oz.transport.connections import IS_KNOWN
from oz.transport.credentials import Credentials

_KEYS = ("key", "trusted", "permissions", "servers")


class Security:
    """Key of a program, trusted keys of other programs, and permissions.

    Any number of sockets may share one object. A socket that binds accepts only peers with a trusted key. A socket that
    connects proves that it has `key`, and accepts only listeners with a trusted key.
    """

    def __init__(
        self,
        key: str | os.PathLike[str],
        *,
        trusted: str | os.PathLike[str],
        permissions: str | os.PathLike[str] | None = None,
        servers: Mapping[str, str] | None = None,
    ) -> None:
        """Read the files.

        Args:
            key: path of a secret certificate, as `oz keys new` creates it. Only its owner may have access.
            trusted: directory of public certificates. Files may be added and removed later.
            permissions: path of a permission file, which is read again after a change. Without the file, a trusted
                key may do everything.
            servers: dict from an endpoint to the name of the listener's certificate in `trusted`. At any other
                endpoint, all trusted keys are tried.

        Raises:
            ConfigurationError: a file cannot be read or used, other users may read the key, or other users may write
                to one of the files.
            MissingDependency: this libzmq has no CURVE.
        """
        file = None if permissions is None else Path(permissions)
        self._credentials = Credentials(Path(key), Path(trusted), file, servers or {})

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Security:
        """Read the table `[security]` of a TOML file. Its settings are the arguments of this class.

        Args:
            path: path of the TOML file. A relative path in the file is relative to the directory of the file.

        Raises:
            ConfigurationError: the file cannot be read or used.
            MissingDependency: this libzmq has no CURVE.
        """
        source = Path(path)
        try:
            with open_file(source) as file:
                if is_world_writable(file):
                    raise OSError(f"{WORLD_WRITABLE}: chmod o-w {source}")
                whole = load_toml(BytesIO(file.read()))
        except (OSError, ValueError, RecursionError) as error:
            raise _wrong(source, f"it cannot be read: {error}") from None
        return _from_table(cls, whole.get(SECURITY_TABLE), source)

    def __repr__(self) -> str:
        """Show the public key only."""
        return f"Security({self.public_key!r}, trusted={str(self._credentials.directory)!r})"

    @property
    def public_key(self) -> str:
        """Public key of this program, 40 characters of Z85."""
        return self._credentials.public_key

    @property
    def trusted(self) -> Mapping[str, str]:
        """Dictionary from each public key that is trusted now to the name of its certificate."""
        return self._credentials.trusted

    @property
    def refused(self) -> int:
        """Number of connections that were refused because the peer proved no trusted key."""
        return self._credentials.refused


def resolve_security() -> Security | None:
    """Return the keys and permissions that `OZ_SECURITY` or the configuration file sets; None without a setting.

    Raises:
        ConfigurationError: the file with the security settings cannot be read or used.
        MissingDependency: this libzmq has no CURVE.
    """
    found = security_source()
    if found is None:
        return None
    path, table = found
    return Security.from_file(path) if table is None else _from_table(Security, table, path)


def credentials_of(security: object, group: object | None = None) -> Credentials | None:
    """Return the credentials of `security=`: an `oz.Security`, the path of a TOML file, or None.

    Args:
        security: argument `security=` of a publisher, subscriber or node.
        group: options of multicast; None without multicast.

    Raises:
        TypeError: the argument has another type.
        ConfigurationError: the file cannot be used, or `group` is given: multicast has no CURVE.
        MissingDependency: this system does not report the connection of a frame, or libzmq has no CURVE.
    """
    if isinstance(security, (str, os.PathLike)):
        security = Security.from_file(security)
    if security is None:
        return None
    if not isinstance(security, Security):
        raise TypeError(f"security is an oz.Security, not {security!r}")
    if group is not None:
        rule = "multicast has no CURVE, so that every host can read it: leave security= out, or use tcp"
        raise ConfigurationError("security", security, "argument", rule)
    if not IS_KNOWN:
        raise MissingDependency("keys need Linux or macOS, which identify the connection of a message")
    return security._credentials


def _from_table(kind: type[Security], table: object, source: Path) -> Security:
    if not isinstance(table, dict):
        raise _wrong(source, f"write key and trusted below a line [{SECURITY_TABLE}]")
    for name, value in table.items():
        if name not in _KEYS:
            near = nearest_name(name, _KEYS)
            advice = f"did you mean {near}?" if near else f"there are {', '.join(_KEYS)}"
            raise _wrong(source, f"security has no such setting; {advice}", name, value)
        if name != "servers" and not (isinstance(value, str) and value):
            raise _wrong(source, "give a path", name, value)
    for name in ("key", "trusted"):
        if name not in table:
            raise _wrong(source, f"it is missing below [{SECURITY_TABLE}]", name)
    servers = table.get("servers", {})
    if not isinstance(servers, dict) or not all(isinstance(server, str) for server in servers.values()):
        raise _wrong(source, 'write "tcp://hub:5556" = "NAME" for each endpoint', "servers", servers)
    paths = {
        name: source.parent / os.path.expanduser(value) for name, value in table.items() if name != "servers"
    }
    return kind(paths.pop("key"), **paths, servers=servers)


def _wrong(source: Path, rule: str, name: str | None = None, value: object = None) -> ConfigurationError:
    return ConfigurationError(name, value, f"file {source}", rule)
