"""`oz gateway`: multicast for local applications, in separate processes."""

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

Applications subscribe at --bind and publish at --bind-publishers, over ipc or tcp. They need no PGM. --receive
is the multicast that they get. --send multicasts their messages, through one publisher and one UDP port. A
multicast process that ends or does not answer is started again. Applications stay connected, and every lost
message is reported as a gap at both ends. The two directions need different ports.

It prints one line when it is ready, and one for each process that ends. Ctrl-C and SIGTERM end it: it prints
its counts and exits 0. It exits 1 if a multicast process cannot start.

\b
Examples:
  oz gateway --receive 'epgm://192.0.2.7;239.192.1.1:5555' --bind ipc:///run/oz/feed
  oz gateway --send 'epgm://192.0.2.7;239.192.1.1:5556' --bind-publishers ipc:///run/oz/out
  oz gateway --receive 'epgm://192.0.2.7;239.192.1.1:5555' --bind ipc:///run/oz/feed --bind
  tcp://192.0.2.7:5751
"""

_MULTICAST = (
    ("--rate-kbps", Whole(), "N", "Multicast rate at most, in kilobits a second; see `oz multicast plan`."),
    (
        "--recovery",
        Number(),
        "SECONDS",
        "Seconds for which sent messages are kept for receivers that ask again.",
    ),
    ("--hops", Whole(), "N", "Routers that the packets pass at most."),
    ("--mtu", Whole(), "BYTES", "The largest packet; equal for all members of a multicast group."),
    ("--stale-after", Number(), "SECONDS", "Seconds of silence after which it reconnects."),
)
"""Options that are fields of `oz.Multicast`, each with its name, type, metavar and help text."""

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
@click.option("--send", metavar="ENDPOINT", help="The endpoint to multicast messages of applications on.")
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
    # Only this command needs the module, its threads and its processes.
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
