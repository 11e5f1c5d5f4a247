"""`oz forwarder`: it passes messages between buses, or between publishers and subscribers."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import oz
from oz.cli.options import PathName, endpoints_option, security_option
from oz.cli.serving import open_and_serve, service_options
from oz.configuration import resolve_limits
from oz.configuration.files import open_file, read_text
from oz.configuration.limits import TABLE as LIMITS
from oz.configuration.limits import limits_of
from oz.options import Limits

if TYPE_CHECKING:
    from oz.services.bridge import Forwarder
    from oz.services.proxy import Proxy

_HELP = """Pass messages between buses, or between publishers and subscribers that cannot connect to each other.

With one --leg for each bus, the forwarder joins every bus as a node. It subscribes on each bus to the patterns of the
other buses, and passes on messages, requests and replies. The nodes need no setting. A leg is a list of KEY=VALUE,
separated by commas: bus, connect (a node or a name server), bind, advertise, directory, name, lost_after,
high_water_mark, security (a file as for --security), and allow (a pattern of messages that may enter the bus). Without
connect, a leg finds the nodes of this host. Two forwarders may join the same buses. Subscribers then get each message
once, and if one forwarder ends, the other forwarder continues.

With --frontend or --connect, and --backend, it is a plain ZeroMQ proxy, which filters by prefix. Publishers
connect to --frontend, and subscribers connect to --backend, over tcp or ipc. --connect is for publishers that bind,
and for the backends of other forwarders.

The command prints one line when it is ready. At Ctrl-C or SIGTERM it prints its counts and exits 0.

\b
Examples:
  oz forwarder --leg bus=lan,connect=tcp://ns:5756 --leg bus=wan,connect=tcp://192.0.2.7:5760
  oz forwarder --leg bus=feed --leg 'bus=desk,allow=md.>,allow=news.*'
  oz forwarder --config forwarder.toml
  oz forwarder --frontend 'tcp://*:5601' --backend 'tcp://*:5602'
  oz forwarder --connect tcp://feed:5550 --backend 'tcp://*:5602'
"""


_SEVERAL = ("connect", "bind", "allow")
_ONE: dict[str, Callable[[str], Any]] = {
    "bus": str,
    "name": str,
    "advertise": str,
    "directory": str,
    "lost_after": float,
    "high_water_mark": int,
    "security": str,
}
"""Keys of a leg, which is one side of the forwarder. The keys in `_SEVERAL` may be repeated."""

_TABLE = "forwarder"


def parse_leg(text: str) -> dict[str, Any]:
    """Parse the text of an option `--leg`.

    Raises:
        click.BadParameter: a key or a value is wrong.
    """
    leg: dict[str, Any] = {}
    for part in text.split(","):
        key, sign, value = part.partition("=")
        if key not in _ONE and key not in _SEVERAL:
            known = ", ".join([*_ONE, *_SEVERAL])
            raise click.BadParameter(f"{key!r} is no key of a leg; write KEY=VALUE with one of {known}")
        if not sign or not value:
            raise click.BadParameter(f"{part!r} in {text!r}: write {key}=VALUE")
        if key in _SEVERAL:
            leg.setdefault(key, []).append(value)
        elif key in leg:
            raise click.BadParameter(f"{key!r} is given twice in {text!r}")
        else:
            try:
                leg[key] = _ONE[key](value)
            except ValueError:
                raise click.BadParameter(f"{key!r} is a number, not {value!r}, in {text!r}") from None
    return leg


def read_legs(path: Path) -> list[dict[str, Any]]:
    """Read the legs from a file. Each table `[[forwarder.leg]]` is a leg. The table `[limits]` applies to all legs.

    Raises:
        click.BadParameter: the file cannot be read, or a key or a value is wrong.
    """
    try:
        with open_file(path) as file:
            text = read_text(file)
        whole = tomllib.loads(text)
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{path} is no TOML: {error}") from None
    table = whole.get(_TABLE)
    legs = table.get("leg") if isinstance(table, dict) else None
    if not isinstance(legs, list) or not all(isinstance(leg, dict) for leg in legs):
        raise click.BadParameter(f"{path} has no legs: write a table [[{_TABLE}.leg]] for each bus")
    limits, faults = limits_of(whole.get(LIMITS, {}), path, text)
    if faults:
        raise click.BadParameter(str(faults[0]))
    for leg in legs:
        if isinstance(leg.get("security"), str):
            leg["security"] = str(path.parent / Path(leg["security"]).expanduser())
    return [{**leg, "limits": Limits(**limits)} for leg in legs] if limits else legs


def _parsed(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> list[dict[str, Any]]:
    return [parse_leg(text) for text in given]


def _read(_ctx: click.Context, _option: click.Parameter, path: Path | None) -> list[dict[str, Any]]:
    return [] if path is None else read_legs(path)


@click.command(help=_HELP, short_help="Join buses, or publishers and subscribers.")
@click.option(
    "--leg",
    "legs",
    multiple=True,
    metavar="KEY=VALUE,…",
    callback=_parsed,
    help="A bus to join; to be given at least twice.",
)
@click.option(
    "--config",
    "read",
    type=PathName(path_type=Path),
    callback=_read,
    help="A TOML file with a table [[forwarder.leg]] for each bus, and optionally [limits] for all legs.",
)
@click.option("--name", help="The name of the forwarder's nodes.  [default: forwarder and its process id]")
@security_option
@endpoints_option("--frontend", "The endpoint for publishers; may be repeated.")
@endpoints_option("--backend", "The endpoint for subscribers; may be repeated.")
@endpoints_option("--connect", "A publisher that binds; may be repeated.")
@service_options
@click.pass_context
def forwarder(
    ctx: click.Context,
    /,
    legs: list[dict[str, Any]],
    read: list[dict[str, Any]],
    name: str | None,
    security: oz.Security | None,
    frontend: list[str],
    backend: list[str],
    connect: list[str],
) -> None:
    """Run a forwarder; `_HELP` is the text of `--help`."""
    is_plain = bool(frontend or backend or connect)
    if is_plain and (legs or read or name):
        raise click.UsageError("--leg and --config join buses; --frontend, --backend and --connect sockets")
    if is_plain and security is not None:
        raise click.UsageError(
            "--security, OZ_SECURITY and [security] are for --leg: plain sockets have no keys"
        )
    if not is_plain and len(legs) + len(read) < 2:
        raise click.UsageError("give --leg twice or more; or --frontend or --connect, and --backend")
    if is_plain:
        # Only a proxy needs this module and its threads.
        from oz.services.proxy import Proxy

        open_and_serve(
            ctx,
            lambda: Proxy(frontend=frontend, backend=backend, connect=connect, limits=resolve_limits()),
            lambda proxy: ", ".join(
                [f"publishers at {endpoint}" for endpoint in proxy.frontends]
                + [f"connected to {endpoint}" for endpoint in connect]
                + [f"subscribers at {endpoint}" for endpoint in proxy.backends]
            ),
            _summary_of_proxy,
        )
        return
    from oz.services.bridge import Forwarder

    open_and_serve(
        ctx,
        lambda: Forwarder(map(_with_keys, (*read, *legs)), name=name, security=security),
        lambda forwarder: ", ".join(
            f"{state} on bus {leg.bus}" for leg, state in zip(forwarder.legs, forwarder._states, strict=True)
        ),
        _summary,
    )


def _with_keys(leg: dict[str, Any]) -> dict[str, Any]:
    """Return the leg with an `oz.Security` in place of the file that its setting `security` names."""
    file = leg.get("security")
    return leg if file is None else {**leg, "security": oz.Security.from_file(file)}


def _summary_of_proxy(proxy: Proxy) -> str:
    stats = proxy.stats
    return (
        f"{stats.messages} messages and batches of {stats.message_bytes} bytes arrived, {stats.sent} were sent; "
        f"{stats.subscriptions} subscriptions and ends of subscriptions went to publishers"
    )


def _summary(forwarder: Forwarder) -> str:
    done = forwarder.stats
    return (
        f"{done.received} messages of {done.payload_bytes} bytes came and {done.passed} were passed on for "
        f"{done.interests} patterns; {done.requests} requests were passed on and {done.replies} replies came "
        f"back; {done.lost} messages were lost, {done.unwanted} unwanted and {done.looped} in a loop"
    )
