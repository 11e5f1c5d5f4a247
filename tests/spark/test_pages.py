"""The examples of the pages of Spark run in an empty directory."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs: pip install '.[spark]'")

from docs.markdown_blocks import blocks
from spark.page_examples import MARK

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
PAGES = [
    page for page in sorted(DOCS.glob("spark*.md")) if any(block.value == MARK for block in blocks(page))
]


@pytest.mark.heavy  # each command starts a Spark
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_example_of_a_page_runs_after_those_before_it(page, tmp_path):
    scripts = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    modules = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    work, output = tmp_path / "work", tmp_path / "output"
    work.mkdir()
    # The output goes into a file, because background processes of an example would keep a pipe open.
    with output.open("w") as written:
        started = subprocess.Popen(
            [sys.executable, str(HERE / "page_examples.py"), str(page)],
            cwd=work,
            env={**os.environ, "PATH": scripts, "PYTHONPATH": modules},
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = started.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGTERM)
    assert status == 0, output.read_text()[-6000:]
