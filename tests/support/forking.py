"""Python programs in processes of their own, forked from one that has imported oz already.

A program that imports oz works for a quarter of a second before it does anything, and tests start a
thousand of them. `ForkedProgram` is `subprocess.Popen` for `python SCRIPT …`, `python -m MODULE …` and
`python -c CODE …`: what it starts is a fork of a waiting process, which runs the program as `__main__` and
ends as an interpreter does. Tests of how an interpreter begins, of signals in its first moments and of what
it imports start one of their own.
"""

import atexit
import builtins
import contextlib
import faulthandler
import gc
import importlib
import importlib.util
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

_LENGTH = 8
"""Bytes of each number that goes through a socket or a pipe."""


def _number(value):
    return value.to_bytes(_LENGTH, "big", signed=True)


def _value(number):
    return int.from_bytes(number, "big", signed=True)


class _Parent:
    """The process that is forked, as the tests see it."""

    def __init__(self, module):
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        atexit.register(self._end)

    def fork(self, request, descriptors):
        """Have it forked; a pipe from which the process id comes, and at its end its status."""
        body = json.dumps(request).encode()
        mine, theirs = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._socket, [_number(len(body))], [*descriptors, theirs])
                self._socket.sendall(body)
        finally:
            os.close(theirs)
        return mine

    def _end(self):
        self._socket.close()
        self._process.wait()


_parents = {}
_starting = threading.Lock()


def _parent(module):
    with _starting:
        # A test may have forked: the copy asks a process of its own.
        key = (os.getpid(), module)
        if key not in _parents:
            _parents[key] = _Parent(module)
        return _parents[key]


class ForkedProgram(subprocess.Popen):
    """`subprocess.Popen([sys.executable, …])`, begun by a fork of a process that has imported a module.

    Args:
        arguments: what follows the interpreter: a script, `-m` and a module, or `-c` and code; then
            its arguments.
        imported: the module that is imported already.
        options: those of `subprocess.Popen` for pipes, text, `cwd`, `env` and `start_new_session`.
    """

    def __init__(self, arguments, imported="oz", **options):
        self._imported = imported
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
            "arguments": [os.fsencode(word).decode("latin-1") for word in args],
            "cwd": os.fspath(cwd or os.getcwd()),
            "environment": dict(os.environ if env is None else env),
            "session": others[5],
        }
        given = [
            own if one == -1 else one
            for one, own in zip((p2cread, c2pwrite, errwrite), (0, 1, 2), strict=True)
        ]
        self._status = _parent(self._imported).fork(request, given)
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
        ready, _, _ = select.select([link, waker], [], [])
        if waker in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(waker, 4096)
            _tell_ends(pipes)
        if link in ready:
            head, descriptors, _, _ = socket.recv_fds(link, _LENGTH, 4)
            if not head:
                return None
            request = json.loads(_exactly(link, _value(head)))
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


def _exactly(link, size):
    got = b""
    while len(got) < size:
        more = link.recv(size - len(got))
        if not more:
            raise SystemExit("a request ended in the middle")
        got += more
    return got


def _become(request):
    """Make of this process what an interpreter is when it has just begun; the code to run."""
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    # No program of the tests differs in what an interpreter reads at its start, but in this.
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    _open_streams(unbuffered)
    # Whoever gives up waiting for it sends SIGABRT: it says where each of its threads is.
    faulthandler.enable()
    first, *words = [os.fsdecode(word.encode("latin-1")) for word in request["arguments"]]
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


def _main(module, descriptor):
    # The directory of this file is not the program's.
    del sys.path[0]
    # Nor is what the test that came first in this process had just ignored: all later programs would too.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    importlib.import_module(module)
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(descriptor)))
    if request is not None:
        code, names = _become(request)
        exec(code, names)


if __name__ == "__main__":
    _main(*sys.argv[1:])
