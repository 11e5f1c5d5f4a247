"""Reports about recorded messages, as one HTML page and as JSON.

Spark counts the messages, and this process only formats the small results. The page loads no other file and has no
script. Its charts are SVG by matplotlib, in colors that fit light and dark backgrounds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from oz.errors import missing_module
from oz.escaping import printable
from oz.journal.format import GAP, MESSAGE
from oz.spark.archive import is_archive, read_archive
from oz.spark.columns import gaps, matches
from oz.spark.reading import read
from oz.subjects.pattern import Pattern, compile

BINS = 120
"""Maximum number of intervals of a chart over time."""

_WIDTHS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800]
"""Possible widths of an interval in seconds."""

_QUANTILES = (0.5, 0.9, 0.99)
_BLUE, _RED, _GRAY = "#3b82c4", "#d1495b", "#8a8f98"


@dataclass(frozen=True)
class Report:
    """The figures of a report.

    Attributes:
        figures: the figures as values of JSON. Times are texts in ISO 8601 in UTC. Sizes are sizes of payloads in
            bytes.
    """

    figures: dict[str, Any]

    @property
    def html(self) -> str:
        """The report as an HTML page."""
        return _page(self.figures)

    def save(
        self, *, html: str | os.PathLike[str] | None = None, json: str | os.PathLike[str] | None = None
    ) -> None:
        """Write the page to a file, the figures to a JSON file, or both.

        Args:
            html: path of the file for the page; None writes no page.
            json: path of the file for the figures; None writes no figures.

        Raises:
            OSError: a file cannot be written.
        """
        if html is not None:
            Path(html).write_text(self.html, "utf-8")
        if json is not None:
            Path(json).write_text(_json_text(self.figures), "utf-8")


def report(
    spark: SparkSession,
    source: DataFrame | str | os.PathLike[str],
    pattern: Pattern | str | bytes | None = None,
    *,
    start: Any = None,
    end: Any = None,
    top: int = 10,
    separator: str = ".",
) -> Report:
    """Count the messages of a journal, an archive or a DataFrame.

    Args:
        spark: a Spark session.
        source: directory of a journal or of an archive, or a DataFrame with the columns of a journal.
        pattern: pattern of the subjects to count; None for all subjects. With a pattern, missing sequence numbers are
            not counted, because messages that do not match have numbers too. Gap records are counted with any pattern.
        start: the first offset or time, as for `oz.spark.read`. It is allowed only for a journal.
        end: the offset or time before which to stop, as for `oz.spark.read`. It is allowed only for a journal.
        top: maximum number of rows in each table.
        separator: text between two tokens of a subject.

    Returns:
        The report.

    Raises:
        ValueError: `top` is below 1, or `start` or `end` is given for an archive or a DataFrame.
        MissingDependency: jinja2 or matplotlib is not installed.
        JournalError, PatternError: for the same reasons as in `oz.spark.read`.
    """
    if top < 1:
        raise ValueError(f"top={top}: a table has at least 1 row")
    _require("jinja2", "matplotlib")
    rows = _rows(spark, source, start, end)
    messages = rows.where(F.col("kind") == MESSAGE)
    losses = rows.where(F.col("kind") == GAP)
    if pattern is not None:
        pattern = compile(pattern)
        messages = messages.where(matches("subject", pattern))
    name = "a DataFrame" if isinstance(source, DataFrame) else os.fspath(source)
    about = {
        "source": name,
        "pattern": None if pattern is None else str(pattern.text),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return Report(about | _count(messages, losses, top, separator, is_whole=pattern is None))


def _rows(spark: SparkSession, source: Any, start: Any, end: Any) -> DataFrame:
    is_frame = isinstance(source, DataFrame)
    if is_frame or is_archive(spark, source):
        if start is not None or end is not None:
            raise ValueError(
                "start and end are for journals; filter a DataFrame by its columns offset and time"
            )
        return source if is_frame else read_archive(spark, source)
    return read(spark, source, start=start, end=end, gaps=True, fail_on_loss=False)


# Counting -----------------------------------------------------------------------------------------


def _count(
    messages: DataFrame, losses: DataFrame, top: int, separator: str, *, is_whole: bool
) -> dict[str, Any]:
    size = F.length("payload").cast("long")
    counts = (F.count("*").alias("messages"), F.sum(size).alias("bytes"))
    span = (F.min("time").alias("first"), F.max("time").alias("last"))
    # All figures about subjects come from this table, which has one row for each subject.
    subjects = messages.groupBy("subject").agg(*counts, *span).persist()
    try:
        total = _total(subjects)
        tables = {
            "by_messages": _top(subjects, "messages", top),
            "by_bytes": _top(subjects, "bytes", top),
            "prefixes": _prefixes(subjects, separator, top),
        }
    finally:
        subjects.unpersist()
    (lost,) = losses.agg(F.count("*"), F.sum("lost"), F.sum(F.col("lost").isNull().cast("int"))).collect()
    publishers = _publishers(messages, losses, counts, span, is_whole=is_whole)
    return {
        "total": total | {"publishers": len(publishers)},
        "losses": {"gaps": lost[0], "lost": lost[1] or 0, "unknown": lost[2] or 0},
        "rates": _rates(messages, losses, counts, total),
        "subjects": tables,
        "sizes": _sizes(messages, size),
        "publishers": sorted(publishers, key=_importance)[: max(top, 1)],
    }


def _total(subjects: DataFrame) -> dict[str, Any]:
    columns = (F.sum("messages"), F.sum("bytes"), F.count("*"), F.min("first"), F.max("last"))
    ((messages, size, count, first, last),) = subjects.agg(*columns).collect()
    seconds = (last - first).total_seconds() if messages else 0.0
    return {
        "messages": messages or 0,
        "bytes": size or 0,
        "subjects": count,
        "first": _iso(first),
        "last": _iso(last),
        "seconds": seconds,
        "messages_per_second": messages / seconds if seconds else None,
        "bytes_per_second": size / seconds if seconds else None,
    }


def _top(table: DataFrame, column: str, top: int) -> list[dict[str, Any]]:
    return _dicts(table.orderBy(F.desc(column), "subject").limit(top).collect())


def _prefixes(subjects: DataFrame, separator: str, top: int) -> list[dict[str, Any]]:
    tokens = F.split("subject", _escape_separator(separator))
    sums = (
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.count("*").alias("subjects"),
    )
    found: list[dict[str, Any]] = []
    for depth in (1, 2):
        prefix = F.array_join(F.slice(tokens, 1, depth), separator)
        deeper = subjects.where(F.array_size(tokens) >= depth).groupBy(prefix.alias("prefix")).agg(*sums)
        rows = deeper.orderBy(F.desc("messages"), "prefix").limit(top).collect()
        found += [{"depth": depth, **row} for row in _dicts(rows)]
    return found


def _escape_separator(separator: str) -> str:
    return "".join(f"\\x{{{ord(char):x}}}" for char in separator)


def _publishers(
    messages: DataFrame,
    losses: DataFrame,
    counts: Iterable[Column],
    span: Iterable[Column],
    *,
    is_whole: bool,
) -> list[dict[str, Any]]:
    missing = gaps("sequence", "origin", order="offset") if is_whole else F.lit(None).cast("long")
    numbered = messages.withColumn("missing", missing)
    sent = numbered.groupBy("origin").agg(*counts, *span, F.sum("missing").alias("missing")).collect()
    reported = losses.groupBy("origin").agg(F.sum("lost").alias("lost"), F.count("*").alias("gaps")).collect()
    lost_by = {row.origin: row for row in reported}
    found = []
    for row in _dicts(sent):
        gap = lost_by.pop(row["origin"], None)
        found.append(row | {"lost": (gap.lost or 0) if gap else 0, "gaps": gap.gaps if gap else 0})
    for origin, gap in lost_by.items():
        absent = {"messages": 0, "bytes": 0, "first": None, "last": None, "missing": None}
        found.append({"origin": origin, **absent, "lost": gap.lost or 0, "gaps": gap.gaps})
    return [{**each, "origin": _origin(each["origin"])} for each in found]


def _origin(origin: Any) -> str | None:
    return bytes(origin).hex() if isinstance(origin, (bytes, bytearray)) else origin


def _importance(publisher: dict[str, Any]) -> tuple[Any, ...]:
    return (
        -publisher["lost"],
        -(publisher["missing"] or 0),
        -publisher["messages"],
        publisher["origin"] or "",
    )


def _rates(
    messages: DataFrame, losses: DataFrame, counts: Iterable[Column], total: dict[str, Any]
) -> dict[str, Any]:
    if total["first"] is None:
        return {"seconds": _WIDTHS[0], "bins": []}
    first, last = (datetime.fromisoformat(total[name]).timestamp() for name in ("first", "last"))
    width = (
        next((item for item in _WIDTHS if (last - first) / item < BINS), None)
        or int((last - first) / BINS) + 1
    )
    # Intervals are numbered, because the text of a timestamp would depend on the time zone of the session.
    number = F.expr(f"unix_micros(time) div {width * 1_000_000}")
    sent = {row.bin: row for row in messages.groupBy(number.alias("bin")).agg(*counts).collect()}
    lost = {
        row.bin: row.lost
        for row in losses.groupBy(number.alias("bin")).agg(F.sum("lost").alias("lost")).collect()
    }
    low, high = int(first // width), int(last // width)
    bins = []
    for at in range(low, high + 1):
        row = sent.get(at)
        values = {"messages": row.messages, "bytes": row.bytes} if row else {"messages": 0, "bytes": 0}
        time = datetime.fromtimestamp(at * width, UTC)
        bins.append({"time": time.isoformat(), **values, "lost": lost.get(at) or 0})
    return {"seconds": width, "bins": bins}


def _sizes(messages: DataFrame, size: Column) -> dict[str, Any]:
    """Return quantiles and a histogram of the payload sizes. Each bin is twice as wide as the bin before."""
    quantiles = F.percentile_approx(size, list(_QUANTILES), 10_000)
    ((mean, largest, found),) = messages.agg(F.avg(size), F.max(size), quantiles).collect()
    power = F.when(size > 0, F.floor(F.log2(size)).cast("int") + 1).otherwise(0)
    counts = messages.groupBy(power.alias("power")).count().orderBy("power").collect()
    bins = [
        {
            "from": 0 if row.power == 0 else 2 ** (row.power - 1),
            "to": 2**row.power - 1,
            "messages": row["count"],
        }
        for row in counts
    ]
    names = [f"p{round(100 * each)}" for each in _QUANTILES]
    return {"mean": mean, "max": largest, **dict(zip(names, found or [None] * 3, strict=True)), "bins": bins}


def _dicts(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [
        {name: _iso(value) if isinstance(value, datetime) else value for name, value in row.asDict().items()}
        for row in rows
    ]


def _iso(time: datetime | None) -> str | None:
    # PySpark returns local times without a zone.
    return None if time is None else time.astimezone(UTC).isoformat()


def _json_text(figures: dict[str, Any]) -> str:
    return json.dumps(figures, indent=2) + "\n"


# The page -----------------------------------------------------------------------------------------


def _require(*modules: str) -> None:
    for module in modules:
        try:
            import_module(module)
        except ImportError:
            raise missing_module(module, "spark") from None


def _page(figures: dict[str, Any]) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"size": _size, "number": _number, "time": _time, "span": _span, "show": printable}
    template = environment.from_string(files("oz.spark").joinpath("report.html.j2").read_text("utf-8"))
    charts = {
        "rate_chart": _time_chart(figures["rates"], "messages", _BLUE),
        "bytes_chart": _time_chart(figures["rates"], "bytes", _BLUE),
        "loss_chart": _time_chart(figures["rates"], "lost", _RED) if figures["losses"]["lost"] else "",
        "size_chart": _size_chart(figures["sizes"]["bins"]),
    }
    page: str = template.render(**figures, **charts)
    return page


def _time_chart(rates: dict[str, Any], column: str, color: str) -> str:
    """Return an SVG of rates over time. For the column "lost", it shows the number of losses in each interval."""
    width = 1 if column == "lost" else rates["seconds"]
    times = [datetime.fromisoformat(each["time"]) for each in rates["bins"]]
    values = [each[column] / width for each in rates["bins"]]
    if not times:
        return ""
    figure, axes = _figure(2.1)
    edges = [*times, times[-1] + timedelta(seconds=rates["seconds"])]
    axes.stairs(values, edges, fill=True, color=color, alpha=0.35)
    axes.stairs(values, edges, color=color, linewidth=1.2)
    dates: Any = import_module("matplotlib.dates")  # its functions have no types
    locator = dates.AutoDateLocator(tz=UTC, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=UTC))
    axes.set_xlim(edges[0], edges[-1])
    unit = "B" if column == "bytes" else ""
    axes.yaxis.set_major_formatter(lambda value, _: _short(value) + unit)
    return _svg(figure)


def _size_chart(bins: list[dict[str, Any]]) -> str:
    if not bins:
        return ""
    figure, axes = _figure(2.1)
    labels = [_size(0) if each["to"] == 0 else f"< {_size(each['to'] + 1)}" for each in bins]
    axes.bar(range(len(bins)), [each["messages"] for each in bins], color=_BLUE, alpha=0.7, width=0.85)
    axes.set_xticks(range(len(bins)), labels, rotation=0 if len(bins) < 9 else 35)
    axes.yaxis.set_major_formatter(lambda value, _: _short(value))
    return _svg(figure)


def _figure(height: float) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, height), layout="constrained")
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    figure.patch.set_alpha(0)
    axes.grid(axis="y", color=_GRAY, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_GRAY)
    axes.tick_params(colors=_GRAY, labelsize=8, length=0)
    axes.xaxis.get_offset_text().set(color=_GRAY, fontsize=8)
    return figure, axes


def _svg(figure: Any) -> str:
    from markupsafe import Markup
    from matplotlib import rc_context

    figure.axes[0].set_ylim(bottom=0)
    out = StringIO()
    # With these settings, the text of a chart stays text, and the same figures always give the same page.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "oz", "font.family": "sans-serif"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    drawn: str = Markup(text[text.index("<svg") :])
    return drawn


def _size(value: float | None) -> str:
    return "–" if value is None else f"{_short(value, 1024)}B"


def _short(value: float, base: int = 1000) -> str:
    if value == 0:
        return "0 " if base == 1024 else "0"
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < base or unit == "T":
            break
        value /= base
    text = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    suffix = {"": "", "k": "Ki"}.get(unit, f"{unit}i") if base == 1024 else unit
    return f"{text} {suffix}" if base == 1024 else f"{text}{suffix}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.3g}"


def _time(text: str | None) -> str:
    return "–" if text is None else f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S}"


def _span(seconds: float) -> str:
    """Return a duration as text in its two largest units."""
    parts = []
    for name, length in (("d", 86400), ("h", 3600), ("min", 60)):
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count:.0f} {name}")
    return " ".join([*parts, *([f"{seconds:.3g} s"] if len(parts) < 2 else [])][:2])
