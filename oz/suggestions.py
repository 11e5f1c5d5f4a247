"""Errors for misspelled arguments and attributes, with suggestions."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any


def refuse_unknown(name: str, given: Iterable[str], function: Callable[..., Any]) -> None:
    """Raise TypeError for arguments that a function does not have, with a suggestion.

    Args:
        name: of the function, as the program calls it.
        given: names of the arguments.
        function: that was called.
    """
    for one in given:
        code = function.__code__
        known = [
            arg for arg in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if arg != "self"
        ]
        raise TypeError(f"{name} has no argument {one!r}{_suggestion(one, known)}")


def no_attribute(name: str, owner: type, wrong: str) -> AttributeError:
    """Return the error for an attribute that a public class does not have, with a suggestion.

    Args:
        name: of the class, as the program knows it.
        owner: the class.
        wrong: name of the attribute.
    """
    known = [one for one in dir(owner) if not one.startswith("_")]
    return AttributeError(f"{name} has no attribute {wrong!r}{_suggestion(wrong, known)}", name=wrong)


def _suggestion(wrong: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(wrong, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
