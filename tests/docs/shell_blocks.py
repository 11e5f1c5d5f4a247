"""Shell and console blocks: their script, the `oz` commands they name, and the output they promise."""

import shlex
from collections.abc import Iterator

import click

_BEFORE_A_COMMAND = frozenset({"time", "exec", "sudo", "nohup"})
_OPERATORS = frozenset("|&;()")


def script(language: str, text: str) -> str:
    """Return the input of the shell: all lines of an sh block, or the `$ ` lines of a console block."""
    if language != "console":
        return text
    return "\n".join([*_console(text)[0], ""])


def promised_output(language: str, text: str) -> str:
    """Return the output below the commands of a console block, or an empty string."""
    return "".join(f"{line}\n" for line in _console(text)[1]) if language == "console" else ""


def _console(text: str) -> tuple[list[str], list[str]]:
    commands: list[str] = []
    output: list[str] = []
    continues = False
    for line in text.splitlines():
        if continues or line.startswith("$ "):
            commands.append(line if continues else line[2:])
            continues = line.endswith("\\")
        else:
            output.append(line)
    return commands, output


def oz_commands(shell: str) -> Iterator[list[str]]:
    """The words after `oz` in each command that starts with it (`.venv/bin/oz` too)."""
    for words in _commands(shell):
        while words and ("=" in words[0] or words[0] in _BEFORE_A_COMMAND):
            words = words[1:]
        if words and words[0].rpartition("/")[2] == "oz":
            yield words[1:]


def _commands(shell: str) -> Iterator[list[str]]:
    pending = ""
    for line in shell.replace("\\\n", " ").splitlines():
        pending += line
        lexer = shlex.shlex(pending, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            tokens = list(lexer)
        except ValueError:  # a quotation that goes on in the next line
            pending += "\n"
            continue
        pending = ""
        words: list[str] = []
        for token in tokens:
            if token and set(token) <= _OPERATORS:
                yield words
                words = []
            else:
                words.append(token)
        yield words
    if pending:
        raise ValueError(f"cannot be parsed as shell: {pending!r}")


def unknown_word(words: list[str], main: click.Command) -> str | None:
    """The first subcommand or long option in `words` that the command line does not have."""
    command, remaining = main, words[: words.index("--")] if "--" in words else list(words)
    while isinstance(command, click.Group) and remaining and not remaining[0].startswith("-"):
        name = remaining.pop(0)
        found = command.get_command(click.Context(command), name)
        if found is None:
            return name
        command = found
    known = {name for item in command.params for name in (*item.opts, *item.secondary_opts)}
    names = (word.partition("=")[0] for word in remaining if word.startswith("--"))
    return next((name for name in names if name not in {*known, "--help"}), None)
