"""The characters that a node of the parse tree stands for, when it stands for one."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import regex

from oz.spark.classes import ALL, Ranges, complement, known_nodes, members, merged
from oz.spark.parts import Unwritable
from oz.subjects.prefixes.literal import core, parse_tree

_ESCAPES = (r"\d", r"\w", r"\s")
_NEWLINE: Ranges = ((0x0A, 0x0A),)
_ALL_CHARACTERS = 0xFF


class Characters:
    """Reads nodes that are one character.

    Attributes:
        known: the classes of such nodes.
    """

    def __init__(self, *, ascii_only: bool) -> None:
        """Start.

        Args:
            ascii_only: whether the regex has the flag ASCII, as that of a byte dialect does.
        """
        self._flags = int(regex.A if ascii_only else regex.U)
        self.known = _READERS.keys()

    def ranges(self, node: Any, case_flags: int = 0) -> Ranges:
        """Return the characters of a node.

        Raises:
            Unwritable: they are not known.
        """
        attributes, reader = _READERS.get(type(node), (frozenset(), None))
        if reader is None or not vars(node).keys() <= attributes or getattr(node, "zerowidth", False):
            raise Unwritable(f"{type(node).__name__} in a class")
        found = reader(self, node, case_flags | getattr(node, "case_flags", 0))
        return found if getattr(node, "positive", True) else complement(found)

    def _any_of_line(self, node: Any, case_flags: int) -> Ranges:
        return complement(_NEWLINE)

    def _any_of_all(self, node: Any, case_flags: int) -> Ranges:
        return ALL

    def _character(self, node: Any, case_flags: int) -> Ranges:
        return self._in_all_cases(node.value, node.value, node, case_flags)

    def _range(self, node: Any, case_flags: int) -> Ranges:
        return self._in_all_cases(node.lower, node.upper, node, case_flags)

    def _union(self, node: Any, case_flags: int) -> Ranges:
        if case_flags and not node.positive:
            raise Unwritable("[^…] under (?i)")
        return merged(ends for item in node.items for ends in self.ranges(item, case_flags))

    def _named(self, node: Any, case_flags: int) -> Ranges:
        if case_flags:
            raise Unwritable("a class such as \\w under (?i)")
        for escape in _ESCAPES:
            (meant,) = parse_tree(escape, self._flags)[0].items
            if (meant.value, meant.encoding) == (node.value, node.encoding):
                return members(escape, self._flags)
        raise Unwritable(r"a property such as \p{…}")

    def _in_all_cases(self, low: int, high: int, node: Any, case_flags: int) -> Ranges:
        if not case_flags:
            return ((low, high),)
        is_plain = case_flags == core.IGNORECASE and self._flags == regex.U and node.positive
        if not is_plain or high - low > _ALL_CHARACTERS:
            raise Unwritable("(?i) of a kind that Java does not have")
        cases = import_module("regex._regex").get_all_cases
        variants = {case for char in range(low, high + 1) for case in cases(core.UNICODE, char)}
        return merged((case, case) for case in variants)


_Reader = Callable[[Characters, Any, int], Ranges]
# The classes that are known, with all the attributes that they are known to have.
_KNOWN: list[tuple[str, str, _Reader]] = [
    ("Any", "positive case_flags zerowidth", Characters._any_of_line),
    ("AnyAll", "positive case_flags zerowidth", Characters._any_of_all),
    ("Character", "value positive case_flags zerowidth folded", Characters._character),
    ("Range", "lower upper positive case_flags zerowidth", Characters._range),
    ("SetUnion", "info items positive case_flags zerowidth char_width", Characters._union),
    ("Property", "value positive case_flags zerowidth encoding", Characters._named),
]
_READERS = known_nodes(_KNOWN)
