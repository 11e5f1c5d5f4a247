"""Rows of `tests/wire/vectors`: frames and their content. docs/wire.md shows some of them."""

import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "wire" / "vectors"


def rows(name: str) -> list[dict[str, Any]]:
    """All rows of one file, named without its extension."""
    return [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text("ascii").splitlines()]


def text_of(value: dict[str, Any], key: str) -> bytes:
    """The bytes under `key` as text, or under `<key>_hex` where they are not UTF-8."""
    if f"{key}_hex" in value:
        return bytes.fromhex(value[f"{key}_hex"])
    text: str = value[key]
    return text.encode()
