"""Programs that are forked are what an interpreter would have started."""

import os
import signal
import subprocess
import sys

import pytest

from support import forking, scripts
from support.forking import ForkedProgram

PROGRAM = """
import os, sys
print(sys.argv[1:], __name__, sorted(name for name in globals() if not name.startswith("__")))
print(sys.stdin.read(), os.getcwd(), os.environ.get("SAID"), os.environ.get("HOME"))
print("an error", file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.parametrize("kind", ["-c", "script"])
def test_a_program_is_given_what_an_interpreter_would_give_it(tmp_path, kind):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    start = ["-c", PROGRAM] if kind == "-c" else [str(script)]
    options = {"stdin": -1, "stdout": -1, "stderr": -1, "cwd": tmp_path, "env": {"SAID": "é"}, "text": True}
    told = []
    for begin, words in ((ForkedProgram, start), (subprocess.Popen, [sys.executable, *start])):
        with begin([*words, "one", "two words"], **options) as process:
            told.append((*process.communicate("read", timeout=60), process.returncode))
    assert told[0] == told[1]
    assert told[0][2] == 7


def test_how_it_ended_is_known_by_a_signal_too():
    with ForkedProgram(["-c", "import time; print(1, flush=True); time.sleep(600)"], stdout=-1) as process:
        assert process.stdout.readline() == b"1\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.terminate()
        assert process.wait(60) == process.poll() == -signal.SIGTERM


def test_no_program_ignores_what_was_ignored_where_the_first_began(monkeypatch):
    monkeypatch.setattr(forking, "_parents", {})
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        process = ForkedProgram(["-c", "import time; print(1, flush=True); time.sleep(600)"], stdout=-1)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with process:
        assert process.stdout.readline() == b"1\n"
        process.terminate()
        try:
            assert process.wait(30) == -signal.SIGTERM
        finally:
            process.kill()


def test_what_a_program_leaves_open_is_not_open_in_the_next():
    count = "import os; print(len(os.listdir('/proc/self/fd')))"
    if not os.path.exists("/proc/self/fd"):
        pytest.skip("looks into /proc")
    alone = scripts.run("-c", count)
    with ForkedProgram(["-c", "print(input())"], stdin=-1, stdout=-1) as other:
        assert scripts.run("-c", count) == alone
        assert other.communicate(b"and on\n", timeout=60)[0] == b"and on\n"


def test_who_does_not_end_says_where_it_is():
    with scripts.started(
        "-c", "import time\ndef stuck(): print(1, flush=True), time.sleep(600)\nstuck()"
    ) as process:
        assert process.stdout.readline() == "1\n"
        with pytest.raises(AssertionError, match=r"(?s)not ended after 0\.2 s.* in stuck"):
            scripts.finished(process, timeout=0.2)
