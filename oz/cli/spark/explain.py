"""`oz spark explain`: what subscriptions cost on recorded traffic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from oz.cli.options import TEXT_OF_PLACE, PathName, dialect_option, parse_all
from oz.cli.output import console, is_terminal, plain_table, write_line
from oz.cli.spark.engine import engine, engine_options, stages
from oz.escaping import printable
from oz.system import refuse_planted

if TYPE_CHECKING:  # needs PySpark, an extra
    from oz.spark import Explanation

_HELP = """Hold each PATTERN against SOURCE, a journal's directory or a lake of Parquet files.

For each pattern: how much of the traffic it matches, how much its prefixes let through, and how much of that
in vain, since ZeroMQ filters by prefix. Then what publishers that filter would save, with each pattern in a
subscriber of its own and with all in one. And what-if: the order of tokens in which the prefixes would let
the least through. Bytes are those of subjects and payloads. Needs the extra ozmq[spark] and Java 17 or newer.

\b
Examples:
  oz spark explain recorded 'flight.*.LAX.>' 'rv:RUN.*'
  oz spark explain lake --from-file subscriptions.txt --json costs.json
"""

_FILE = PathName(dir_okay=False, path_type=Path)
_HEADS = ("pattern", "matched", "selectivity", "bytes matched", "let through", "in vain", "of it")


@click.command(help=_HELP, short_help="Tell what subscriptions cost on recorded traffic.")
@click.argument("source", type=TEXT_OF_PLACE)
@click.argument("patterns", metavar="PATTERN...", nargs=-1)
@click.option(
    "--from-file",
    type=click.File("r", encoding="utf-8", errors="surrogateescape"),
    metavar="FILE",
    help="More patterns, one a line; - for standard input.",
)
@dialect_option("patterns that name none")
@click.option(
    "--separator",
    metavar="TEXT",
    help="The text between tokens.  [default: / when all patterns are mqtt, else .]",
)
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write the figures here, as JSON.")
@engine_options
@click.pass_context
def explain(
    ctx: click.Context,
    source: str,
    patterns: tuple[str, ...],
    from_file: Any,
    dialect: str,
    separator: str | None,
    json_file: Path | None,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Explain; the text of the help is `_HELP`."""
    import oz.spark

    lines = [line.rstrip("\r\n") for line in from_file] if from_file is not None else []
    compiled = parse_all([*patterns, *filter(None, lines)], dialect)
    if not compiled:
        raise click.UsageError("no PATTERN is given")
    if separator == "":
        raise click.BadParameter("the separator is empty", param_hint="--separator")
    with stages(ctx) as on_progress, engine(master, conf) as spark:
        found = oz.spark.explain(spark, source, compiled, separator=separator, on_progress=on_progress)
    if json_file is not None:
        refuse_planted(json_file)
        json_file.write_text(found.json() + "\n", encoding="utf-8")
    _show(found)


def _show(found: Explanation) -> None:
    rows = [_row(one) for one in found.patterns]
    if is_terminal():
        _show_table(rows)
    else:
        write_line(plain_table([_HEADS, *rows]))
    traffic = found.figures["traffic"]
    write_line(f"\nof {traffic['messages']:,} messages, {traffic['bytes']:,} bytes\n")
    write_line(plain_table(_savings(found.figures)))
    for line in _orders(found):
        write_line(line)


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    through, in_vain = one["let_through"]["bytes"], one["in_vain"]["bytes"]
    return (
        printable(one["pattern"]),
        f"{one['matched']['messages']:,}",
        _share(one["selectivity"]),
        f"{one['matched']['bytes']:,}",
        f"{through:,}",
        f"{in_vain:,}",
        _share(in_vain / through if through else None),
    )


def _show_table(rows: list[tuple[str, ...]]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in _HEADS:
        is_text = name == "pattern"
        table.add_column(name, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    for row in rows:
        table.add_row(*row)
    console().print(table)


def _savings(figures: dict[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("bytes on the wire", "with prefixes", "publishers filter", "saved", "of it")
    ]
    for key, name in (("apart", "each in its own subscriber"), ("together", "all in one subscriber")):
        one = figures[key]
        before, after, saved = (one[what]["bytes"] for what in ("with_prefixes", "routed", "saved"))
        share = _share(saved / before if before else None)
        rows.append((name, f"{before:,}", f"{after:,}", f"{saved:,}", share))
    return rows


def _orders(found: Explanation) -> list[str]:
    lines = []
    for one in found.orders:
        name = f"{one['first_token']}…, " if one["first_token"] is not None else ""
        family = printable(f"subjects of {name}{one['tokens']} tokens")
        saved = one["now"] - one["then"]
        if not saved:
            lines.append(f"\n{family}: the order of tokens is {'the best' if one['is_best'] else 'good'}")
            continue
        order = " ".join(map(str, one["order"]))
        lines.append(f"\n{family}: order {order}{'' if one['is_best'] else ' (not all were tried)'}")
        share = _share(saved / one["now"])
        lines.append(f"  prefixes let through {one['then']:,} bytes, not {one['now']:,}: {share} less")
        lines += [f"  {line}" for line in _example(one["example"])]
    return lines


def _example(example: dict[str, Any]) -> list[str]:
    pairs = [(example["pattern"], example["becomes"])]
    if example["subject"] is not None:
        pairs.append((example["subject"], example["subject_becomes"]))
    return [f"{printable(before)} becomes {printable(after)}" for before, after in pairs]


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"
