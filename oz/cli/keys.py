"""`oz keys`: CURVE keys in the certificate files of ZeroMQ."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from oz.cli.options import PathName
from oz.cli.output import json_option, plain_table, write_json, write_line
from oz.escaping import printable
from oz.security.identity import is_key
from oz.transport.certificates import (
    PUBLIC,
    SECRET,
    new_key_pair,
    public_text,
    read_public,
    read_secret,
    read_trusted,
    write_certificates,
    write_public,
)

_HELP = """Create, show and trust CURVE keys, which ZeroMQ uses for encryption and authentication.

A key pair has two files. NAME.key is public. NAME.key_secret is secret, must stay on its host, and only its owner may
read it. pyzmq and czmq can read both files.

\b
  oz keys new desk
  oz keys export desk > desk.key         # copy this file to the other hosts
  oz keys trust desk.key --in trusted    # on the other hosts: trust the key
"""

_NEW_HELP = """Create a key pair, and write NAME.key and NAME.key_secret. Existing files are not replaced.

The directory is created if it does not exist. Other users must not have access to it.
"""

_SHOW_HELP = """Print the public keys of names or files, or of all names in the directory.

The table shows whether a name has a secret key. It does not show the secret key. It is an error if other users can read
a secret key.
"""

_TRUST_HELP = """Add a public key to a directory of trusted keys.

KEY is the file of a certificate, or the 40 characters of a public key. A public key needs --name. A key that is in the
directory already, under any name, is refused.
"""

_EXPORT_HELP = """Print the public certificate of NAME."""


def _default() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(home if os.path.isabs(home) else os.path.expanduser("~/.config"), "oz", "keys")


_DIRECTORY = click.option(
    "--key-directory",
    "directory",
    type=PathName(path_type=Path),
    metavar="DIR",
    help="The directory of your keys.  [default: oz/keys in $XDG_CONFIG_HOME or ~/.config]",
)


@click.group(help=_HELP, short_help="Create, show and trust keys.")
def keys() -> None:
    """Group the commands of `oz keys`; `_HELP` is the text of `--help`."""


@keys.command(help=_NEW_HELP, short_help="Create a key pair.")
@click.argument("name")
@_DIRECTORY
@json_option()
def new(name: str, directory: Path | None, as_json: bool) -> None:
    """Create a key pair; `_NEW_HELP` is the text of `--help`."""
    pair = new_key_pair()
    public, secret = write_certificates(directory or _default(), name, pair)
    data = {"public_key": pair.public, "public_file": str(public), "secret_file": str(secret)}
    if as_json:
        write_json(data)
    else:
        write_line(plain_table([(name.replace("_", " "), printable(value)) for name, value in data.items()]))


@keys.command(help=_SHOW_HELP, short_help="Print public keys.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_DIRECTORY
@json_option("Write a JSON list of objects.")
def show(names: tuple[str, ...], directory: Path | None, as_json: bool) -> None:
    """Print public keys; `_SHOW_HELP` is the text of `--help`."""
    there = directory or _default()
    found = names or tuple(sorted(read_trusted(there).values()))
    rows: list[dict[str, Any]] = []
    for name in found:
        path = _certificate(name, there)
        secret = path.with_suffix(SECRET)
        if secret.exists():
            read_secret(secret)
        rows.append(
            {"name": printable(path.stem), "public_key": read_public(path), "secret": secret.exists()}
        )
    if as_json:
        write_json(rows)
        return
    cells = [(row["public_key"], "yes" if row["secret"] else "no", row["name"]) for row in rows]
    write_line(plain_table([("public key", "secret", "name"), *cells]))


@keys.command(help=_TRUST_HELP, short_help="Add a public key to the trusted keys.")
@click.argument("key")
@click.option("--in", "directory", required=True, type=PathName(path_type=Path), metavar="DIR",
              help="The directory of trusted keys.")  # fmt: skip
@click.option("--name", help="Name of the owner.  [default: name of the file]")
def trust(key: str, directory: Path, name: str | None) -> None:
    """Add a key to the trusted keys; `_TRUST_HELP` is the text of `--help`."""
    if is_key(key):
        if name is None:
            raise click.UsageError("a key needs the name of its owner: --name NAME")
        public = key
    else:
        path = Path(key)
        if path.suffix == SECRET:
            raise click.UsageError(
                f"{printable(key)} has the secret key; give {path.stem}{PUBLIC}, the public one"
            )
        public, name = read_public(path), name or path.stem
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    known = read_trusted(directory).get(public)
    if known is not None:
        raise click.UsageError(f"this key is trusted already, as {printable(known)}")
    write_line(printable(str(write_public(directory, name, public))))


@keys.command(help=_EXPORT_HELP, short_help="Print a public certificate.")
@click.argument("name")
@_DIRECTORY
def export(name: str, directory: Path | None) -> None:
    """Print a public certificate; `_EXPORT_HELP` is the text of `--help`."""
    path = _certificate(name, directory or _default())
    write_line(public_text(path.stem, read_public(path)).rstrip("\n"))


def _certificate(name: str, directory: Path) -> Path:
    path = Path(name) if os.sep in name or name.endswith((PUBLIC, SECRET)) else directory / f"{name}{PUBLIC}"
    return path.with_suffix(PUBLIC) if path.suffix == SECRET else path
