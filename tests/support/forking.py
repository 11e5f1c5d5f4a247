"""Python programs in processes of their own, forked from one that has imported oz already.

A program that imports oz works for a quarter of a second before it does anything, and tests start a
thousand of them. `ForkedProgram` is `subprocess.Popen` for `python SCRIPT …`, `python -m MODULE …` and
`python -c CODE …`: what it starts is a fork of a waiting process, which runs the program as `__main__` and
ends as an interpreter does, but for the modules: to take them down is four fifths of what a short program
works. Tests of how an interpreter begins, of signals in its first moments and of what it imports start one
of their own. `command_of` does the same for a command that a shell starts.
"""

import atexit
import builtins
import contextlib
import faulthandler
import gc
import importlib
import importlib.util
import io
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path

_IMPORTED = (
    "oz.cli",
    "oz.asyncio",
    "oz.journal",
    "oz.services.forwarder",
    "oz.services.recorder",
    "rich.table",
)
"""What programs need not import again: 30 to 100 ms of work for each, which costs a fork 1 ms more."""

_LENGTH = 8
"""Bytes of each number that goes through a pipe."""

_MOST = 1 << 20
"""Bytes of a request: one message, so that several processes may ask through one socket."""

_COMMAND = """\
#!{python} -IS
import marshal, os, signal, socket, sys

mine, theirs = os.pipe()
environment = dict(os.environb)
link = socket.socket(fileno=int(environment.pop(b"FORKED_BY")))
words = [b"-m", b"{module}", *map(os.fsencode, sys.argv[1:])]
request = {{"arguments": words, "cwd": os.getcwdb(), "environment": environment, "session": False}}
socket.send_fds(link, [marshal.dumps(request)], [0, 1, 2, theirs])
os.close(theirs)
pid = int.from_bytes(os.read(mine, {length}), "big")
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
status = os.read(mine, {length})
code = os.waitstatus_to_exitcode(int.from_bytes(status, "big")) if status else -signal.SIGKILL
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def _number(value):
    return value.to_bytes(_LENGTH, "big", signed=True)


def _value(number):
    return int.from_bytes(number, "big", signed=True)


class _Parent:
    """The process that is forked, as the tests see it."""

    def __init__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        atexit.register(self._end)

    def fork(self, request, descriptors):
        """Have it forked; a pipe from which the process id comes, and at its end its status."""
        mine, theirs = os.pipe()
        try:
            socket.send_fds(self._socket, [marshal.dumps(request)], [*descriptors, theirs])
        finally:
            os.close(theirs)
        return mine

    def fileno(self):
        """Give the descriptor through which any process that inherits it may have it forked."""
        return self._socket.fileno()

    def _end(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # whoever else has it
        self._socket.close()
        self._process.wait()


_parents = {}
_starting = threading.Lock()


def _parent():
    with _starting:
        # A test may have forked: the copy asks a process of its own.
        process = os.getpid()
        if process not in _parents:
            _parents[process] = _Parent()
        return _parents[process]


class ForkedProgram(subprocess.Popen):
    """`subprocess.Popen([sys.executable, …])`, begun by a fork of a process that has imported oz.

    Args:
        arguments: what follows the interpreter: a script, `-m` and a module, or `-c` and code; then
            its arguments.
        options: those of `subprocess.Popen` for pipes, text, `cwd`, `env` and `start_new_session`.
    """

    def __init__(self, arguments, **options):
        self._status = None
        super().__init__(arguments, **options)

    def _execute_child(
        self,
        args,
        executable,
        preexec_fn,
        close_fds,
        pass_fds,
        cwd,
        env,
        startupinfo,
        creationflags,
        shell,
        *rest,
    ):
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *others = rest
        assert not any((executable, preexec_fn, pass_fds, shell))
        request = {
            "arguments": [os.fsencode(word) for word in args],
            "cwd": os.fsencode(cwd or os.getcwd()),
            "environment": {
                os.fsencode(name): os.fsencode(value)
                for name, value in (os.environ if env is None else env).items()
            },
            "session": others[5],
        }
        given = [
            own if one == -1 else one
            for one, own in zip((p2cread, c2pwrite, errwrite), (0, 1, 2), strict=True)
        ]
        self._status = _parent().fork(request, given)
        self.pid = _value(self._read())
        assert self.pid > 0, "the process that is forked is gone"
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _read(self):
        got = b""
        while len(got) < _LENGTH and (more := os.read(self._status, _LENGTH - len(got))):
            got += more
        return got

    def _try_wait(self, wait_flags):
        # Not by `select`, which takes no descriptor above 1,023: tests with very many sockets may have those.
        poller = select.poll()
        poller.register(self._status, select.POLLIN)
        if not poller.poll(0 if wait_flags & os.WNOHANG else None):
            return 0, 0
        status = self._read()
        os.close(self._status)
        # Without a status: whoever was to tell it is gone.
        return self.pid, _value(status) if status else signal.SIGKILL

    def _internal_poll(self, _deadstate=None, **_):
        if self.returncode is None and self._status is not None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def command_of(module, directory):
    """Write a command into a directory that a shell may have on its `PATH`; give what it is to inherit.

    The command is `python -m MODULE`, forked from a process that has imported oz. It passes on
    what it is given: its streams, directory, environment, SIGINT and SIGTERM. When it dies, so does what is
    forked.

    Args:
        module: what to run, and the name of the command.
        directory: where to write the command; it must be there.

    Returns:
        The descriptor and the environment that the shell must be given besides.
    """
    command = directory / module
    command.write_text(_COMMAND.format(python=sys.executable, module=module, length=_LENGTH))
    command.chmod(0o755)
    descriptor = _parent().fileno()
    return descriptor, {"FORKED_BY": str(descriptor)}


def _serve(link):
    """Fork for each request, and tell how each fork ended; the request in a fork, None at the end."""
    waker, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    pipes = {}
    while True:
        # The end to write to is ready when nobody has the end to read from any more.
        ready, _, _ = select.select([link, waker, *pipes.values()], [], [])
        for pid, pipe in pipes.items():
            if pipe in ready:
                os.kill(pid, signal.SIGKILL)
        if waker in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(waker, 4096)
            _tell_ends(pipes)
        if link in ready:
            body, descriptors, _, _ = socket.recv_fds(link, _MOST, 4)
            if not body:
                return None
            request = marshal.loads(body)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                link.close()
                for one in (waker, woken, *pipes.values(), descriptors.pop()):
                    os.close(one)
                for one, own in zip(descriptors, (0, 1, 2), strict=True):
                    os.dup2(one, own)
                    os.close(one)
                return request
            *given, pipe = descriptors
            for one in given:
                os.close(one)
            pipes[pid] = pipe
            os.write(pipe, _number(pid))


def _tell_ends(pipes):
    while pipes:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        pipe = pipes.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(pipe, _number(status))
        os.close(pipe)


def _become(request):
    """Make of this process what an interpreter is when it has just begun; the code to run."""
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environb.update(request["environment"])
    # No program of the tests differs in what an interpreter reads at its start, but in these two.
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    if os.environ.get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    _open_streams(unbuffered)
    # Whoever gives up waiting for it sends SIGABRT: it says where each of its threads is.
    faulthandler.enable()
    first, *words = map(os.fsdecode, request["arguments"])
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    names = {
        "__name__": "__main__",
        "__builtins__": builtins,
        "__doc__": None,
        "__package__": None,
        "__spec__": None,
    }
    if first == "-c":
        sys.argv = ["-c", *words[1:]]
        sys.path.insert(0, "")
        code = compile(words[0], "<string>", "exec")
    elif first == "-m":
        sys.path.insert(0, os.getcwd())
        # As long as Python looks for the module; what the package does in its first moments goes by it.
        sys.argv, sys.orig_argv = ["-m", *words[1:]], [sys.executable, first, *words]
        if words[0] == "oz":
            importlib.reload(sys.modules["oz.starting"])
        spec = importlib.util.find_spec(f"{words[0]}.__main__")
        sys.argv = [spec.origin, *words[1:]]
        names |= {"__spec__": spec, "__package__": spec.parent, "__file__": spec.origin}
        code = spec.loader.get_code(spec.name)
    else:
        sys.argv = [first, *words]
        sys.path.insert(0, str(Path(first).parent))
        names["__file__"] = first
        code = compile(Path(first).read_bytes(), first, "exec")
    main = sys.modules["__main__"].__dict__
    main.clear()
    main.update(names)
    return code, main


def _open_streams(unbuffered):
    def opened(descriptor, mode, old, lined):
        raw = open(  # noqa: SIM115
            descriptor, f"{mode}b", buffering=0 if unbuffered and mode == "w" else -1, closefd=False
        )
        return io.TextIOWrapper(
            raw,
            encoding=old.encoding,
            errors=old.errors,
            newline="\n" if mode == "w" else None,
            line_buffering=lined,
            write_through=unbuffered,
        )

    sys.stdin = sys.__stdin__ = opened(0, "r", sys.stdin, False)
    sys.stdout = sys.__stdout__ = opened(1, "w", sys.stdout, os.isatty(1))
    sys.stderr = sys.__stderr__ = opened(2, "w", sys.stderr, True)


class _End:
    """The end of a program: what it left is gone, and its modules are left to the system.

    Python takes down a thousand modules, which are copied for it from the process that was forked. Where more
    than modules may be lost by it, the interpreter ends in full: while threads go on, whose last words
    would not be shown, where something cannot be written, and where somebody measures coverage.
    """

    def __init__(self):
        self._status = None
        # The globals of this module will be those of the program.
        self._os, self._sys, self._threading, self._collect = os, sys, threading, gc.collect
        # Before anybody else: it comes last.
        atexit.register(self._end)

    def of(self, code, names):
        """Run a program, and keep the status that it ends with."""
        try:
            exec(code, names)
            self._status = 0
        except SystemExit as error:
            self._status = 0 if error.code is None else error.code if isinstance(error.code, int) else 1
            raise
        except Exception:
            self._status = 1
            raise

    def _end(self):
        if self._status is None or self._threading.active_count() > 1 or "coverage" in self._sys.modules:
            return
        # What is nobody's any more says now what it says at its end.
        self._sys.modules["__main__"].__dict__.clear()
        self._collect()
        try:
            self._sys.stdout.flush()
            self._sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            return  # Python tells of it, by its status too
        self._os._exit(self._status & 0xFF)


def _main(descriptor):
    end = _End()
    # The directory of this file is not the program's.
    del sys.path[0]
    # Nor is what the test that came first in this process had just ignored: all later programs would too.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(descriptor)))
    if request is not None:
        end.of(*_become(request))


if __name__ == "__main__":
    _main(*sys.argv[1:])
