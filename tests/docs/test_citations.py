"""Every file of the checkout that a page, a docstring or a comment names is there."""

import re
from pathlib import Path

import pytest

from docs.markdown_blocks import ROOT

FOLDERS = ("oz", "tests", "docs", "examples", "benchmarks", "tools")
FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "setup.cfg", "tox.ini", ".ci/run")
# A path below another, a pattern or a placeholder is none of the checkout's.
_PATH = re.compile(r"(?<![\w./<{~$-])(?:oz|tests|docs|examples|benchmarks|tools)/[\w./-]*\w\.(?:md|py)\b")


def texts():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            is_ours = path.suffix in {".md", ".py"} and "_build" not in path.parts
            if is_ours and path != Path(__file__):
                yield path
    yield from (ROOT / name for name in FILES)


def cited(text):
    return set(_PATH.findall(text))


def test_every_file_that_is_named_is_there():
    missing = {
        str(path.relative_to(ROOT)): absent
        for path in texts()
        if (absent := sorted(name for name in cited(path.read_text("utf-8")) if not (ROOT / name).exists()))
    }
    assert missing == {}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("See docs/no-such-page.md.", {"docs/no-such-page.md"}),
        ("`oz/a/b.py`, [it](docs/c.md)", {"oz/a/b.py", "docs/c.md"}),
        ("~/.config/oz/x.py and https://example.org/docs/y.md and docs/*.md", set()),
    ],
)
def test_a_path_of_the_checkout_is_told_from_others(text, names):
    assert cited(text) == names


def test_every_package_has_tests_in_a_folder_of_its_name():
    packages = {path.parent.name for path in (ROOT / "oz").glob("*/__init__.py")}
    assert {name for name in packages if not any((ROOT / "tests" / name).glob("test_*.py"))} == set()


def test_every_number_of_a_decision_is_a_page_or_said_to_be_unused():
    pages = {int(path.name[:3]) for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    index = (ROOT / "docs" / "decisions" / "index.md").read_text("utf-8")
    unused = set(map(int, re.findall(r"^- (\d{3}) ", index, re.MULTILINE)))
    assert pages & unused == set()
    assert pages | unused == set(range(1, max(pages) + 1))
