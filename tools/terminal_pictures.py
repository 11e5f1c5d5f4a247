"""Write docs/pictures/terminal-*.svg: the output of commands in a terminal.

Usage: python tools/terminal_pictures.py [--to DIR] [NAME…]     by hand, after the output of a command has changed

The commands run in a pseudo-terminal, and rich draws the bytes that they write.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

import oz

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 88
OZ = (sys.executable, "-P", "-m", "oz")
TIMEOUT = 120.0  # seconds of one command


def demo() -> Text:
    """Return the output of the demo."""
    return output_of("oz demo")


def explain() -> Text:
    """Return the panels of two patterns."""
    return output_of(r"oz explain 'time.*.east' 'regex:^order\.(new|fill)\..*'")


def sub() -> Text:
    """Return the messages of a subscriber."""
    with tempfile.TemporaryDirectory() as directory, oz.Publisher(f"ipc://{directory}/feed") as publisher:

        def publish() -> None:
            publisher.wait_for_subscribers("time.us.east", timeout=TIMEOUT)
            for subject, payload in (("us.east", "12:00"), ("us.west", "09:00"), ("eu.east", "18:00")):
                publisher.publish(f"time.{subject}", payload.encode())

        thread = threading.Thread(target=publish)
        thread.start()
        place = str(publisher.endpoint)
        shown = output_of("oz sub 'time.*.east'", "--count", "2", "--timeout", "60", "--connect", place)
        thread.join()
        return shown


NAMES: dict[str, Callable[[], Text]] = {"demo": demo, "explain": explain, "sub": sub}


def output_of(line: str, *hidden: str) -> Text:
    """Run a command in a pseudo-terminal, and return the prompt with the command, and the output.

    Args:
        line: the command, as the picture shows it.
        hidden: arguments that the picture does not show.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [*OZ, *shlex.split(line)[1:], *hidden],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment | {"TERM": "xterm-256color"},
    )
    os.close(theirs)
    written = b""
    try:
        while piece := os.read(ours, 65_536):
            written += piece
    except OSError:  # Linux reports the end of the last writer as an error.
        pass
    os.close(ours)
    if process.wait(TIMEOUT) != 0:
        raise SystemExit(f"{line}: exit code {process.returncode}")
    return Text.assemble(("$ ", "green"), line, "\n", Text.from_ansi(written.decode().replace("\r\n", "\n")))


def svg_of(name: str, text: Text) -> str:
    """Return the picture of a terminal with a text, without fonts of other hosts."""
    text.rstrip()
    width = max(len(line.rstrip()) for line in text.plain.splitlines()) + 2
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=width, file=nowhere)
        console.print(text)
        drawn = console.export_svg(title="", theme=MONOKAI, unique_id=f"oz-{name}")
    drawn = re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
    return drawn.replace("font-family: Fira Code, monospace", "font-family: monospace")


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--to", type=Path, default=PICTURES, metavar="DIR")
    given = parser.parse_args()
    for name in given.names or NAMES:
        (given.to / f"terminal-{name}.svg").write_text(svg_of(name, NAMES[name]()), encoding="utf-8")


if __name__ == "__main__":
    main()
