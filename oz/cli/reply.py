"""`oz reply`: reply to requests with a command, a text, or the payload of the request."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import ceil
from typing import Any

import click

import oz
from oz.cli.joining import joined, joining_options, print_ready
from oz.cli.options import Number, Whole, dialect_option, group_option, parse_all
from oz.cli.output import print_status, print_stderr, quiet_option
from oz.cli.payloads import BadPayload, EncodedPayload, PayloadForm, payload_option
from oz.cli.rights import check_right
from oz.cli.waiting import await_signal
from oz.escaping import printable, raw_text
from oz.system import POLLIN, make_poll

MAX_OUTPUT = 64 << 20
"""Maximum size of the output of one run of the command, in bytes. A run with a larger output fails."""

_CHUNK = 1 << 16


class CommandFailed(Exception):
    """A run of the command has failed. The text of the error is the reason."""


class ShellCommand:
    """Command that `sh` runs for each request. Several runs may be active at the same time."""

    def __init__(self, text: str, timeout: float) -> None:
        """Create a command with a timeout in seconds for each run."""
        self._text = text
        self._timeout = timeout
        self._guard = threading.Lock()
        self._running: set[int] = set()
        self._is_closed = False

    def run(self, payload: bytes, environment: Mapping[bytes, bytes]) -> bytes:
        """Run the command and return its output.

        Args:
            payload: bytes for the standard input of the command.
            environment: variables that are added to the environment of this process.

        Raises:
            CommandFailed: the command cannot be started, exceeds the timeout, writes more than `MAX_OUTPUT` bytes, or
                exits with another code than 0.
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
            how = f"exited with {code}" if code > 0 else f"was killed by signal {-code}"
            raise CommandFailed(f"the command {how}")
        return written

    def end(self) -> None:
        """Kill all runs, and start no further runs."""
        with self._guard:
            self._is_closed = True
            for pid in self._running:
                _kill(pid)

    def _start(self, stdin: Any, environment: Mapping[bytes, bytes]) -> subprocess.Popen[bytes]:
        with self._guard:
            if self._is_closed:
                raise CommandFailed("the responder is closing")
            try:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", self._text],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    env={**os.environb, **environment},
                    # In a new session, Ctrl-C does not reach the command, and `killpg` also reaches its children.
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
        left = MAX_OUTPUT
        while True:
            if not poll.poll(max(0, ceil(1000 * (ends - time.monotonic())))):
                raise self._timed_out()
            chunk = os.read(descriptor, _CHUNK)
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
            left -= len(chunk)
            if left < 0:
                raise CommandFailed(f"the command wrote more than {MAX_OUTPUT >> 20} MiB, and was killed")
            if time.monotonic() >= ends:
                raise self._timed_out()

    def _wait(self, process: subprocess.Popen[bytes], ends: float) -> int:
        try:
            return process.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self._timed_out() from None

    def _timed_out(self) -> CommandFailed:
        return CommandFailed(f"the command took longer than {self._timeout:g} s, and was killed")


_OWN = "oz-"  # Prefix of the names of headers that oz adds.


def environment_of(subject: str, headers: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return the subject and the headers as environment variables.

    The variable OZ_SUBJECT is the subject. A header trace-id becomes the variable OZ_HEADER_TRACE_ID. Forwarders add
    headers with bytes, whose names begin with `oz-`, to each request. These bytes are written in hexadecimal.

    Raises:
        CommandFailed: a value has a zero byte, which a variable cannot contain.
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


_HELP = """Reply to the requests whose subject matches PATTERN.

`oz reply` joins a bus as a node. For each request, sh runs COMMAND. The standard input of COMMAND is the payload. The
variable OZ_SUBJECT is the subject, and the variable OZ_HEADER_TRACE_ID is the header trace-id. The output of COMMAND,
without a line break at the end, is the reply. If COMMAND exits with another code than 0, runs longer than --timeout or
writes more than 64 MiB, the reason is printed on stderr and sent to the requester. --echo replies with the payload of
the request, and --text with a fixed text.

With --group each request goes to one member of the group. Up to --concurrency requests of different subjects are
handled at the same time. Requests of one subject are handled one after the other. `oz reply` prints one line when it
is ready. At Ctrl-C or SIGTERM it prints its counts and exits 0.

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
    "--command", "shell_command", metavar="COMMAND", help="The command that sh runs for each request."
)
@click.option("--echo", is_flag=True, help="Reply with the payload of the request.")
@click.option("--text", metavar="TEXT", help="Reply with this text.")
@group_option("Each request goes to one of the nodes of this group.")
@click.option("--concurrency", type=Whole(1, 1_000), default=1, metavar="N",
              help="Maximum number of requests that are handled at the same time.  [default: 1]")  # fmt: skip
@click.option("-t", "--timeout", type=Number(0, 86_400, above=True), default=10.0, metavar="SECONDS",
              help="Maximum time of one run of the command.  [default: 10]")  # fmt: skip
@dialect_option("the pattern, if it has no dialect name")
@payload_option()
@joining_options
@quiet_option
@click.pass_context
def reply(
    ctx: click.Context,
    /,
    pattern: str,
    shell_command: str | None,
    echo: bool,
    text: str | None,
    group: str | None,
    concurrency: int,
    timeout: float,
    dialect: str,
    form: str,
    **joining: Any,
) -> None:
    """Reply to requests; `_HELP` is the text of `--help`."""
    if [shell_command is not None, echo, text is not None].count(True) != 1:
        raise click.UsageError("give one of --command, --echo and --text")
    patterns = parse_all([pattern], dialect)
    payloads = PayloadForm(form)
    command = ShellCommand(shell_command or "", timeout)
    answer = _command_answer(command, payloads) if shell_command is not None else _echo
    if text is not None:
        constant = payloads.read(raw_text(text))
        answer = lambda _message: constant  # noqa: E731
    service = _Service(ctx, answer)
    # One more thread than runs of the command, so that the node can always run another handler.
    arguments: dict[str, Any] = {"dialect": dialect, "codec": payloads.codec}
    threads = {"threads": concurrency + 1}
    with (
        joined(ctx, joining, node_options=threads, **arguments) as node,
        _failures_not_logged(),
        await_signal() as wait_for_end,
    ):
        for item in patterns:
            if item.is_literal:
                check_right(node, "reply", str(item.text).encode())
        node.subscribe(patterns, handler=service.handle, group=group, concurrency=concurrency)
        print_ready(ctx, node)
        try:
            wait_for_end()
            node.close()
        finally:
            command.end()
    service.print_counts()


@contextmanager
def _failures_not_logged() -> Iterator[None]:
    """In a `with` block, drop the node's log records about failed requests, which the command prints itself."""

    def is_other_record(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], (CommandFailed, BadPayload)))

    logger = logging.getLogger("oz.node")
    logger.addFilter(is_other_record)
    try:
        yield
    finally:
        logger.removeFilter(is_other_record)


class _Service:
    """Handler of requests, which counts them. The threads of the node call the handler."""

    def __init__(self, ctx: click.Context, answer: Answer) -> None:
        self._ctx, self._answer = ctx, answer
        self._guard = threading.Lock()
        self._counts: Counter[str] = Counter()

    def handle(self, message: oz.Message) -> None:
        """Reply to a request; count a message that is not a request."""
        if message.reply_to is None:
            return self._count("passed")
        try:
            message.reply(self._answer(message))
        except (CommandFailed, BadPayload) as error:
            self._count("failed")
            print_stderr(self._ctx, f"{printable(message.subject)}: {printable(str(error))}")
            # The node sends the text of the exception to the requester.
            raise
        self._count("answered")

    def print_counts(self) -> None:
        counts = self._counts
        passed = f"; {counts['passed']} messages were not requests" if counts["passed"] else ""
        print_status(self._ctx, f"{counts['answered']} requests answered, {counts['failed']} failed{passed}")

    def _count(self, name: str) -> None:
        with self._guard:
            self._counts[name] += 1


def _command_answer(command: ShellCommand, payloads: PayloadForm) -> Answer:
    def answer(message: oz.Message) -> Any:
        payload = payloads.write(message.payload)
        written = command.run(payload, environment_of(message.subject, message.headers))
        return payloads.read(written if payloads.name == "bytes" else written.removesuffix(b"\n"))

    return answer


def _echo(message: oz.Message) -> Any:
    return EncodedPayload(message.frames[1])
