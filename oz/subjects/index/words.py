"""Hierarchical patterns by their shape: one dict look-up for each shape finds all that match.

The shape of a pattern is which of its words are literal, and how many words it takes. All patterns of a shape
are in one dict, by their literal words; a subject has these words at the same places, so it is looked up once
for each shape, however many patterns there are. Packet classifiers call it tuple space search (Srinivasan,
Suri and Varghese, SIGCOMM 1999). There are few shapes as people write patterns; those beyond `MAX_SHAPES`,
and patterns that have none, are in a trie.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from oz.subjects.dialects.base import Stem, Token, Wild
from oz.subjects.pattern import Pattern

# What is kept where a pattern ends, in as little memory as it takes: most patterns have one value, and often
# that is the pattern itself.
Entry = Pattern | tuple[Pattern, Hashable]
"""A pattern whose value is itself, or a pattern and its value."""

Leaf = Entry | dict[Entry, Any]
"""The only entry, or the values by their entries."""


def entry_of(pattern: Pattern, value: Hashable) -> Entry:
    """Make the entry of a pattern and its value; None stands for the pattern itself."""
    return pattern if value is None else (pattern, value)


def value_of(entry: Entry) -> Any:
    """Return the value of an entry."""
    return entry[1] if type(entry) is tuple else entry


def put(container: dict[Any, Any], key: Any, entry: Entry) -> bool:
    """Add an entry to the leaf under a key; tell whether it is new."""
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


def holds(leaf: Leaf | None, entry: Entry) -> bool:
    """Tell whether an entry is in a leaf."""
    return entry in leaf if type(leaf) is dict else leaf == entry


def take(container: dict[Any, Any], key: Any, entry: Entry) -> bool:
    """Take an entry out of the leaf under a key, and an empty leaf out of its dict; tell if it was there."""
    leaf: Leaf | None = container.get(key)
    if leaf is None or not holds(leaf, entry):
        return False
    if type(leaf) is dict and len(leaf) > 1:
        del leaf[entry]
        if len(leaf) == 1:
            container[key] = next(iter(leaf))
    else:
        del container[key]
    return True


def values_of(leaves: Iterable[Leaf]) -> tuple[Any, ...]:
    """Return the values of all entries in some leaves."""
    values: list[Any] = []
    for leaf in leaves:
        kind = type(leaf)
        if kind is dict:
            values.extend(leaf.values())  # type: ignore[union-attr]
        else:
            values.append(leaf[1] if kind is tuple else leaf)  # type: ignore[index]
    return tuple(values)


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
        return put(container, key, entry)

    def holds(self, words: tuple[Token, ...], entry: Entry) -> bool:
        """Tell whether an entry is there."""
        container, key = self._path(words)[-1]
        return holds(container.get(key), entry)

    def discard(self, words: tuple[Token, ...], entry: Entry) -> bool:
        """Take an entry out, and the nodes that only led to it; tell whether it was there."""
        *above, (container, key) = self._path(words)
        if not take(container, key, entry):
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


MAX_SHAPES = 32
"""With more look-ups than this a trie, which gives up early, is as fast."""

_Plan = list[tuple[Callable[[Any], Any], Callable[[Any], Leaf | None]]]


class Shape(NamedTuple):
    """The shape that patterns share which differ in their literal words only."""

    places: tuple[int, ...]
    """Where the literal words are; behind a wildcard for any number of words, counted from the end."""
    least: int
    """How many words there are, or at least are."""
    is_open: bool
    """Whether there may be more."""
    starts_wild: bool
    """Whether the first word is a wildcard."""


def shape_of(words: tuple[Token, ...]) -> Shape | None:
    """Tell the shape of a pattern; None where a word is a stem or two wildcards take any number of words."""
    places: list[int] = []
    open_at: int | None = None
    least = len(words)
    for at, word in enumerate(words):
        if isinstance(word, bytes):
            places.append(at if open_at is None else at - len(words))
        elif isinstance(word, Stem) or (word is Wild.ANY and open_at is not None):
            return None
        elif word is not Wild.ONE:
            open_at = at
            least -= word is Wild.ANY
    return Shape(tuple(places), least, open_at is not None, not isinstance(words[0], bytes))


class WordTable:
    """The patterns of dialects that split a subject into words in the same way."""

    __slots__ = ("_longest", "_plans", "_shapes", "_trie")

    def __init__(self) -> None:
        """Start empty."""
        self._shapes: dict[Shape, dict[Any, Leaf]] = {}
        self._trie = WordTrie()
        self._plans: dict[int, _Plan] = {}
        self._longest = 0

    def __bool__(self) -> bool:
        """Tell whether there is any pattern."""
        return bool(self._shapes or self._trie)

    def add(self, words: tuple[Token, ...], entry: Entry) -> bool:
        """Add an entry; tell whether it is new."""
        if self._trie and self._trie.holds(words, entry):
            return False  # it may have a shape and be here all the same: there were too many then
        shape = shape_of(words)
        if shape is None:
            return self._trie.add(words, entry)
        if shape not in self._shapes:
            if len(self._shapes) >= MAX_SHAPES:
                return self._trie.add(words, entry)
            self._shapes[shape] = {}
            self._plan_anew()
        return put(self._shapes[shape], _getter(shape.places)(words), entry)

    def discard(self, words: tuple[Token, ...], entry: Entry) -> bool:
        """Take an entry out; tell whether it was there."""
        shape = shape_of(words)
        if shape is not None and shape in self._shapes:
            table = self._shapes[shape]
            if take(table, _getter(shape.places)(words), entry):
                if not table:
                    del self._shapes[shape]
                    self._plan_anew()
                return True
        return bool(self._trie) and self._trie.discard(words, entry)

    def search(self, words: Sequence[bytes], found: list[Leaf], *, reserved: bool = False) -> None:
        """Find the leaves of all patterns that match.

        Args:
            words: those of the subject.
            found: what is found is appended here.
            reserved: whether no wildcard may take the first word.
        """
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

    def _plan_anew(self) -> None:
        self._plans.clear()
        # From this count on all subjects are looked up alike.
        self._longest = 1 + max((shape.least for shape in self._shapes), default=0)

    def _make_plan(self, count: int, reserved: bool) -> _Plan:
        """List how to look up subjects of so many words."""
        plan: _Plan = [
            (_getter(shape.places), table.get)
            for shape, table in self._shapes.items()
            if (shape.least == count or (shape.is_open and shape.least < count))
            and not (reserved and shape.starts_wild)
        ]
        self._plans[~count if reserved else count] = plan
        return plan


def _getter(places: tuple[int, ...]) -> Callable[[Any], Any]:
    """Make what takes the literal words out of a subject's words, and out of a pattern's."""
    return itemgetter(*places) if places else _nothing


def _nothing(words: Any) -> tuple[()]:
    return ()
