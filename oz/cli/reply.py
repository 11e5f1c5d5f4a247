"""`oz reply`: answer requests with a command, a text, or what they said."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import click

import oz
from oz.cli.exits import say
from oz.cli.joining import dialect_on_bus, joined, joining_options, say_ready
from oz.cli.node_payloads import BadPayload, Encoded, Form, payload_option
from oz.cli.options import Number, Whole, checked_group, dialect_option, parse_all
from oz.cli.output import printable
from oz.cli.shell_command import CommandFailed, ShellCommand, environment_of
from oz.cli.signals import ended_by_signals

_HELP = """Answer the requests whose subject matches PATTERN.

Joins a bus as a node. --command is run by sh for each request. It gets the payload on its standard input and
nowhere else, the subject as OZ_SUBJECT, and a header such as trace-id as OZ_HEADER_TRACE_ID. What it writes,
without a line break at the end, is the answer. When it ends with another code than 0, takes longer than
--timeout or writes more than 64 MiB, that is said on stderr, and whoever asked is told. --echo answers with
the payload that came, --text always with the same.

With --group one member of the group gets each request. --concurrency is how many are answered at once.
It prints one line when it is ready, ends with Ctrl-C or SIGTERM, says what it did, and exits 0.

\b
Examples:
  oz reply 'time.now' --command date
  oz reply 'text.upper' --command 'tr a-z A-Z' --group upper --concurrency 4
  oz reply 'file.size' --command 'wc -c' --payload bytes
  oz reply 'echo.>' --echo
"""

Answer = Callable[[oz.Message], Any]


@click.command(help=_HELP, short_help="Answer requests with a command.")
@click.argument("pattern")
@click.option("--command", "text_of_command", metavar="COMMAND", help="What sh is to run for each request.")
@click.option("--echo", is_flag=True, help="Answer with the payload that came.")
@click.option("--text", metavar="TEXT", help="Answer with this.")
@click.option("--group", metavar="NAME", callback=checked_group,
              help="Of the nodes that name this group, one gets each request.")  # fmt: skip
@click.option("--concurrency", type=Whole(1, 1_000), default=1, metavar="N",
              help="Requests that are answered at once.  [default: 1]")  # fmt: skip
@click.option("--timeout", type=Number(0, 86_400, above=True), default=10.0, metavar="SECONDS",
              help="Time that one run of the command may take.  [default: 10]")  # fmt: skip
@dialect_option("a pattern that names none")
@payload_option()
@joining_options
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
    dialect = dialect_on_bus(ctx, dialect)
    patterns = parse_all([pattern], dialect)
    payloads = Form(form)
    command = ShellCommand(text_of_command or "", timeout)
    answer: Answer = _Ran(command, payloads) if text_of_command is not None else _echoed
    if text is not None:
        answer = _always(payloads.read(text.encode(errors="surrogateescape")))
    stops: SimpleQueue[None] = SimpleQueue()
    service = _Service(ctx, answer)
    # One thread more than may wait for commands.
    options: dict[str, Any] = {"dialect": dialect, "codec": payloads.codec, "threads": concurrency + 1}
    with joined(ctx, joining, **options) as node, ended_by_signals(lambda: stops.put(None)):
        service.node = node
        node.subscribe(patterns, handler=service.handle, group=group, concurrency=concurrency)
        say_ready(ctx, node)
        try:
            stops.get()
            node.close()
        finally:
            command.end()
    service.say_what_was_done()


class _Service:
    """Answers, and counts; its threads are the node's."""

    def __init__(self, ctx: click.Context, answer: Answer) -> None:
        self._ctx, self._answer = ctx, answer
        self.node: oz.Node | None = None
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
            assert self.node is not None
            self.node._answer_failure(message, error)
        else:
            self._count(answered=1)

    def say_what_was_done(self) -> None:
        """Say it in one line."""
        with self._guard:
            line = f"{self._answered} requests answered, {self._failed} failed"
            if self._passed:
                line += f"; {self._passed} messages were no requests"
        say(self._ctx, line)

    def _count(self, *, answered: int = 0, failed: int = 0, passed: int = 0) -> None:
        with self._guard:
            self._answered += answered
            self._failed += failed
            self._passed += passed


class _Ran:
    """Has a command answer."""

    def __init__(self, command: ShellCommand, payloads: Form) -> None:
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
