"""The rows of `tests/vectors`: what real servers and primary documents say about subjects."""

import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "vectors"


def rows(name: str) -> list[dict[str, Any]]:
    """All rows of one file, named without its extension: `rows("nats.match")`."""
    lines = (VECTORS / f"{name}.jsonl").read_text("ascii").splitlines()
    return [json.loads(line) for line in lines if line]


def text_of(row: dict[str, Any], key: str) -> str | bytes:
    """The text under `key`, or the bytes under `<key>_hex` where they are not UTF-8."""
    if f"{key}_hex" in row:
        return bytes.fromhex(row[f"{key}_hex"])
    text: str = row[key]
    return text
