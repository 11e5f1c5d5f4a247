"""A bounded memory of answers, in which nothing ever takes long."""

from __future__ import annotations

from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")

_AT_ONCE = 4
"""How many steps of clearing up each change of the memory brings along."""


class AnswerCache(Generic[_Key, _Answer]):
    """Remembers answers, and forgets those not asked for lately.

    There are two dicts. When the newer is half of the allowed size, it takes the place of the older, which is
    dropped; an answer found in the older one comes into the newer. A dict with one key taken out for each
    that comes in would be slow: Python looks for its first key past all that were before it.

    Dicts that were dropped are emptied a few keys at a time, so that forgetting all of many thousand answers,
    which happens whenever a pattern comes or goes, costs nothing just then.
    """

    __slots__ = ("_half", "_older", "_retired", "newer")

    def __init__(self, size: int) -> None:
        """Start empty.

        Args:
            size: how many answers to remember at most, as an even number; 0 for none.
        """
        self._half = max(size // 2, 1) if size else 0
        self._older: dict[_Key, _Answer] = {}
        self._retired: list[dict[_Key, _Answer]] = []
        self.newer: dict[_Key, _Answer] = {}

    def __len__(self) -> int:
        """Count the answers that are remembered."""
        return len(self.newer) + len(self._older)

    def find(self, key: _Key) -> _Answer | None:
        """Give the answer for a key that is not in `newer`."""
        if not self._older:
            return None
        answer = self._older.pop(key, None)
        if answer is not None:
            self.put(key, answer)
        return answer

    def put(self, key: _Key, answer: _Answer) -> None:
        """Remember an answer."""
        if not self._half:
            return
        if len(self.newer) >= self._half:
            if self._older:
                self._retired.append(self._older)
            self._older, self.newer = self.newer, {}
        self.newer[key] = answer
        if self._retired:
            self._clear_up()

    def drop(self, key: _Key) -> None:
        """Forget one answer."""
        self.newer.pop(key, None)
        self._older.pop(key, None)

    def forget(self) -> None:
        """Forget all answers."""
        if self.newer or self._older:
            self._retired += [one for one in (self.newer, self._older) if one]
            self.newer, self._older = {}, {}
        if self._retired:
            self._clear_up()

    def _clear_up(self) -> None:
        retired = self._retired
        for _ in range(_AT_ONCE):
            if retired[-1]:
                retired[-1].popitem()
            else:
                retired.pop()
                if not retired:
                    return
