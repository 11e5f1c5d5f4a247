"""Rows of `tests/wire/vectors`: frames and their content. docs/wire.md shows some of them."""

import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "wire" / "vectors"


def rows(name: str) -> list[dict[str, Any]]:
    """All rows of one file, named without its extension."""
    return [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text("ascii").splitlines()]
