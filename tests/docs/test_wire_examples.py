"""The examples of docs/wire.md are rows of the test vectors."""

import json
import re
from pathlib import Path

from support.cases import each

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "wire.md").read_text("utf-8")
EXAMPLES = re.findall(r"^example: (\w+) / (.+)\n((?:.+\n)+?)```", PAGE, re.MULTILINE)


@each("example", EXAMPLES)
def test_example_has_the_bytes_of_its_row(example):
    name, row, text = example
    lines = (ROOT / "tests" / "wire" / "vectors" / f"{name}.jsonl").read_text("utf-8").splitlines()
    [vector] = [found for found in map(json.loads, lines) if found["name"] == row]
    shown = re.findall(r"^[0-9a-f]{2}(?: [0-9a-f]{2})*\b", text, re.MULTILINE)
    assert bytes.fromhex("".join(shown)) == bytes.fromhex(vector["hex"])


def test_page_has_examples():
    assert len(EXAMPLES) > 3
