"""`oz gateway`: it passes messages between multicast and local applications."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

import oz
from oz.cli.options import Number, Whole, endpoints_option, security_option
from oz.cli.serving import open_and_serve, service_options
from oz.configuration import resolve_limits

if TYPE_CHECKING:
    from oz.services.gateway import Gateway

_HELP = """Pass messages between multicast and local applications, with the multicast sockets in separate processes.

Applications subscribe at --bind and publish at --bind-publishers, over ipc or tcp. They need no PGM. They receive the
messages of the multicast endpoints --receive. Their own messages are sent to the multicast endpoint --send, through one
publisher. --receive and --send need different ports. A multicast process that ends or does not answer is started again.
Applications stay connected meanwhile, and subscribers on both sides get a gap for lost messages.

The command prints one line when it is ready, and one line for each process that ends. At Ctrl-C or SIGTERM it prints
its counts and exits 0. It exits 1 if a multicast process cannot start.

\b
Examples:
  oz gateway --receive 'epgm://192.0.2.7;239.192.1.1:5555' --bind ipc:///run/oz/feed
  oz gateway --send 'epgm://192.0.2.7;239.192.1.1:5556' --bind-publishers ipc:///run/oz/out
  oz gateway --receive 'epgm://192.0.2.7;239.192.1.1:5555' -b ipc:///run/oz/feed -b tcp://192.0.2.7:5751
"""

_MULTICAST = (
    ("--rate-kbps", Whole(), "N", "Maximum multicast rate, in kilobits a second; see `oz multicast plan`."),
    (
        "--recovery",
        Number(),
        "SECONDS",
        "Seconds for which sent messages are kept, so that receivers can request them again.",
    ),
    ("--hops", Whole(), "N", "Maximum number of routers that a packet may pass, plus one."),
    ("--mtu", Whole(), "BYTES", "The largest packet; the same for all members of a multicast group."),
    (
        "--stale-after",
        Number(),
        "SECONDS",
        "Connect again after this time, if packets arrive but no message.",
    ),
)
"""Options for the fields of `oz.Multicast`: name, type, metavar and help text of each option."""

_F = TypeVar("_F", bound=Callable[..., Any])


def _multicast_options(command: _F) -> _F:
    for name, kind, metavar, text in reversed(_MULTICAST):
        default = getattr(oz.Multicast(), name[2:].replace("-", "_"))
        command = click.option(
            name, type=kind, default=default, show_default=True, metavar=metavar, help=text
        )(command)
    return command


@click.command(help=_HELP, short_help="Pass multicast to local applications and back.")
@click.option("--receive", multiple=True, metavar="ENDPOINT", help="Multicast to receive; may be repeated.")
@click.option("--send", metavar="ENDPOINT", help="The multicast endpoint for messages of applications.")
@endpoints_option("--bind", "The endpoint where applications subscribe; may be repeated.")
@endpoints_option("--bind-publishers", "The endpoint where applications publish; may be repeated.")
@endpoints_option("--connect", "A publisher that binds; may be repeated.")
@_multicast_options
@click.option(
    "--no-echo", is_flag=True, help="Do not pass messages of local applications to local subscribers."
)
@click.option("--no-origins", is_flag=True, help="Do not add headers with the origin of a message.")
@security_option
@service_options
@click.pass_context
def gateway(
    ctx: click.Context,
    /,
    receive: tuple[str, ...],
    send: str | None,
    bind: list[str],
    bind_publishers: list[str],
    connect: list[str],
    no_echo: bool,
    no_origins: bool,
    security: oz.Security | None,
    **multicast: Any,
) -> None:
    """Run a gateway; `_HELP` is the text of `--help`."""
    # Imported here, because only this command needs the module.
    from oz.services.gateway import Gateway

    def state(running: Gateway) -> str | None:
        ways = [f"receiving {endpoint}" for endpoint in receive] + ([f"sending to {send}"] if send else [])
        ways += [f"subscribers at {endpoint}" for endpoint in running.subscribers_at]
        ways += [f"publishers at {endpoint}" for endpoint in running.publishers_at]
        return ", ".join(ways) if running.is_ready else None

    open_and_serve(
        ctx,
        lambda: Gateway(
            receive=receive,
            send=send,
            subscribers=bind,
            publishers=bind_publishers,
            connect=connect,
            multicast=oz.Multicast(**multicast),
            echo=not no_echo,
            keep_origins=not no_origins,
            options=oz.Options(limits=resolve_limits()),
            security=security,
        ),
        state,
        _summary,
    )


def _summary(running: Gateway) -> str:
    stats = running.stats
    return (
        f"received {stats.received} and lost {stats.lost}; sent {stats.sent} and lost {stats.unsent}; "
        f"{stats.restarts} restarts"
    )
