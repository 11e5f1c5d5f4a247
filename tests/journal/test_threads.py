"""What a journal has done leaves no thread of Arrow's behind, with something of Python's in its hands.

If the interpreter ends just then, Python ends that thread within a destructor of C++, which aborts the
process: on a busy machine in one of a hundred runs of `oz journal verify` on a journal without its manifest.
"""

from pathlib import Path

import pytest

from oz.journal import Writer
from support import scripts

TASKS = Path("/proc/self/task")
COUNTED = """
import logging, os, sys
from oz.journal import Journal, Writer
logging.disable()
journal = Journal(sys.argv[1])
before = len(os.listdir("/proc/self/task"))
%s
print(len(os.listdir("/proc/self/task")) - before)
"""
USES = {
    "read": "assert list(journal.read('a.1'))",
    "table": "assert journal.table().num_rows == 90",
    "verify": "assert not journal.verify().ok",
    "repair": "journal.repair()",
    "write": "Writer(journal.directory).close()",
}


@pytest.mark.skipif(not TASKS.exists(), reason="this system does not list the threads of a process")
@pytest.mark.parametrize("use", USES)
def test_no_thread_is_left_that_an_exit_could_cut_short(tmp_path, use):
    with Writer(tmp_path / "journal", segment_bytes=1) as writer:
        for number in range(3):
            writer.append([(f"a.{number}", b"x")] * 30)
    (tmp_path / "journal" / "manifest.json").unlink()
    assert scripts.run("-c", COUNTED % USES[use], tmp_path / "journal", timeout=60) == "0\n"
