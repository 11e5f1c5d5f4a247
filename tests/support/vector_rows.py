"""Rows of `tests/vectors`: results of real servers and rules of primary documents about subjects."""

import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "vectors"


def rows(name: str) -> list[dict[str, Any]]:
    """Return all rows of a file, which is named without its extension: `rows("nats.match")`."""
    lines = (VECTORS / f"{name}.jsonl").read_text("ascii").splitlines()
    return [json.loads(line) for line in lines if line]


def text_of(row: dict[str, Any], key: str) -> str | bytes:
    """Return the text under `key`, or the bytes under `<key>_hex` if they are not UTF-8."""
    if f"{key}_hex" in row:
        return bytes.fromhex(row[f"{key}_hex"])
    text: str = row[key]
    return text
