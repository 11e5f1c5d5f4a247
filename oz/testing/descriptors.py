"""Virtual descriptors of model sockets. A `VirtualLoop` watches them like real descriptors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from weakref import WeakValueDictionary

from oz.transport.polling import Poll

FIRST = 1 << 30
"""Number of the first virtual descriptor. Real descriptors have lower numbers: Linux allows 2²⁰ by default."""


class Descriptor:
    """Virtual descriptor of a model socket, or of a set with the descriptors of all sockets of a subscriber.

    Attributes:
        number: number of the descriptor. No other descriptor of this process has the same number.
        is_readable: function that returns whether the descriptor is readable.
        parents: descriptors of sets that contain this descriptor. They are readable while this descriptor is readable.
    """

    def __init__(self, is_readable: Callable[[], bool]) -> None:
        self.number = next(_numbers)
        self.is_readable = is_readable
        self.parents: list[Descriptor] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._callback: Callable[[], object] | None = None
        self._is_scheduled = False
        _all[self.number] = self

    def watch(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        """Call a function in a loop whenever the descriptor is readable."""
        self._loop, self._callback = loop, callback
        if self.is_readable():
            self.signal()

    def unwatch(self) -> bool:
        """Stop calling the function of `watch`; return whether a loop watched the descriptor."""
        found, self._loop, self._callback = self._callback, None, None
        return found is not None

    def signal(self) -> None:
        """Notify the loop that the descriptor may be readable."""
        loop = self._loop
        if loop is not None and not self._is_scheduled and not loop.is_closed():
            self._is_scheduled = True
            loop.call_soon(self._call)
        for parent in self.parents:
            parent.signal()

    def _call(self) -> None:
        self._is_scheduled = False
        if self._callback is not None and self.is_readable():
            self._callback()
            # As with a real descriptor, the loop calls the function again while the descriptor is readable.
            if self._callback is not None and self.is_readable():
                self.signal()


_numbers = count(FIRST)
_all: WeakValueDictionary[int, Descriptor] = WeakValueDictionary()


def find(number: int) -> Descriptor | None:
    """Return the virtual descriptor with a number; None for a real descriptor, or if the virtual descriptor is gone."""
    return _all.get(number)


class VirtualPoll(Poll):
    """Set of the descriptors of a subscriber's model sockets. Only an event loop can wait for this set."""

    def __init__(self) -> None:
        """Create an empty set, and a descriptor that represents the whole set."""
        self._is_rung = False
        self._members: dict[int, Descriptor] = {}
        self._descriptor = Descriptor(self._is_readable)
        self.is_polling = self.is_full = False

    def _is_readable(self) -> bool:
        return self._is_rung or any(member.is_readable() for member in self._members.values())

    def add(self, descriptors: Iterable[int]) -> None:
        """Add descriptors to the set."""
        for number in descriptors:
            if (found := find(number)) is not None:
                self._members[number] = found
                found.parents.append(self._descriptor)
        if self._is_readable():
            self._descriptor.signal()

    def remove(self, descriptors: Iterable[int]) -> None:
        """Remove descriptors from the set."""
        for number in descriptors:
            if (found := self._members.pop(number, None)) is not None:
                found.parents.remove(self._descriptor)

    def fileno(self) -> int:
        """Return the number of the descriptor that represents the set."""
        return self._descriptor.number

    def wait(self, seconds: float | None, *, is_full: bool) -> None:
        """Raise NotImplementedError, because virtual time passes only in an event loop."""
        raise NotImplementedError(
            "a subscriber of oz.testing waits in a loop only: use it in bus.run(), or bus.blocking()"
        )

    def ring(self) -> None:
        """Make the descriptor of the set readable."""
        self._is_rung = True
        self._descriptor.signal()

    def silence(self) -> None:
        """End the effect of earlier calls of `ring`."""
        self._is_rung = False

    def close(self) -> None:
        """Remove all descriptors from the set. The loop stops watching the set."""
        self.remove([*self._members])
        self._descriptor.unwatch()
