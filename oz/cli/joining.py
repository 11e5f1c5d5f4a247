"""The way a command joins a bus: the options that say where, the ready line, and the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from click.core import ParameterSource

import oz
from oz.cli.options import security_option
from oz.cli.output import log_in_lines, say_status
from oz.configuration import Configuration, resolve
from oz.escaping import printable

READY_SECONDS = 5.0
"""How long peers may take to answer before a command says that it is ready nevertheless."""

SETTINGS = ("bus", "nameserver", "bind", "peers", "directory", "name")

_F = TypeVar("_F", bound=Callable[..., Any])


def joining_options(command: _F) -> _F:
    """Offer the options of a command that joins a bus whatever it is told; `join` reads them."""
    bus = click.option("--bus", metavar="NAME", help="The bus.  [default: as configured, or default]")
    bind = click.option(
        "-b", "--bind", multiple=True, metavar="ENDPOINT", help="The endpoint for nodes of other hosts."
    )
    return _offer(security_option(command), bus, bind, *_shared(""))


def bus_options(command: _F) -> _F:
    """Offer the options of a command that may join a bus, and has a `--bind` already; see `is_on_bus`."""
    bus = click.option(
        "--bus",
        metavar="NAME",
        help="Join this bus in place of --bind and --connect. The bus of an unconfigured node is `default`. "
        "--bind is then the endpoint for nodes of other hosts.",
    )
    return _offer(command, bus, *_shared(" Joins a bus: that of --bus, or else the configured one."))


def _shared(note: str) -> list[Callable[[Any], Any]]:
    return [
        click.option(
            "--nameserver", multiple=True, metavar="ENDPOINT", help=f"A name server; may be repeated.{note}"
        ),
        click.option(
            "--peers",
            multiple=True,
            metavar="ENDPOINT",
            help=f"A node to connect to, without a name server; may be repeated.{note}",
        ),
        click.option(
            "--directory", metavar="DIR", help=f"The directory in which nodes of this host meet.{note}"
        ),
        click.option("--name", metavar="NAME", help=f"The name of this node.{note}"),
    ]


def _offer(command: _F, *options: Callable[[Any], Any]) -> _F:
    for option in reversed(options):
        command = option(command)
    return command


def is_on_bus(given: Mapping[str, Any]) -> bool:
    """Tell whether `bus_options` ask for a bus."""
    return any(given[name] not in (None, ()) for name in ("bus", "nameserver", "peers", "directory", "name"))


def configured(given: Mapping[str, Any]) -> Configuration:
    """Return what a node would go by that is told no more than these options.

    Raises:
        click.UsageError: an option makes no sense.
        ConfigurationError: something else does not.
    """
    try:
        return resolve(**_settings(given))
    except oz.ConfigurationError as error:
        raise _explained(error) from None


def dialect_on_bus(ctx: click.Context, given: str) -> str:
    """Return the dialect that was asked for, or else the configured one."""
    if ctx.get_parameter_source("dialect") is ParameterSource.DEFAULT:
        return configured({}).dialect
    return given


@contextmanager
def joined(ctx: click.Context, given: Mapping[str, Any], **options: Any) -> Iterator[oz.Node]:
    """Join a bus for a `with` block, and leave it at the end, also on Ctrl-C and SIGTERM.

    Args:
        ctx: of the command; the log of the node becomes its warnings.
        given: the options by name.
        options: more of `oz.Node`.

    Raises:
        click.UsageError: an option makes no sense.
        OzError: as `oz.Node`.
    """
    settings = _settings(given)
    settings["name"] = configured(given).name or f"oz-{ctx.info_name}-{os.getpid()}"
    with log_in_lines(ctx, "warning: "):
        try:
            node = oz.Node(**settings, **options, security=given.get("security"))
        except oz.ConfigurationError as error:
            raise _explained(error) from None
        with node:
            yield node


def say_ready(ctx: click.Context, node: oz.Node, seconds: float = READY_SECONDS) -> None:
    """Wait for answers of peers, `seconds` at most, and report that the node is ready."""
    say_status(ctx, ready_line(node, is_whole=is_ready(node, seconds)))


def is_ready(node: oz.Node, seconds: float = READY_SECONDS) -> bool:
    """Wait for answers of peers, `seconds` at most; return whether all have answered."""
    try:
        node.wait_ready(seconds)
    except oz.Timeout:
        return False
    return True


def ready_line(node: oz.Node, *, is_whole: bool) -> str:
    """Return the line that reports name, bus, endpoints and peers of a node."""
    count = len(node.peers)
    bound = "".join(f", bound to {one}" for one in node.announcement.endpoints)
    peers = "1 peer" if count == 1 else f"{count} peers"
    rest = "" if is_whole else ", and others that have not answered yet"
    return f"ready, {printable(node.name)} on bus {printable(node.bus)}{bound}, {peers}{rest}"


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: given.get(name) for name in SETTINGS}
    return {name: None if value in ((), []) else value for name, value in values.items()}


def _explained(error: oz.ConfigurationError) -> Exception:
    """Return a usage error for a wrong option."""
    if error.source != "argument":
        return error
    return click.UsageError(f"--{error.setting}: {error.value!r}: {error.rule}")
