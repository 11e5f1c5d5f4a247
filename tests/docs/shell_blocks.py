"""Shell and console blocks: their script, the `oz` commands they name, and the output they promise."""

import shlex
from collections.abc import Iterator

import click

_BEFORE_A_COMMAND = frozenset({"time", "exec", "sudo", "nohup"})
_OPERATORS = frozenset("|&;()")


def script(language: str, text: str) -> str:
    """What to give to the shell: all of an sh block, the `$ ` lines of a console block."""
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
    command = main
    context = click.Context(main, info_name="oz")
    remaining = iter(words)
    for word in remaining:
        if word == "--":
            return None
        if word.startswith("-"):
            name, _, value = word.partition("=")
            option = _option(command, name)
            if option is None and name.startswith("--") and name != "--help":
                return name
            if option is not None and not option.is_flag and not option.count and not value:
                next(remaining, None)
        elif isinstance(command, click.Group):
            found = command.get_command(context, word)
            if found is None:
                return word
            command = found
            context = click.Context(found, info_name=word, parent=context)
    return None


def _option(command: click.Command, name: str) -> click.Option | None:
    for parameter in command.params:
        if isinstance(parameter, click.Option) and name in (*parameter.opts, *parameter.secondary_opts):
            return parameter
    return None
