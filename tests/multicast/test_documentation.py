"""The Python of docs/multicast.md, which only runs where libzmq has PGM, is run here."""

import re

import pytest

from docs.markdown_blocks import PYTHON, ROOT, blocks
from multicast import needs
from support.ports import lasting_udp_port

PAGE = ROOT / "docs" / "multicast.md"
FOUND = [block for block in blocks(PAGE) if block.language in PYTHON]


@needs.pgm
@pytest.mark.parametrize("block", FOUND, ids=str)
def test_an_example_runs(block):
    # A free port, because another program may use the port of the page.
    text = re.sub(r"(epgm://[^:\"]+):\d+", rf"\1:{lasting_udp_port()}", block.text)
    names = {}
    try:
        exec(compile(text, str(PAGE), "exec"), names)
    finally:
        if "publisher" in names:
            names["publisher"].close(timeout=0)
        if "subscriber" in names:
            names["subscriber"].close()


def test_page_has_examples():
    assert FOUND
