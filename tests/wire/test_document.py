"""docs/wire.md says what the code does: its examples are vectors, its numbers those of the modules."""

import re
from importlib import import_module

from docs.markdown_blocks import ROOT, blocks
from oz.protocol.prefix_counts import ALL_PLAIN
from oz.protocol.publisher.router import Router
from oz.protocol.stats import PublisherStats
from oz.wire.declared import DIALECT_NUMBERS
from support.cases import each
from support.wire_vectors import rows

PAGE = ROOT / "docs" / "wire.md"
TEXT = PAGE.read_text("utf-8")
BYTES = re.compile(r"[0-9a-f]{2}(?: [0-9a-f]{2})*(?=   |$)")
EXAMPLES = [block for block in blocks(PAGE) if block.text.startswith("example:")]
LIMITS = re.findall(r"^\| [^|]+ \| ([\d,]+) \| `(oz\.[\w.]+)\.([A-Z_]+)` \|$", TEXT, re.MULTILINE)


def example(text):
    """The file and the name of the row that a block shows, and the frames of bytes in it."""
    title, *lines = text.splitlines()
    name, _, row = title.removeprefix("example:").partition("/")
    frames = [""]
    for line in lines:
        if line.startswith("---"):
            frames.append("")
        else:
            found = BYTES.match(line)
            assert found, f"no bytes in {line!r}"
            frames[-1] += found[0].replace(" ", "")
    return name.strip(), row.strip(), frames


@each("block", EXAMPLES)
def test_an_example_is_the_row_of_the_vectors_that_it_names(block):
    name, title, frames = example(block.text)
    (row,) = [row for row in rows(name) if row["name"] == title]
    assert frames == row.get("frames", [row.get("hex")])
    assert "value" in row or "fields" in row


def test_all_that_looks_like_bytes_is_an_example():
    assert len(EXAMPLES) >= 8
    others = [block for block in blocks(PAGE) if block not in EXAMPLES and BYTES.match(block.text)]
    assert others == []


def test_the_dialects_have_the_numbers_that_the_page_says():
    said = re.findall(r"^\| `([a-z. ]+)` \| (\d+) \|$", TEXT, re.MULTILINE)
    assert {name: int(number) for name, number in said} == DIALECT_NUMBERS


@each(("value", "module", "name"), LIMITS)
def test_a_limit_is_what_the_page_says(value, module, name):
    assert getattr(import_module(module), name) == int(value.replace(",", ""))


def test_every_limit_of_the_wire_is_on_the_page():
    named = {(module, name) for _, module, name in LIMITS}
    for module in ("oz.wire.keys", "oz.wire.batch", "oz.wire.announcement", "oz.wire.discovery"):
        own = {name for name in vars(import_module(module)) if name.startswith("MAX_")}
        assert own <= {name for where, name in named if where == module} | {"MAX_PATTERN"}
    assert len(LIMITS) >= 14


def test_the_empty_subscription_is_replaced_as_the_page_says():
    assert len(ALL_PLAIN) == 510
    assert "(510 prefixes)" in TEXT
    router = Router(b"o" * 16, PublisherStats())
    assert set(router.learn(b"\1", 0.0).wanted) == set(ALL_PLAIN)
    assert not any(b"\x001".startswith(prefix) for prefix in ALL_PLAIN)
    assert {bytes((first,)) for first in range(1, 256)} <= set(ALL_PLAIN)
