"""Every code block of the README and of `docs` is run, or says why not.

- `python` blocks of a page run in one process. A block that starts with `>>>` is a doctest.
- `sh`, `bash` and `console` blocks run after `<!-- run -->`. A console block that shows output must get it
  (`...` stands for anything). Every `oz` command and long option in them must exist, run or not.
- `<!-- no-run: reason -->` before a block: Python is compiled only. Without a reason the tests fail.
- `<!-- command: test -->`, `<!-- command: demo -->` mark the README's two commands; `.ci/run` runs them.
"""

import ast
import contextlib
import doctest
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

from docs.markdown_blocks import PYTHON, ROOT, SHELL, blocks, pages
from docs.shell_blocks import oz_commands, promised_output, script, unknown_word
from support.cases import each

HERE = Path(__file__).parent
DEADLINE = 150.0  # seconds for a page or a shell block: less than for a test, so that its output is shown
PAGES = pages()
pytestmark = pytest.mark.timeout(180)
SHELL_BLOCKS = [block for page in PAGES for block in blocks(page) if block.language in SHELL]


def by_page(page: Path) -> str:
    return str(page.relative_to(ROOT))


def has_python_that_runs(page: Path) -> bool:
    return any(block.language in PYTHON and block.is_run for block in blocks(page))


def run(command: list[str], directory: Path) -> tuple[int, str]:
    """Run a command to its end, and kill the processes that it leaves in the background."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    # A short path, because the nodes of this page keep their sockets there.
    bus = tempfile.mkdtemp(prefix="oz", dir="/tmp")
    environment = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", "OZ_DIRECTORY": bus}
    log = directory / "output"
    work = directory / "work"
    work.mkdir()
    # Output goes to a file: a pipe would stay open while a background process holds it.
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=work,
            env=environment,
            start_new_session=True,
        )
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            output.write(f"not finished after {DEADLINE:.0f} s\n")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            shutil.rmtree(bus, ignore_errors=True)
    return process.returncode, log.read_text("utf-8", "replace")


def marked(page: Path) -> tuple[pytest.MarkDecorator, ...]:
    """Leave all pages but the README to `tox -e docs`."""
    return () if page.name == "README.md" and page.parent == ROOT else (pytest.mark.documents,)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=by_page(page), marks=marked(page))
        for page in PAGES
        if has_python_that_runs(page)
    ],
)
def test_python_blocks_run(page, tmp_path):
    status, output = run([sys.executable, str(HERE / "run_python_blocks.py"), str(page)], tmp_path)
    assert status == 0, f"{page.relative_to(ROOT)}\n{output}"


@each("page", PAGES)
def test_python_blocks_that_do_not_run_compile(page):
    for block in blocks(page):
        if block.language in PYTHON and not block.is_run:
            source = block.text
            if block.is_session:
                examples = doctest.DocTestParser().get_examples(source)
                source = "".join(example.source for example in examples)
            padded = "\n" * (block.line - 1) + textwrap.dedent(source)
            compile(padded, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@each("block", SHELL_BLOCKS)
def test_oz_commands_exist(block):
    commands = list(oz_commands(script(block.language, block.text)))
    for words in commands:
        unknown = unknown_word(words, import_module("oz.cli").main)
        assert unknown is None, f"{block}: `oz {' '.join(words)}`: there is no {unknown}"


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=str(block), marks=marked(block.path))
        for block in SHELL_BLOCKS
        if block.directive == "run"
    ],
)
def test_shell_blocks_run(block, tmp_path):
    command = ["bash", "-euo", "pipefail", "-c", script(block.language, block.text)]
    status, output = run(command, tmp_path)
    assert status == 0, f"{block}\n{output}"
    promised = promised_output(block.language, block.text)
    if promised:
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(promised, output, flags), f"{block} printed\n{output}"


def test_every_block_runs_or_has_a_reason(record_property):
    found = [block for page in PAGES for block in blocks(page)]
    record_property("blocks", len(found))
    record_property("blocks not run", sum(not block.is_run for block in found))
    unexplained = [str(block) for block in found if not block.is_explained]
    assert not unexplained, f"neither run nor `<!-- no-run: reason -->`: {', '.join(unexplained)}"
