"""Programs that are forked are what an interpreter would have started."""

import os
import signal
import subprocess
import sys

import pytest

from support import cases, forking, scripts
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


LAST = "class Last:\n    def __del__(self): print('gone')\nlast = Last()\n"
LATER = (
    "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.01), print('later'))).start()\n"
)
ENDS = {
    "at its end": "print('all')",
    "by a status": "import sys; print('all'); sys.exit(300)",
    "by None": "import sys; sys.exit(None)",
    "by words": "import sys; sys.exit('no')",
    "by Ctrl-C": "print('all'); raise KeyboardInterrupt",
    "with what is left": LAST,
    "with what is left that fails": LAST.replace("print('gone')", "1 / 0"),
    "with what it is to do last": "import atexit; atexit.register(print, 'at the end'); print('all')",
    "with a thread": LATER,
    "with a thread that nobody waits for": LATER.replace("0.01", "600").replace("')))", "')), daemon=True)"),
    "with a full disk": "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); print('all')",
    "with no reader": "import os; mine, theirs = os.pipe(); os.close(mine); os.dup2(theirs, 1); print('all')",
    "without a stream": "import os, sys; sys.stdout = None; os.close(1)",
}


@cases.each("how", ENDS)
def test_a_program_ends_as_an_interpreter_does(how):
    options = {"stdout": -1, "stderr": -1, "env": os.environ | {"PYTHONUNBUFFERED": ""}, "text": True}
    told = []
    for begin, words in ((ForkedProgram, ["-c"]), (subprocess.Popen, [sys.executable, "-c"])):
        with begin([*words, ENDS[how]], **options) as process:
            out, errors = process.communicate(timeout=60)
            # Addresses differ, and so do the lines of the program that runs another.
            told.append((out, errors.splitlines()[-1:], process.returncode))
    assert told[0] == told[1]


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


def in_bash(directory, line):
    inherited, more = forking.command_of("oz", directory)
    environment = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}", **more}
    return subprocess.Popen(
        ["bash", "-c", line], stdout=-1, stderr=-1, text=True, env=environment, pass_fds=[inherited]
    )


@pytest.mark.parametrize(
    ("line", "out", "code"),
    [
        ("oz explain 'a.*' | grep prefix", "prefix: a.\n", 0),
        ("cd /; echo 'é.b' | oz match 'é.*' -", "é.b\n", 0),
        ("oz match a b", "", 1),
        ("oz sub a --connect ipc:///tmp/none & sleep 600 & kill $!; kill %1; wait %1", "", 143),
    ],
)
def test_a_command_of_a_shell_is_what_it_would_be_without_a_fork(tmp_path, line, out, code):
    with in_bash(tmp_path, line) as shell:
        told, errors = shell.communicate(timeout=60)
    assert (told, shell.returncode) == (out, code), errors


def test_what_a_command_forked_dies_with_it(tmp_path):
    with in_bash(tmp_path, "oz sub a --bind ipc://$PWD/socket 2>&1 & echo $!; wait") as shell:
        command = int(shell.stdout.readline())
        assert "ready" in shell.stdout.readline()
        os.kill(command, signal.SIGKILL)
        # Its end of the pipe is closed as soon as it is gone.
        assert shell.communicate(timeout=60)[0] == ""
