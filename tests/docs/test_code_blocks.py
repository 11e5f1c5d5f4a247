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

import click
import pytest

from docs.markdown_blocks import PYTHON, ROOT, SHELL, Block, blocks, pages
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
    check_shell_block(block, tmp_path)


def check_shell_block(block: Block, directory: Path) -> None:
    command = ["bash", "-euo", "pipefail", "-c", script(block.language, block.text)]
    status, output = run(command, directory)
    assert status == 0, f"{block}\n{output}"
    promised = promised_output(block.language, block.text)
    if promised:
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(promised, output, flags), f"{block} printed\n{output}"


def test_every_block_is_run_or_says_why_not(record_property):
    found = [block for page in PAGES for block in blocks(page)]
    record_property("blocks", len(found))
    record_property("blocks not run", sum(not block.is_run for block in found))
    unexplained = [str(block) for block in found if not block.is_explained]
    assert not unexplained, f"neither run nor `<!-- no-run: reason -->`: {', '.join(unexplained)}"


def test_a_block_is_found_with_its_line_language_and_directive(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        textwrap.dedent("""\
            # Title
            ```python
            if True:
                a = 1
            ```
            <!-- no-run: needs a network -->

            ```sh
            oz demo
            ```
            1. A step
               ```console
               $ oz demo
               done
               ```

            ````{note}
            <!-- run -->
            ```{code-block} sh
            true
            ```
            ````
            <!-- run -->
            Text between: the comment is not for this block.
            ```
            plain
            ```
            """)
    )
    assert blocks(page) == [
        Block(page, 3, "python", "if True:\n    a = 1\n"),
        Block(page, 9, "sh", "oz demo\n", "no-run", "needs a network"),
        Block(page, 13, "console", "$ oz demo\ndone\n"),
        Block(page, 20, "sh", "true\n", "run"),
        Block(page, 26, "", "plain\n"),
    ]
    assert [block.is_explained for block in blocks(page)] == [True, True, False, True, False]


@pytest.mark.parametrize(
    ("shell", "commands"),
    [
        ("oz sub 'md.>' | head -1  # oz none", [["sub", "md.>"]]),
        (
            "PORT=1 .venv/bin/oz pub --bind tcp://*:5555 x && oz demo &\n",
            [["pub", "--bind", "tcp://*:5555", "x"], ["demo"]],
        ),
        ("oz pub x \\\n  --bind 'a\nb'", [["pub", "x", "--bind", "a\nb"]]),
        ("pip install ozmq\ncd oz\necho oz demo", []),
    ],
)
def test_oz_commands_are_found_in_command_position(shell, commands):
    assert list(oz_commands(shell)) == commands


@click.group()
@click.option("--dialect")
@click.option("--verbose", is_flag=True)
def _main():
    pass


@_main.command("pub")
@click.option("--bind")
def _pub():
    pass


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        ("pub --bind tcp://*:5555 a.b", None),
        ("--dialect rv --verbose pub a.b -- --not-an-option", None),
        ("--dialect=rv pub --help", None),
        ("publish a.b", "publish"),
        ("--verbose publish", "publish"),
        ("pub --bnd tcp://*:5555", "--bnd"),
    ],
)
def test_words_that_the_command_line_does_not_have(words, unknown):
    assert unknown_word(words.split(), _main) == unknown


PAGE_OF_PYTHON = """\
```python
import os.path
class Thing: pass
```
```python
>>> os.path.basename("a/b")
'b'
>>> thing = Thing()
```
```python
import pickle
assert type(pickle.loads(pickle.dumps(thing))) is Thing
FAULT
```
"""


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("pass", None),
        ("print(sys)", "line 13"),
        ("```\n```python\n>>> 1 + 1\n3", "page.md:15"),
    ],
)
def test_blocks_of_a_page_share_a_namespace_and_failures_name_the_line(tmp_path, fault, message):
    page = tmp_path / "page.md"
    page.write_text(PAGE_OF_PYTHON.replace("FAULT", fault))
    status, output = run([sys.executable, str(HERE / "run_python_blocks.py"), str(page)], tmp_path)
    assert (status == 0) == (message is None)
    assert message is None or message in output


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("$ echo one; sleep 100 &\n$ echo \\\n  two three\none\ntwo ...\n", None),
        ("$ true\n", None),
        ("$ echo one\ntwo\n", r"page.md:1 .* printed"),
        ("$ false\n", r"page.md:1"),
    ],
)
def test_a_console_block_prints_what_it_shows(tmp_path, text, fault):
    block = Block(tmp_path / "page.md", 1, "console", text, "run")
    if fault is None:
        check_shell_block(block, tmp_path)
    else:
        with pytest.raises(AssertionError, match=fault):
            check_shell_block(block, tmp_path)
