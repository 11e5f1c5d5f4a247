"""Processes of one run: a publisher, subscribers and a proxy for each subscriber."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from faults import oracle
from support.fault_proxy import FaultProxy
from support.waiting import until

TESTS = Path(__file__).parents[1]
DEADLINE = 160.0
"""Seconds. It only ends a run that hangs."""


class Program:
    """A process that is driven by JSON lines."""

    def __init__(self, module, settings, errors):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
        with open(errors, "ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                text=True,
            )
        self._errors = errors
        self._replies = SimpleQueue()
        self._kept = []
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stdout):
        for line in stdout:
            self._replies.put(json.loads(line))
        stdout.close()
        self._replies.put(None)

    def send(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def reply(self, role=None):
        """Return the next reply, of a role if one is named."""
        for at, item in enumerate(self._kept):
            if item.get("role") == role:
                return self._kept.pop(at)
        ends = time.monotonic() + DEADLINE
        while True:
            try:
                found = self._replies.get(timeout=max(0, ends - time.monotonic()))
            except Empty:
                raise AssertionError(f"no reply in {DEADLINE:g} s; {self.errors()}") from None
            assert found is not None, f"the process has ended; {self.errors()}"
            if found.get("role") == role:
                return found
            self._kept.append(found)

    def ask(self, **command):
        self.send(**command)
        return self.reply(command.get("role"))

    def errors(self):
        return Path(self._errors).read_text()[-4_000:]

    def signal(self, number):
        os.kill(self.process.pid, number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Wait for the end of the process; kill it if it hangs."""
        try:
            self.process.wait(DEADLINE)
        finally:
            self.close()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(DEADLINE)
        with suppress(OSError):
            self.process.stdin.close()


class Reader:
    """One subscriber of a run.

    Attributes:
        name: of its log.
        proxy: between the subscriber and the publisher.
        program: its process.
        result: counters at its end.
    """

    def __init__(self, name, proxy, path):
        self.name, self.proxy, self.path = name, proxy, path
        self.program = self.result = None

    def ask(self, do):
        return self.program.ask(do=do, role=self.name)

    def events(self):
        return oracle.read_log(self.path)

    def pause(self):
        """Stop the calls of `receive`."""
        self.ask("pause")

    def go(self):
        self.program.send(do="go", role=self.name)

    def drain(self):
        self.program.send(do="drain", role=self.name)

    def finish(self):
        """Wait for the end of a drain; return the events."""
        self.result = self.program.reply(self.name)
        return self.events()


class Run:
    """A publisher and its subscribers. Use it in a `with` block."""

    def __init__(self, directory, kind="sync", *, size=100, subjects=7, **arguments):
        self.directory, self.kind = Path(directory), kind
        self._stack = ExitStack()
        self.programs, self.readers = [], []
        self._settings = {"size": size, "subjects": subjects, "arguments": arguments}
        self.runs = 0
        self._bind = "tcp://127.0.0.1:*"
        self.publisher = None
        self.start_publisher()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.close()
        self._stack.close()

    def start_publisher(self):
        """Start the publisher, at the endpoints of an earlier one."""
        self.runs += 1
        settings = self._settings | {"kind": self.kind, "run": self.runs, "bind": self._bind}
        self.publisher = self._start("faults.publishing", settings, "publisher")
        found = self.publisher.reply()
        self._bind = self.endpoint = found["endpoint"]
        self.links = found["links"]

    def _start(self, module, settings, name):
        program = Program(module, settings, self.directory / f"{name}.errors")
        self.programs.append(program)
        return program

    def proxy(self, upstream=None):
        return self._stack.enter_context(FaultProxy(upstream or self.links))

    def role(self, name, *, has_handler=False, delivery=None, options=None, **subscription):
        """Describe a subscriber behind a proxy of its own.

        Args:
            name: of the subscriber, and of its log.
            has_handler: whether its subscription has a handler.
            delivery: arguments of `Delivery`.
            options: arguments of `Options`.
            subscription: arguments of `subscribe`.
        """
        reader = Reader(name, self.proxy(), self.directory / f"{name}.log")
        reader.role = {
            "name": name,
            "endpoint": self._bind,
            "links": reader.proxy.endpoint,
            "filtering": "publisher",
            "log": str(reader.path),
            "has_handler": has_handler,
            "delivery": delivery or {},
            "options": options or {},
            "subscription": subscription,
        }
        self.readers.append(reader)
        return reader

    def start(self, kind, *readers):
        """Start a process with subscribers; `ready` waits for them."""
        settings = {"kind": kind, "roles": [reader.role for reader in readers]}
        program = self._start("faults.subscribing", settings, readers[0].name)
        for reader in readers:
            reader.program = program
        return program

    def ready(self, *readers):
        """Wait until the publisher has answered the subscribers; all of them by default."""
        for reader in readers or self.readers:
            assert reader.program.reply(reader.name)["ready"]

    # publisher

    def published(self):
        return self.info()["published"]

    def info(self):
        return self.publisher.ask(do="info")

    def until_published(self, more):
        """Wait until the publisher has published more messages."""
        goal = self.published() + more
        until(lambda: self.published() >= goal, DEADLINE)

    def settle(self, sessions=None):
        """Wait until no session has pending messages, and the sessions are UP."""

        def is_settled():
            found = self.info()["sessions"]
            if sessions is not None and len(found) != sessions:
                return False
            return all(item["state"] == "up" and not item["pending"] for item in found)

        until(is_settled, DEADLINE)

    def finish(self, *readers):
        """Drain subscribers; return the events of each."""
        chosen = readers or self.readers
        for item in chosen:
            item.drain()
        return [item.finish() for item in chosen]


def stop(program):
    program.signal(signal.SIGSTOP)


def go_on(program):
    program.signal(signal.SIGCONT)
