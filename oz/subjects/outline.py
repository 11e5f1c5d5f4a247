"""What is to be known of a regex's parse tree as a whole: its outline, and what the engine makes of it.

As in `oz.subjects.prefix`, the tree is that of the engine's private parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oz.subjects.dialects.runs import BREAK
from oz.subjects.prefix import core, parse_tree

# Where in the text a node stands, what it belongs to, and what follows from the rest.
_PLACES = frozenset({"_key", "info", "position", "call_ref"})
_ENDS = {"EndOfStringLine": "EndOfString", "EndOfStringLineU": "EndOfString"}


def outline(node: Any, *, dollar_is_end: bool = False) -> Any:
    r"""Give all that a tree says, to be compared: without places in the text, and without any BREAK.

    Args:
        node: a tree, or a part of one.
        dollar_is_end: take each `$` for a `\Z`.
    """
    if type(node) is core.Character:
        return node._key
    if isinstance(node, list | tuple):
        inner = (outline(item, dollar_is_end=dollar_is_end) for item in node)
        return [item for item in inner if item != _break()]
    if isinstance(node, dict):
        return [(name, outline(value, dollar_is_end=dollar_is_end)) for name, value in node.items()]
    if not isinstance(node, core.RegexBase):
        return node
    name = type(node).__name__
    own = {key: value for key, value in vars(node).items() if key not in _PLACES}
    return _ENDS.get(name, name) if dollar_is_end else name, outline(own, dollar_is_end=dollar_is_end)


_breaks: list[Any] = []


def _break() -> Any:
    """The outline of a BREAK."""
    if not _breaks:
        ...
    return _breaks[0]
