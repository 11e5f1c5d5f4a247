"""Runs the Python blocks of one page in one namespace, as a reader would who pastes them one after another.

    python run_python_blocks.py PAGE

A failure names the page and the line: each block is compiled at its own place in the page.
"""

import doctest
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from markdown_blocks import PYTHON, Block, blocks


def main(page: Path) -> None:
    # A __main__ with nothing of ours in it; pickling and `if __name__ == "__main__"` work in the blocks.
    module = sys.modules["__main__"] = ModuleType("__main__")
    # Imports as in a script of the reader's: from the current directory, not from the tests.
    sys.path[0] = ""
    for block in blocks(page):
        if block.language in PYTHON and block.is_run:
            run(block, module.__dict__)


def run(block: Block, namespace: dict[str, Any]) -> None:
    if block.is_session:
        run_session(block, namespace)
    else:
        exec(compile("\n" * (block.line - 1) + block.text, block.path, "exec"), namespace)


def run_session(block: Block, namespace: dict[str, Any]) -> None:
    name = str(block.path)
    session = doctest.DocTestParser().get_doctest(block.text, namespace, name, name, block.line - 1)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    failed = runner.run(session, clear_globs=False).failed
    namespace.update(session.globs)
    if failed:
        raise SystemExit(f"{block}: {failed} of {len(session.examples)} examples failed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
