"""Relative links of pages in the repository lead to files that exist.

Sphinx checks only the links between pages of `docs`.
"""

import re

from docs.markdown_blocks import ROOT, pages
from support.cases import each

_BLOCK = re.compile(r"^[ \t]*(`{3,}|~{3,}).*?^[ \t]*\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")

PAGES = [*pages(), ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md"]


@each("page", PAGES)
def test_relative_links_resolve(page):
    text = _CODE.sub("``", _BLOCK.sub("", page.read_text("utf-8")))
    targets = [link.partition("#")[0] for link in _LINK.findall(text) if "://" not in link]
    missing = [target for target in targets if target and not (page.parent / target).exists()]
    assert missing == []
