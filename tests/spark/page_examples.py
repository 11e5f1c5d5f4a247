"""Run the examples of a page of Spark in the current directory, in their order.

    python page_examples.py PAGE

Python and SQL share one session and one namespace; shell starts the `oz` that is on the PATH.
"""

import subprocess
import sys
from pathlib import Path

from docs.markdown_blocks import Block, blocks

MARK = "tests/spark/test_pages.py runs it"


def main(page: Path) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.value == MARK:
            print(block, flush=True)
            RUN[block.language](block, names)


def run_python(block: Block, names: dict[str, object]) -> None:
    exec(compile("\n" * (block.line - 1) + block.text, block.path, "exec"), names)


def run_sql(block: Block, names: dict[str, object]) -> None:
    for statement in filter(str.strip, block.text.split(";")):
        names["spark"].sql(statement).collect()


def run_shell(block: Block, _names: dict[str, object]) -> None:
    subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], check=True)


RUN = {"python": run_python, "sql": run_sql, "sh": run_shell}

if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
