"""Functions for commands that join a bus: options, the node, and the ready line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import click

import oz
from oz.cli.options import security_option
from oz.cli.output import log_in_lines, print_status, print_stderr
from oz.configuration import resolve
from oz.escaping import printable

READY_SECONDS = 5.0
"""Maximum seconds for which a command waits for answers of peers before it prints the ready line."""

SETTINGS = ("bus", "connect", "bind", "directory", "name")

_HINTS = "oz.key_hints"

_F = TypeVar("_F", bound=Callable[..., Any])


def joining_options(command: _F) -> _F:
    """Add the options of a command that always joins a bus. `joined` reads the options."""
    bus = click.option("--bus", metavar="NAME", help="The bus.  [default: the configured bus, or `default`]")
    bind = click.option(
        "-b", "--bind", multiple=True, metavar="ENDPOINT", help="The endpoint for nodes of other hosts."
    )
    connect = click.option(
        "-c", "--connect", multiple=True, metavar="ENDPOINT",
        help="A node or a name server to connect to; may be repeated.",
    )  # fmt: skip
    return _offer(security_option(command), bus, bind, connect, *_shared(""))


def bus_options(command: _F) -> _F:
    """Add the options of a command that has `--bind` and `--connect`, and may join a bus; see `is_on_bus`."""
    bus = click.option(
        "--bus",
        metavar="NAME",
        help="Join this bus as a node. Without a configuration, nodes have the bus `default`. With --bus, --connect "
        "names a node or a name server, and --bind is the endpoint for nodes of other hosts.",
    )
    return _offer(command, bus, *_shared(" Joins the bus of --bus, or otherwise the configured bus."))


def _shared(note: str) -> list[Callable[[Any], Any]]:
    return [
        click.option(
            "--directory", metavar="DIR", help=f"Directory in which nodes of this host find each other.{note}"
        ),
        click.option("--name", metavar="NAME", help=f"The name of this node.{note}"),
    ]


def _offer(command: _F, *options: Callable[[Any], Any]) -> _F:
    for option in reversed(options):
        command = option(command)
    return command


def is_on_bus(given: Mapping[str, Any]) -> bool:
    """Return whether the given options select a bus."""
    return any(given[name] is not None for name in ("bus", "directory", "name"))


@contextmanager
def joined(
    ctx: click.Context,
    given: Mapping[str, Any],
    *,
    node_options: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Iterator[oz.Node]:
    """Join a bus for a `with` block. Leave the bus at the end of the block, and at Ctrl-C and SIGTERM.

    Args:
        ctx: context of the command. Log records of the node are printed as warnings of the command.
        given: dict from names of the command's options to their values.
        node_options: dict from names of fields of `oz.NodeOptions` to their values.
        arguments: further arguments of `oz.Node`.

    Raises:
        OzError: the node cannot be created; see `oz.Node`.
    """
    settings = _settings(given)
    settings["name"] = resolve(**settings).name or f"oz-{ctx.info_name}-{os.getpid()}"
    options = oz.NodeOptions(directory=settings.pop("directory"), **(node_options or {}))
    if settings["connect"] is None:
        del settings["connect"]
    with (
        log_in_lines(ctx, "warning: "),
        oz.Node(**settings, **arguments, security=given.get("security"), options=options) as node,
    ):
        try:
            yield node
        except click.exceptions.Exit as ended:
            if ended.exit_code and not node.peers:
                print_key_hints(ctx, node)
            raise


def print_ready(ctx: click.Context, node: oz.Node, seconds: float = READY_SECONDS) -> None:
    """Wait at most `seconds` for answers of peers, and print that the node is ready."""
    print_status(ctx, node_ready_line(node, is_whole=is_ready(node, seconds)))
    if not node.peers:
        print_key_hints(ctx, node)


def print_key_hints(ctx: click.Context, node: oz.Node) -> None:
    """Print hints about peers that may be missing because of wrong keys. Each hint is printed only once."""
    printed = ctx.meta.setdefault(_HINTS, set())
    for hint in node._node.readiness.key_hints():
        if hint not in printed:
            printed.add(hint)
            print_stderr(ctx, hint)


def without_printed_hints(ctx: click.Context, text: str) -> str:
    """Return a text without the hints that `print_key_hints` has printed."""
    for hint in ctx.meta.get(_HINTS, ()):
        text = text.replace(f"; {hint}", "")
    return text


def is_ready(node: oz.Node, seconds: float = READY_SECONDS) -> bool:
    """Wait at most `seconds` for answers of peers; return whether all peers have answered."""
    try:
        node.wait_ready(timeout=seconds)
    except oz.Timeout:
        return False
    return True


def node_ready_line(node: oz.Node, *, is_whole: bool) -> str:
    """Return the line that reports a ready node with its name, bus, endpoints and number of peers."""
    count = len(node.peers)
    bound = "".join(
        f", bound to {endpoint}" for endpoint in node.endpoints if not endpoint.startswith("ipc://")
    )
    peers = "1 peer" if count == 1 else f"{count} peers"
    rest = "" if is_whole else ", and others that have not answered yet"
    return f"ready, {printable(node.name)} on bus {printable(node.bus)}{bound}, {peers}{rest}"


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: given.get(name) for name in SETTINGS}
    return {name: None if value in ((), []) else value for name, value in values.items()}
