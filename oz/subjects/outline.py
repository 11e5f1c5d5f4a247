"""What is to be known of a regex's parse tree as a whole: its outline, and what the engine makes of it.

As in `oz.subjects.prefix`, the tree is that of the engine's private parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oz.subjects.prefix import core

# Where in the text a node stands, what it belongs to, and what follows from the rest.
_PLACES = frozenset({"_key", "info", "position", "call_ref"})
_ENDS = {"EndOfStringLine": "EndOfString", "EndOfStringLineU": "EndOfString"}


def outline(tree: Any, *, dollar_is_end: bool = False) -> list[Any]:
    r"""List all that a tree says, to be compared: without places in the text, and without any BREAK.

    Args:
        tree: the tree, not packed.
        dollar_is_end: take each `$` for a `\Z`.
    """
    said: list[Any] = []
    waiting: list[Any] = [tree]
    while waiting:  # not by recursion: the parser may have gone deep
        node = waiting.pop()
        if isinstance(node, list | tuple):
            items = [item for item in node if not _is_break(item)]
            said.append(len(items))
            waiting.extend(items)
        elif isinstance(node, dict):
            said.append(tuple(node))
            waiting.extend(node.values())
        elif type(node) is core.Character:
            said.append(node._key)
        elif isinstance(node, core.RegexBase):
            name = type(node).__name__
            said.append(_ENDS.get(name, name) if dollar_is_end else name)
            waiting.append({key: value for key, value in vars(node).items() if key not in _PLACES})
        else:
            said.append(node)
    return said


def _is_break(node: Any) -> bool:
    """Whether a node is `oz.subjects.runs.BREAK`: not to be followed by not to be followed by nothing."""
    inner = _forbidden(node)
    return inner is not None and len(inner) == 1 and _forbidden(inner[0]) == []


def _forbidden(node: Any) -> list[Any] | None:
    if type(node) is not core.LookAround or node.behind or node.positive:
        return None
    items: list[Any] | None = getattr(node.subpattern, "items", None)
    return items


def packed(tree: Any, info: Any) -> Any:
    """Join the characters of a tree to strings, in place, as the engine does before it compiles."""
    if not info.flags & (core.ASCII | core.LOCALE | core.UNICODE):
        info.flags |= core.UNICODE
    return tree.optimise(info, bool(info.flags & core.REVERSE)).pack_characters(info)


@dataclass(frozen=True, slots=True)
class Measures:
    """How much a packed tree asks of the engine.

    Attributes:
        weight: the nodes that the engine makes. It writes a repeat out as often as it must occur and once
            more; and a group that is called from another direction or from a fuzzy part, once more for each.
        longest: the length of the longest literal that it may search for; in a fuzzy part it does not.
        is_literal: whether each literal matches in one way only: none is fuzzy, and none has characters that
            match others together, as `ss` and `ß` under full case-folding.
    """

    weight: int
    longest: int
    is_literal: bool


def measure(tree: Any, info: Any) -> Measures:
    """Take the measures of a packed tree."""
    calls = {(call.group, reverse, fuzzy) for call, reverse, fuzzy in info.group_calls}
    nodes = list(_exact_nodes(tree))
    strings = [node for node in nodes if isinstance(node, core.String)]
    return Measures(
        weight=_weight(tree) * (1 + len(calls)),
        longest=max((len(string.folded_characters) for string in strings), default=0),
        is_literal=not any(type(node) is core.Fuzzy for node in nodes)
        and not any(string.case_flags & core.FULLCASE for string in strings),
    )


def _exact_nodes(tree: Any) -> Iterator[Any]:
    """Give all nodes of a tree but those in fuzzy parts, of which it gives the top only."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if type(node) is not core.Fuzzy:
            waiting.extend(_children(node))


def _weight(node: Any) -> int:
    if isinstance(node, core.String):
        return 1 + len(node.characters) // 16
    inside: int = sum(map(_weight, _children(node)))
    times: int = getattr(node, "min_count", 0) + 1
    return 1 + inside * times


def _children(node: Any) -> list[Any]:
    found: list[Any] = []
    for name, value in vars(node).items():
        if isinstance(value, core.RegexBase):
            found.append(value)
        elif name != "_key" and isinstance(value, list | tuple | set | frozenset):
            found.extend(item for item in value if isinstance(item, core.RegexBase))
    return found
