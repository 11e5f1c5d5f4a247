"""A trie of words: the hierarchical patterns that match a subject, without visiting the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oz.subjects import leaves
from oz.subjects.dialects.base import Stem, Token, Wild
from oz.subjects.leaves import Entry, Leaf

# A node is one dict. Its literal children are keyed by their word (bytes), the rest by these numbers.
_HERE = 0
"""Leaf of the patterns that end at this node."""
_ONE = 1
"""Child behind a wildcard for one word."""
_REST = 2
"""Leaf of the patterns that take one or more words from here."""
_STEMS = 3
"""Children behind words that only begin like this: length of the stem -> stem -> node."""
_ANY = 4
"""Child behind a wildcard for zero or more words: it stays where it is while words go by."""

_Node = dict[Any, Any]


class WordTrie:
    """Maps patterns to leaves, which hold their entries."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        """Start empty."""
        self._root: _Node = {}

    def __bool__(self) -> bool:
        """Tell whether there is any pattern."""
        return bool(self._root)

    def add(self, words: tuple[Token, ...], entry: Entry) -> bool:
        """Add an entry to the leaf of a pattern; tell whether it is new."""
        container, key = self._path(words, make=True)[-1]
        return leaves.put(container, key, entry)

    def holds(self, words: tuple[Token, ...], entry: Entry) -> bool:
        """Tell whether an entry is there."""
        container, key = self._path(words)[-1]
        return leaves.holds(container.get(key), entry)

    def discard(self, words: tuple[Token, ...], entry: Entry) -> bool:
        """Take an entry out, and the nodes that only led to it; tell whether it was there."""
        *above, (container, key) = self._path(words)
        if not leaves.take(container, key, entry):
            return False
        for container, key in reversed(above):
            if container[key]:
                break
            del container[key]
        return True

    def _path(self, words: tuple[Token, ...], *, make: bool = False) -> list[tuple[_Node, Any]]:
        """List the dicts on the way to a leaf, each with the key that leads on."""
        path: list[tuple[_Node, Any]] = []
        node = self._root
        for word in words:
            if word is Wild.REST:
                return [*path, (node, _REST)]
            for key in _keys(word):
                path.append((node, key))
                node = node.setdefault(key, {}) if make else node.get(key, {})
        return [*path, (node, _HERE)]

    def walk(self, words: Sequence[bytes], found: list[Leaf], *, reserved: bool = False) -> None:
        """Find all leaves whose patterns match.

        A node has one parent, so no way but through `_ANY` leads to it twice: it takes two of them to reach a
        leaf by two ways, and those that stay are kept apart, each once.

        Args:
            words: those of the subject.
            found: what is found is appended here.
            reserved: whether no wildcard may take the first word.
        """
        nodes: list[_Node] = [self._root]
        staying: dict[int, _Node] = {}
        if reserved:
            nodes = [child for child in (self._root.get(words[0]),) if child is not None]
            words = words[1:]
        _stay(nodes, staying)
        for word in words:
            following: list[_Node] = []
            for node in (*nodes, *staying.values()) if staying else nodes:
                _step(node, word, following, found)
            _stay(following, staying)
            if not following and not staying:
                return
            nodes = following
        for node in (*nodes, *staying.values()):
            if (leaf := node.get(_HERE)) is not None:
                found.append(leaf)


def _step(node: _Node, word: bytes, following: list[_Node], found: list[Leaf]) -> None:
    """Go from a node over one word."""
    get = node.get
    if (leaf := get(_REST)) is not None:
        found.append(leaf)
    if (child := get(word)) is not None:
        following.append(child)
    if (child := get(_ONE)) is not None:
        following.append(child)
    if (stems := get(_STEMS)) is not None:
        for length, children in stems.items():
            # A word that stops short is none of these stems, as those all have the length.
            if (child := children.get(word[:length])) is not None:
                following.append(child)


def _stay(nodes: list[_Node], staying: dict[int, _Node]) -> None:
    """Remember the nodes behind `_ANY`, which are reached without a word."""
    for node in nodes:
        if (child := node.get(_ANY)) is not None:
            staying[id(child)] = child


def _keys(word: Token) -> tuple[Any, ...]:
    """Say by which keys a word leads on."""
    if isinstance(word, Stem):
        return (_STEMS, len(word.text), word.text)
    return (_ONE if word is Wild.ONE else _ANY if word is Wild.ANY else word,)
