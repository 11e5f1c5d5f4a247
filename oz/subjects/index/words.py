"""Index of patterns of words. A search takes one dict lookup for each shape of patterns.

Theory of operation. The shape of a pattern consists of the number of words that it matches and the positions of its
literal words. `a.*.c` and `x.*.z` have the same shape: three words, with literals at positions 0 and 2. One dict holds
all patterns of a shape. The key of a pattern is its literal words. A lookup takes the words of the subject at the
positions of the shape, and finds the pattern under these words. Therefore the cost of a search depends on the number of
shapes, and not on the number of patterns. Packet classifiers call this tuple space search (Srinivasan, Suri and
Varghese, SIGCOMM 1999).

Behind a wildcard for any number of words, positions are negative indexes, which count from the end. For each number of
words, a plan lists the shapes that can match a subject with this number of words.

Programs use few shapes. If a table already has `MAX_SHAPES` shapes, it keeps the patterns of further shapes in a trie.
The trie also holds patterns without a shape, such as `a.b*` of kubemq or a pattern with two `#` of amqp. A search in
the trie visits one or more nodes for each word, and ends at the first word without a node. Therefore one trie is as
fast as a long list of lookups by shape.

The argument `reserved` implements a rule of mqtt: in a subject such as `$SYS/load`, no wildcard matches the first word.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from oz.subjects.dialects.base import Stem, Token, Wild
from oz.subjects.pattern import Pattern

# Most patterns have one value, which is often the pattern itself. A leaf without a dict saves memory if an index has a
# million patterns.
Entry = Pattern | tuple[Pattern, Hashable]
"""A pattern that is its own value, or a pair of pattern and value."""

Leaf = Entry | dict[Entry, Any]
"""All entries of one pattern: a single entry, or a dict from each entry to its value."""


def entry_of(pattern: Pattern, value: Hashable) -> Entry:
    """Return the entry for a pattern and a value. If the value is None, the value is the pattern itself."""
    return pattern if value is None else (pattern, value)


def value_of(entry: Entry) -> Any:
    """Return the value of an entry."""
    return entry[1] if type(entry) is tuple else entry


def add_entry(container: dict[Any, Any], key: Any, entry: Entry) -> bool:
    """Add an entry to the leaf of a key. Return whether the entry is new."""
    leaf: Leaf | None = container.get(key)
    if leaf is None:
        container[key] = entry
        return True
    if type(leaf) is dict:
        if entry in leaf:
            return False
        leaf[entry] = value_of(entry)
        return True
    if leaf == entry:
        return False
    assert not isinstance(leaf, dict)
    container[key] = {leaf: value_of(leaf), entry: value_of(entry)}
    return True


def has_entry(leaf: Leaf | None, entry: Entry) -> bool:
    """Return whether an entry is in a leaf."""
    return entry in leaf if type(leaf) is dict else leaf == entry


def remove_entry(container: dict[Any, Any], key: Any, entry: Entry) -> bool:
    """Remove an entry from the leaf of a key, and an empty leaf from the dict. Return whether the entry existed."""
    leaf: Leaf | None = container.get(key)
    if leaf is None or not has_entry(leaf, entry):
        return False
    if type(leaf) is dict and len(leaf) > 1:
        del leaf[entry]
        if len(leaf) == 1:
            container[key] = next(iter(leaf))
    else:
        del container[key]
    return True


def values_of(leaves: Iterable[Leaf]) -> tuple[Any, ...]:
    """Return the values of all entries of leaves."""
    values: list[Any] = []
    for leaf in leaves:
        kind = type(leaf)
        if kind is dict:
            values.extend(leaf.values())  # type: ignore[union-attr]
        else:
            values.append(leaf[1] if kind is tuple else leaf)  # type: ignore[index]
    return tuple(values)


# A node of the trie is a dict. A literal word (bytes) is the key of a child. The numbers below are the keys for
# wildcards and ends.
_END = 0
"""Key of the leaf for the pattern that ends at this node."""
_ONE = 1
"""Key of the child behind a wildcard for one word."""
_REST = 2
"""Key of the leaf for the pattern that continues from this node with a last wildcard for one or more words."""
_STEMS = 3
"""Key of the children for stems, such as `b*`: a dict from the length of a stem to a dict from the stem to its node."""
_ANY = 4
"""Key of the child behind a wildcard for zero or more words. A search that has reached this child keeps it for all
later words."""

_Node = dict[Any, Any]


class WordTrie:
    """Trie of patterns by their words."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node = {}

    def __bool__(self) -> bool:
        return bool(self._root)

    def add(self, words: tuple[Token, ...], entry: Entry) -> bool:
        """Add an entry to the leaf of a pattern. Return whether the entry is new."""
        container, key = self._path(words, make=True)[-1]
        return add_entry(container, key, entry)

    def holds(self, words: tuple[Token, ...], entry: Entry) -> bool:
        """Return whether the trie contains an entry."""
        container, key = self._path(words)[-1]
        return has_entry(container.get(key), entry)

    def discard(self, words: tuple[Token, ...], entry: Entry) -> bool:
        """Remove an entry, and the nodes that no other pattern needs. Return whether the entry existed."""
        *above, (container, key) = self._path(words)
        if not remove_entry(container, key, entry):
            return False
        for container, key in reversed(above):
            if container[key]:
                break
            del container[key]
        return True

    def _path(self, words: tuple[Token, ...], *, make: bool = False) -> list[tuple[_Node, Any]]:
        """Return the path to a leaf as pairs of a dict and a key. The key leads to the next dict or to the leaf."""
        path: list[tuple[_Node, Any]] = []
        node = self._root
        for word in words:
            if word is Wild.REST:
                return [*path, (node, _REST)]
            for key in _keys(word):
                path.append((node, key))
                node = node.setdefault(key, {}) if make else node.get(key, {})
        return [*path, (node, _END)]

    def walk(self, words: Sequence[bytes], found: list[Leaf], *, reserved: bool = False) -> None:
        """Append the leaf of each matching pattern to `found`, without duplicates.

        Several paths may lead to a node behind `_ANY`. Therefore a dict with the identity as key holds these nodes.
        Only one path leads to any node that is not behind `_ANY`.

        Args:
            words: words of the subject.
            found: list to which the leaves are appended.
            reserved: True if no wildcard matches the first word.
        """
        nodes: list[_Node] = [self._root]
        staying: dict[int, _Node] = {}
        if reserved:
            nodes = [child for child in (self._root.get(words[0]),) if child is not None]
            words = words[1:]
        _add_staying(nodes, staying)
        for word in words:
            following: list[_Node] = []
            for node in (*nodes, *staying.values()) if staying else nodes:
                _step(node, word, following, found)
            _add_staying(following, staying)
            if not following and not staying:
                return
            nodes = following
        for node in (*nodes, *staying.values()):
            if (leaf := node.get(_END)) is not None:
                found.append(leaf)


def _step(node: _Node, word: bytes, following: list[_Node], found: list[Leaf]) -> None:
    """Append the children that match a word to `following`. Append the leaf under `_REST` to `found`."""
    get = node.get
    if (leaf := get(_REST)) is not None:
        found.append(leaf)
    if (child := get(word)) is not None:
        following.append(child)
    if (child := get(_ONE)) is not None:
        following.append(child)
    if (stems := get(_STEMS)) is not None:
        for length, children in stems.items():
            # If the word is shorter than the stems, the slice equals no stem.
            if (child := children.get(word[:length])) is not None:
                following.append(child)


def _add_staying(nodes: list[_Node], staying: dict[int, _Node]) -> None:
    """Add the `_ANY` child of each node to `staying`. This step reads no word, because `_ANY` may match zero words."""
    for node in nodes:
        if (child := node.get(_ANY)) is not None:
            staying[id(child)] = child


def _keys(word: Token) -> tuple[Any, ...]:
    if isinstance(word, Stem):
        return (_STEMS, len(word.text), word.text)
    return (_ONE if word is Wild.ONE else _ANY if word is Wild.ANY else word,)


MAX_SHAPES = 32
"""Maximum number of shapes in one table. With more lookups, a search would be no faster than in a trie."""

_Plan = list[tuple[Callable[[Any], Any], Callable[[Any], Leaf | None]]]


class Shape(NamedTuple):
    """Shape of patterns that differ only in their literal words."""

    places: tuple[int, ...]
    """Positions of the literal words. Behind a wildcard for any number of words, positions are negative indexes."""
    minimum: int
    """Number of words in a matching subject. If `is_open`, this is the minimum number."""
    is_open: bool
    """Whether a matching subject may have more than `minimum` words."""
    starts_wild: bool
    """Whether the first word is a wildcard."""


def shape_of(words: tuple[Token, ...]) -> Shape | None:
    """Return the shape of a pattern. Return None if the pattern has a stem or two wildcards for any number of words."""
    places: list[int] = []
    open_at: int | None = None
    minimum = len(words)
    for at, word in enumerate(words):
        if isinstance(word, bytes):
            places.append(at if open_at is None else at - len(words))
        elif isinstance(word, Stem) or (word is Wild.ANY and open_at is not None):
            return None
        elif word is not Wild.ONE:
            open_at = at
            minimum -= word is Wild.ANY
    return Shape(tuple(places), minimum, open_at is not None, not isinstance(words[0], bytes))


class WordTable:
    """Patterns of all dialects that split subjects by the same rules."""

    __slots__ = ("_longest", "_plans", "_shapes", "_trie")

    def __init__(self) -> None:
        self._shapes: dict[Shape, dict[Any, Leaf]] = {}
        self._trie = WordTrie()
        self._plans: dict[int, _Plan] = {}
        self._longest = 0

    def __bool__(self) -> bool:
        return bool(self._shapes or self._trie)

    def add(self, words: tuple[Token, ...], entry: Entry) -> bool:
        """Add an entry of a pattern. Return whether the entry is new."""
        if self._trie and self._trie.holds(words, entry):
            # The table had too many shapes when this pattern was added.
            return False
        shape = shape_of(words)
        if shape is None:
            return self._trie.add(words, entry)
        if shape not in self._shapes:
            if len(self._shapes) >= MAX_SHAPES:
                return self._trie.add(words, entry)
            self._shapes[shape] = {}
            self._reset_plans()
        return add_entry(self._shapes[shape], _word_getter(shape.places)(words), entry)

    def discard(self, words: tuple[Token, ...], entry: Entry) -> bool:
        """Remove an entry of a pattern. Return whether the entry existed."""
        shape = shape_of(words)
        if shape is not None and shape in self._shapes:
            table = self._shapes[shape]
            if remove_entry(table, _word_getter(shape.places)(words), entry):
                if not table:
                    del self._shapes[shape]
                    self._reset_plans()
                return True
        return bool(self._trie) and self._trie.discard(words, entry)

    def search(self, words: Sequence[bytes], found: list[Leaf], *, reserved: bool = False) -> None:
        """Append the leaves of all matching patterns to `found`, as `WordTrie.walk` does."""
        count = len(words)
        if count > self._longest:
            count = self._longest
        plan = self._plans.get(~count if reserved else count)
        if plan is None:
            plan = self._make_plan(count, reserved)
        for key_of, leaf_of in plan:
            leaf = leaf_of(key_of(words))
            if leaf is not None:
                found.append(leaf)
        if self._trie:
            self._trie.walk(words, found, reserved=reserved)

    def _reset_plans(self) -> None:
        self._plans.clear()
        # All subjects with at least this number of words have the same plan.
        self._longest = 1 + max((shape.minimum for shape in self._shapes), default=0)

    def _make_plan(self, count: int, reserved: bool) -> _Plan:
        """Create and keep the plan for subjects with `count` words."""
        plan: _Plan = [
            (_word_getter(shape.places), table.get)
            for shape, table in self._shapes.items()
            if (shape.minimum == count or (shape.is_open and shape.minimum < count))
            and not (reserved and shape.starts_wild)
        ]
        self._plans[~count if reserved else count] = plan
        return plan


def _word_getter(places: tuple[int, ...]) -> Callable[[Any], Any]:
    """Return a function that picks the words at given positions."""
    return itemgetter(*places) if places else _no_words


def _no_words(words: Any) -> tuple[()]:
    return ()
