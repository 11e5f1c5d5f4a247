"""Frames that were given before, by their bytes, in bounded memory."""

from __future__ import annotations

FRAMES = 16_384
"""Frames after which those before the last so many are forgotten."""


class GivenFrames:
    """The newest frames whose messages were given, of all publishers together.

    A frame that comes by a second way is the same to the last byte. Somebody else's with the same numbers is
    another one.

    Attributes:
        recent: hashes of those since the last turn: of each frame its `fingerprint` or, if alone, its hash.
    """

    __slots__ = ("_before", "recent")

    def __init__(self) -> None:
        """Remember none."""
        self.recent: set[int] = set()
        self._before: set[int] = set()

    def __len__(self) -> int:
        """Count what is remembered."""
        return len(self.recent) + len(self._before)

    def __contains__(self, content: int) -> bool:
        """Tell whether a frame was given."""
        return content in self.recent or content in self._before

    def turn(self) -> None:
        """Forget those that came before the last turn."""
        # Whoever has bound a method of `recent` goes on with it.
        self._before = self.recent.copy()
        self.recent.clear()


def fingerprint(frames: list[bytes]) -> int:
    """Return what a frame, with those behind it, is known by; nobody outside this process can foresee it."""
    return hash(frames[0]) if len(frames) == 1 else hash(tuple(frames))
