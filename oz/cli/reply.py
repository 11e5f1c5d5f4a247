"""`oz reply`: answer requests with a command, a text, or what they said."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import ceil
from typing import Any

import click

import oz
from oz.cli.joining import joined, joining_options, say_ready
from oz.cli.options import Number, Whole, checked_group, dialect_option, parse_all
from oz.cli.output import quiet_option, say, say_status
from oz.cli.payloads import BadPayload, Encoded, PayloadForm, payload_option
from oz.cli.rights import OwnRights
from oz.cli.waiting import await_signal
from oz.escaping import printable
from oz.system import POLLIN, make_poll

MOST_OUTPUT = 64 << 20
"""Bytes that a command may write for one request."""

_CHUNK = 1 << 16


class CommandFailed(Exception):
    """There is no answer; says why, in a few words."""


class ShellCommand:
    """A command of the user's, to be run by `sh` any number of times, also at once."""

    def __init__(self, text: str, timeout: float) -> None:
        """Take what `sh -c` gets.

        Args:
            text: the command.
            timeout: seconds that one run may take.
        """
        if os.name != "posix":
            raise CommandFailed(f"a command needs sh and its processes, and {os.name} is no POSIX system")
        self._text = text
        self._timeout = timeout
        self._guard = threading.Lock()
        self._running: set[int] = set()
        self._is_ended = False

    def run(self, payload: bytes, environment: Mapping[bytes, bytes]) -> bytes:
        """Run it once; give what it wrote.

        Args:
            payload: is its stdin.
            environment: variables beside those of this process.

        Raises:
            CommandFailed: it cannot be started, takes too long, writes too much, or ends with another code
                than 0.
        """
        ends = time.monotonic() + self._timeout
        with tempfile.TemporaryFile() as stdin:
            stdin.write(payload)
            stdin.seek(0)
            process = self._start(stdin, environment)
        try:
            written = self._collect(process, ends)
            code = self._wait(process, ends)
        except BaseException:
            _kill(process.pid)
            process.wait()
            raise
        finally:
            with self._guard:
                self._running.discard(process.pid)
            process.stdout.close()  # type: ignore[union-attr]
        if code:
            how = f"ended with {code}" if code > 0 else f"was ended by {_signal_name(-code)}"
            raise CommandFailed(f"the command {how}")
        return written

    def end(self) -> None:
        """Kill those that run, and start no more."""
        with self._guard:
            self._is_ended = True
            for pid in self._running:
                _kill(pid)

    def _start(self, stdin: Any, environment: Mapping[bytes, bytes]) -> subprocess.Popen[bytes]:
        with self._guard:
            if self._is_ended:
                raise CommandFailed("this service ends")
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", self._text],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    env={**os.environb, **environment},
                    # All that it starts is killed with it, and Ctrl-C is for this process only.
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                raise CommandFailed(f"the command cannot be started: {reason}") from None
            self._running.add(process.pid)
            return process

    def _collect(self, process: subprocess.Popen[bytes], ends: float) -> bytes:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        poll = make_poll()
        poll.register(descriptor, POLLIN)
        chunks: list[bytes] = []
        left = MOST_OUTPUT
        while True:
            if not poll.poll(max(0, ceil(1000 * (ends - time.monotonic())))):
                raise self._too_long()
            chunk = os.read(descriptor, _CHUNK)
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
            left -= len(chunk)
            if left < 0:
                raise CommandFailed(f"the command wrote more than {MOST_OUTPUT >> 20} MiB, and was killed")
            if time.monotonic() >= ends:
                raise self._too_long()

    def _wait(self, process: subprocess.Popen[bytes], ends: float) -> int:
        try:
            return process.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self._too_long() from None

    def _too_long(self) -> CommandFailed:
        return CommandFailed(f"the command took longer than {self._timeout:g} s, and was killed")


_OWN = "oz-"  # how the names of headers begin that oz adds


def environment_of(subject: str, headers: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return subject and headers as variables: OZ_SUBJECT, and OZ_HEADER_TRACE_ID for a header trace-id.

    Bytes in headers of oz itself, which may be any, are hexadecimal: a forwarder adds some to each request.

    Raises:
        CommandFailed: one of them holds a zero byte, which no variable can.
    """
    named: dict[str, Any] = {"OZ_SUBJECT": subject}
    for name, value in headers.items():
        named[f"OZ_HEADER_{re.sub('[^A-Z0-9]', '_', name.upper())}"] = _shown(name, value)
    variables = {name.encode(): _bytes(value) for name, value in named.items()}
    for variable, held in variables.items():
        if b"\0" in held:
            raise CommandFailed(f"{variable.decode()} would hold a zero byte, which no variable can")
    return variables


def _shown(name: str, value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) and name.startswith(_OWN) else value


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if value is None or isinstance(value, bool):
        return {None: b"", True: b"true", False: b"false"}[value]
    return str(value).encode(errors="surrogateescape")


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_HELP = """Reply to the requests whose subject matches PATTERN.

Joins a bus as a node. sh runs --command for each request. Its standard input is the payload, OZ_SUBJECT the
subject, and OZ_HEADER_TRACE_ID a header such as trace-id. Its output, without a line break at the end, is the
reply. If it exits with another code than 0, runs longer than --timeout or writes more than 64 MiB, the reason
goes to stderr and to the requester. --echo replies with the payload of the request, --text with a fixed text.

With --group one member of the group gets each request. --concurrency requests of different subjects are
handled at once; requests of one subject are handled one after the other. The command prints one line when it
is ready. Ctrl-C and SIGTERM end it: it prints its counts and exits 0.

\b
Examples:
  oz reply 'time.now' --command date
  oz reply 'text.*' --command 'tr a-z A-Z' --group upper --concurrency 4
  oz reply 'file.size' --command 'wc -c' --payload bytes
  oz reply 'echo.>' --echo
"""

Answer = Callable[[oz.Message], Any]


@click.command(help=_HELP, short_help="Reply to requests with a command or a text.")
@click.argument("pattern")
@click.option(
    "--command", "text_of_command", metavar="COMMAND", help="The command that sh runs for each request."
)
@click.option("--echo", is_flag=True, help="Reply with the payload of the request.")
@click.option("--text", metavar="TEXT", help="Reply with this text.")
@click.option("-g", "--group", metavar="NAME", callback=checked_group,
              help="Of the nodes that name this group, one gets each request.")  # fmt: skip
@click.option("--concurrency", type=Whole(1, 1_000), default=1, metavar="N",
              help="Subjects whose requests are handled at once.  [default: 1]")  # fmt: skip
@click.option("-t", "--timeout", type=Number(0, 86_400, above=True), default=10.0, metavar="SECONDS",
              help="Time that one run of the command may take.  [default: 10]")  # fmt: skip
@dialect_option("a pattern that names none")
@payload_option()
@joining_options
@quiet_option
@click.pass_context
def reply(
    ctx: click.Context,
    /,
    pattern: str,
    text_of_command: str | None,
    echo: bool,
    text: str | None,
    group: str | None,
    concurrency: int,
    timeout: float,
    dialect: str,
    form: str,
    **joining: Any,
) -> None:
    """Answer; the text of the help is `_HELP`."""
    if [text_of_command is not None, echo, text is not None].count(True) != 1:
        raise click.UsageError("give one of --command, --echo and --text")
    patterns = parse_all([pattern], dialect)
    rights = OwnRights(joining["security"], "reply")
    for one in patterns:
        if one.is_literal:
            rights.check(str(one.text).encode())
    payloads = PayloadForm(form)
    command = ShellCommand(text_of_command or "", timeout)
    answer: Answer = _Ran(command, payloads) if text_of_command is not None else _echoed
    if text is not None:
        answer = _always(payloads.read(text.encode(errors="surrogateescape")))
    service = _Service(ctx, answer)
    # One thread more than may wait for commands.
    arguments: dict[str, Any] = {"dialect": dialect, "codec": payloads.codec}
    threads = {"threads": concurrency + 1}
    with (
        joined(ctx, joining, node_options=threads, **arguments) as node,
        _said_once(),
        await_signal() as wait_for_end,
    ):
        node.subscribe(patterns, handler=service.handle, group=group, concurrency=concurrency)
        say_ready(ctx, node)
        try:
            wait_for_end()
            node.close()
        finally:
            command.end()
    service.say_what_was_done()


@contextmanager
def _said_once() -> Iterator[None]:
    """Keep the log of the node from saying again why there was no answer."""

    def is_news(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], (CommandFailed, BadPayload)))

    logger = logging.getLogger("oz.node")
    logger.addFilter(is_news)
    try:
        yield
    finally:
        logger.removeFilter(is_news)


class _Service:
    """Answers, and counts; its threads are the node's."""

    def __init__(self, ctx: click.Context, answer: Answer) -> None:
        self._ctx, self._answer = ctx, answer
        self._guard = threading.Lock()
        self._answered = self._failed = self._passed = 0

    def handle(self, message: oz.Message) -> None:
        """Answer a request; what is none is passed over."""
        if message.reply_to is None:
            self._count(passed=1)
            return
        try:
            message.reply(self._answer(message))
        except (CommandFailed, BadPayload) as error:
            self._count(failed=1)
            say(self._ctx, f"{printable(message.subject)}: {printable(str(error))}")
            # The node tells the requester, and whoever watches the bus.
            raise
        self._count(answered=1)

    def say_what_was_done(self) -> None:
        """Say it in one line."""
        with self._guard:
            line = f"{self._answered} requests answered, {self._failed} failed"
            if self._passed:
                line += f"; {self._passed} messages were no requests"
        say_status(self._ctx, line)

    def _count(self, *, answered: int = 0, failed: int = 0, passed: int = 0) -> None:
        with self._guard:
            self._answered += answered
            self._failed += failed
            self._passed += passed


class _Ran:
    """Has a command answer."""

    def __init__(self, command: ShellCommand, payloads: PayloadForm) -> None:
        self._command, self._payloads = command, payloads

    def __call__(self, message: oz.Message) -> Any:
        payload = self._payloads.write(message.payload)
        written = self._command.run(payload, environment_of(message.subject, message.headers))
        if self._payloads.name != "bytes":
            written = written.removesuffix(b"\n")
        return self._payloads.read(written)


def _echoed(message: oz.Message) -> Any:
    return Encoded(message.frames[1])


def _always(value: Any) -> Answer:
    return lambda _message: value
