"""`oz multicast plan`: values of `oz.Multicast` for a load, and requirements for the network."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from oz.cli.options import Number, Whole
from oz.cli.output import json_option, write_json, write_line
from oz.multicast.plan import BEATS, REPAIRED_AT_ONCE, Load, MulticastPlan
from oz.multicast.plan import plan as plan_for
from oz.options import REPAIR_SECONDS

_HELP = """Plan multicast over PGM.

\b
Examples:
  oz multicast plan --rate 500 --size 200 --outage 2
  oz multicast plan --help
"""

_PLAN_HELP = """Compute rate_kbps and recovery for a load, and their cost.

The command prints the oz.Multicast(...) for publishers and subscribers, with its memory and bandwidth. It also prints
how long an outage may be so that PGM repairs it, the effect of longer outages, and a limit for the storm control of
switches. PGM keeps a window of packets, and not of seconds. rate_kbps includes the headers, and must be the same on
both sides. Above one packet in a millisecond, libpgm on a busy machine sends less than rate_kbps.

\b
Examples:
  oz multicast plan --rate 500 --size 200 --outage 2
  oz multicast plan --rate 20000 --size 100 --outage 0.2 --publishers 3
  oz multicast plan --rate 50 --size 60000 --outage 1 --json
"""


@click.group(help=_HELP, short_help="Plan multicast over PGM.")
def multicast() -> None:
    """Group the commands of `oz multicast`; `_HELP` is the text of `--help`."""


@multicast.command(help=_PLAN_HELP, short_help="Choose rate and recovery for a load.")
@click.option(
    "--rate", type=Number(), required=True, metavar="N", help="Messages a second of each publisher."
)
@click.option("--size", type=Whole(), required=True, metavar="BYTES", help="Size of a payload.")
@click.option("--outage", type=Number(), required=True, metavar="SECONDS", help="Longest outage to repair.")
@click.option(
    "--publishers", type=Whole(), default=1, show_default=True, metavar="N", help="The number of publishers."
)
@click.option(
    "--subject-size",
    "subject",
    type=Whole(),
    default=32,
    show_default=True,
    metavar="BYTES",
    help="Size of a subject.",
)
@click.option(
    "--mtu", type=Whole(), default=1_500, show_default=True, metavar="BYTES", help="Largest IP packet."
)
@json_option()
def plan(as_json: bool, **load: Any) -> None:
    """Print the plan for a load; `_PLAN_HELP` is the text of `--help`."""
    try:
        found = plan_for(Load(**load))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        write_json(_as_data(found))
    else:
        _show(found)


def _as_data(found: MulticastPlan) -> dict[str, Any]:
    return {
        "load": asdict(found.load),
        "packets_per_second": round(found.packets, 3),
        "wire_kbps": round(found.wire_kbps, 3),
        "total_kbps": round(found.wire_kbps * found.load.publishers, 3),
        "multicast": asdict(found.options),
        "line": found.line,
        "usable_kbps": round(found.usable_kbps, 3),
        "window_packets": found.window,
        "window_seconds": round(found.held, 3),
        "memory_bytes": found.memory,
        "lost_packets": found.lost,
        "is_repaired": found.is_repaired,
        "repaired_outage_seconds": round(found.repaired_outage, 3),
        "beyond": _beyond(found),
    }


def _show(found: MulticastPlan) -> None:
    write_line(f"{found.line}\n")
    for name, text in _rows(found):
        write_line(f"{name:<12}{text}")


def _rows(found: MulticastPlan) -> list[tuple[str, str]]:
    load, options = found.load, found.options
    total = found.wire_kbps * load.publishers
    of_all = f"; {_rate(total)} of all {load.publishers} publishers" if load.publishers > 1 else ""
    usable = f"; on a busy machine count on {_rate(found.usable_kbps)} of it"
    memory = _bytes(found.memory)
    return [
        ("packets", f"{found.packets:,.0f} a second at most, and {BEATS} heartbeats"),
        ("on the wire", f"{_rate(found.wire_kbps)} at most, with all headers{of_all}"),
        ("rate_kbps", f"{options.rate_kbps:,}{usable if found.usable_kbps < options.rate_kbps else ''}"),
        ("recovery", f"{options.recovery:g} s at that rate: a window of {found.window:,} packets"),
        ("window", f"holds {found.held:,.1f} s of this load: the outage, and the time to repair it"),
        (
            "stale_after",
            f"{options.stale_after:g} s in which packets arrive and no message: a subscriber that is stuck "
            "connects again",
        ),
        (
            "memory",
            f"{memory} in each publisher, and the same in a subscriber for each publisher that it repairs",
        ),
        (
            "outage",
            f"{load.outage:g} s lose {found.lost:,} packets at most, with heartbeats; {_repair(found)}",
        ),
        ("longer", f"lose {_beyond(found)}"),
        (
            "switches",
            f"storm control for multicast above {2 * load.publishers * found.packets:,.0f} packets/s and "
            f"{_rate(total * 2)}: repairs come on top of the rate",
        ),
    ]


def _repair(found: MulticastPlan) -> str:
    if found.is_repaired:
        return f"up to {REPAIRED_AT_ONCE:,} in a row were repaired in every run that was measured"
    return (
        f"more than the {REPAIRED_AT_ONCE:,} in a row that were repaired in every run that was measured, "
        f"which is {found.repaired_outage:.2g} s of this load: a gap is likely; send fewer packets"
    )


def _beyond(found: MulticastPlan) -> str:
    return (
        f"the messages that left the window, {found.load.rate:,.6g} a second, and perhaps all messages of the "
        f"outage; libpgm may try for {REPAIR_SECONDS:g} s. The subscriber reports the exact number"
    )


def _rate(kbps: float) -> str:
    return f"{kbps / 1000:,.3g} Mbit/s" if kbps >= 1000 else f"{kbps:,.3g} kbit/s"


def _bytes(count: float) -> str:
    return f"{count / (1 << 20):,.1f} MiB" if count >= 1 << 20 else f"{count / 1024:,.1f} KiB"
