"""A trie of tokens: the hierarchical patterns that match a subject, without visiting the others."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from oz.subjects.dialects.base import Stem, Token, Wild

# A node is one dict. Its literal children are keyed by their token (bytes), the rest by these numbers.
_HERE = 0
"""Leaf of the patterns that end at this node."""
_ONE = 1
"""Child behind a wildcard for one token."""
_REST = 2
"""Leaf of the patterns that take one or more tokens from here."""
_STEMS = 3
"""Children behind tokens that only begin like this: a dict of stem -> node."""

Leaf = dict[Hashable, Any]
_Node = dict[Any, Any]


class TokenTrie:
    """Maps token patterns to leaves: small dicts, in which the owner keeps what it likes."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        """Start empty."""
        self._root: _Node = {}

    def __bool__(self) -> bool:
        """Tell whether there is any pattern."""
        return bool(self._root)

    def leaf(self, tokens: tuple[Token, ...]) -> Leaf:
        """Give the leaf of a pattern, a new one if need be."""
        node = self._root
        for token in tokens:
            if token is Wild.REST:
                return node.setdefault(_REST, {})  # type: ignore[no-any-return]
            children, key = _slot(node, token)
            node = children.setdefault(key, {})
        return node.setdefault(_HERE, {})  # type: ignore[no-any-return]

    def find_leaf(self, tokens: tuple[Token, ...]) -> Leaf | None:
        """Give the leaf of a pattern, if there is one."""
        container, key = self._path(tokens)[-1]
        return container.get(key)

    def prune(self, tokens: tuple[Token, ...]) -> None:
        """Take out the leaf of a pattern if it is empty, and the nodes that only led to it."""
        for container, key in reversed(self._path(tokens)):
            if container.get(key):
                return
            container.pop(key, None)

    def _path(self, tokens: tuple[Token, ...]) -> list[tuple[_Node, Any]]:
        """List the dicts on the way to a leaf, each with the key that leads on."""
        path: list[tuple[_Node, Any]] = []
        node = self._root
        for token in tokens:
            if token is Wild.REST:
                return [*path, (node, _REST)]
            if isinstance(token, Stem):
                path.append((node, _STEMS))
                node = node.get(_STEMS, {})
                key: Any = token.text
            else:
                key = _ONE if token is Wild.ONE else token
            path.append((node, key))
            node = node.get(key, {})
        return [*path, (node, _HERE)]

    def walk(self, tokens: list[bytes], values: list[Any]) -> None:
        """Add the values of all leaves whose patterns match.

        Args:
            tokens: those of the subject; none may be empty.
            values: what is found is appended here.
        """
        nodes = [self._root]
        for token in tokens:
            following: list[_Node] = []
            for node in nodes:
                get = node.get
                if (leaf := get(_REST)) is not None:
                    values.extend(leaf.values())
                if (child := get(token)) is not None:
                    following.append(child)
                if (child := get(_ONE)) is not None:
                    following.append(child)
                if (stems := get(_STEMS)) is not None:
                    following += [child for stem, child in stems.items() if token.startswith(stem)]
            if not following:
                return
            nodes = following
        for node in nodes:
            if (leaf := node.get(_HERE)) is not None:
                values.extend(leaf.values())


def _slot(node: _Node, token: Token) -> tuple[_Node, Any]:
    """Say in which dict the child behind a token is kept, and under which key."""
    if isinstance(token, Stem):
        return node.setdefault(_STEMS, {}), token.text
    return node, (_ONE if token is Wild.ONE else token)
