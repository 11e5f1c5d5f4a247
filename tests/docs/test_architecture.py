"""docs/architecture.md shows the code as it is: its files are there, its diagrams those of the machines."""

import importlib
import re
from pathlib import Path

import pytest

from support import scripts

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

WALK = """
import os, sys, threading, pathlib
# Of what is compiled no file is seen.
os.environ["OZ_COMPILED"] = "0"
import oz
root, passed = pathlib.Path(oz.__file__).parent.parent, set()
def note(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith(str(root / "oz")):
        passed.add(pathlib.Path(frame.f_code.co_filename).relative_to(root).as_posix())
with oz.Publisher("tcp://127.0.0.1:*") as pub:
    with oz.Subscriber(pub.endpoint, filtering="publisher") as sub:
        sub.subscribe("md.*.x")
        sub.wait_ready(timeout=40)
        pub.publish("md.1.x", b"first")
        sub.receive(timeout=40)
        threading.setprofile(note); sys.setprofile(note)
        pub.publish("md.1.x", b"second")
        pub.flush()
        sub.receive(timeout=40)
        sys.setprofile(None); threading.setprofile(None)
print(*sorted(passed), sep="\\n")
"""

BESIDE = {
    # What every socket has: its guard, its thread, and the engine that holds its parts.
    "oz/transport/guard.py",
    "oz/sync/publisher_engine.py",
    "oz/sync/answer_line.py",
    "oz/sync/ticker.py",
    "oz/sync/waiting.py",
    "oz/transport/subscriber/engine.py",
    "oz/transport/subscriber/links.py",
    "oz/protocol/subscriber/absences.py",
    "oz/wire/batch.py",
    # What a heartbeat takes, which may come in between.
    "oz/protocol/publisher/stream.py",
    "oz/wire/positions.py",
    "oz/transport/frames.py",
}


def test_the_files_that_the_page_names_are_there():
    named = set(re.findall(r"`((?:oz|tools|tests)/[\w/.]+)`", PAGE))
    assert len(named) > 40
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]


@pytest.mark.documents
def test_the_diagrams_are_those_of_the_code(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    walks, tool = (importlib.import_module(name) for name in ("walks", "state_machines"))
    assert tool.rewrite(PAGE) == PAGE, "run python tools/state_machines.py"
    # A machine that never moves would have nothing to show.
    assert all(len(walks.arrows(drawn)) >= 6 for drawn in tool.ALL)


@pytest.mark.documents
def test_a_message_passes_the_files_that_the_page_names():
    passed = set(scripts.run("-c", WALK, fresh=True).split())
    assert "oz/protocol/subscriber/decoder.py" in passed
    assert not [name for name in sorted(passed - BESIDE) if f"`{name}`" not in PAGE]
