"""The script of the terminal pictures runs, and pictures load nothing from other hosts."""

import re
import subprocess
import sys

import pytest

from docs.markdown_blocks import ROOT

pytestmark = pytest.mark.documents

PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


def test_the_script_draws_the_output_of_commands(tmp_path):
    script = ROOT / "tools" / "terminal_pictures.py"
    subprocess.run([sys.executable, script, "--to", tmp_path, "explain", "sub"], check=True, timeout=110)
    words = {
        "explain": ("order.fill.", "literal"),
        "sub": ("time.us.east&#160;12:00", "time.eu.east&#160;18:00"),
    }
    for name, expected in words.items():
        drawn = (tmp_path / f"terminal-{name}.svg").read_text("utf-8")
        assert all(word in drawn for word in expected), drawn[-3000:]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_complete_and_loads_nothing(picture):
    text = picture.read_text("utf-8")
    assert set(re.findall(r"https?://[^\s\"<]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "https://www.textualize.io",
    }
    assert "prefers-color-scheme: dark" in text or picture.stem.startswith("terminal-")
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    assert any(f"pictures/{picture.name})" in page.read_text("utf-8") for page in pages)
