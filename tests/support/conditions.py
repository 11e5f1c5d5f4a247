"""Parts of a condition that does not hold, for the message of a wait that fails."""

import linecache
from collections.abc import Iterator
from contextlib import suppress

_MAX_SAID = 300
"""Characters of the text of one value."""


def parts_of(condition):
    """Return the calls, attributes and comparisons of a lambda with their values, one a line.

    Each is evaluated once more, alone. A function has no parts, because it has variables of its own.
    """
    code = getattr(condition, "__code__", None)
    if code is None or code.co_name != "<lambda>":
        return ""
    defaults = condition.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    names = dict(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True))
    for name, cell in zip(code.co_freevars, condition.__closure__ or (), strict=True):
        with suppress(ValueError):  # a name that has no value yet
            names[name] = cell.cell_contents
    lines = []
    for part in _texts(code):
        # A loop variable, such as "one" of "one for one in all", has no value outside its loop.
        with suppress(Exception):
            value = eval(part, {**condition.__globals__, **names})
            if not isinstance(value, Iterator):
                lines.append(f"\n    {part} is {repr(value)[:_MAX_SAID]}")
    return "".join(lines)


def _texts(code):
    """Return the expressions in a lambda, each once, without expressions of several lines."""
    texts = {}
    for line, last_line, start, end in code.co_positions():
        if line is not None and line == last_line and start is not None:
            # Columns are bytes.
            text = linecache.getline(code.co_filename, line).encode()[start:end].decode().strip()
            if text and not text.startswith("lambda") and not text.isidentifier():
                texts[text] = None
    return texts
