"""The frames of subscribers that wait at a publisher: to be learned, in turns; or, goodbyes, for a stream."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator

from oz.protocol.publisher.accounts import Account, IsAlive

Learn = Callable[[bytes, float, Account], Iterator[None]]
"""Called with a frame, the time and the account that tells, learns what the frame means step by step."""

_DONE = object()

_MOST_EARLY, _MOST_OF_ONE, _LONGEST_GOODBYE = 4_096, 256, 320
"""Goodbyes that are kept, of all connections and of one; and their bytes: what is longer has patterns, and is
malformed."""


class _Waiting:
    """One frame that waits, and the work on it."""

    __slots__ = ("frame", "steps")

    def __init__(self, frame: bytes, steps: Iterator[None]) -> None:
        self.frame = frame
        self.steps = steps


class InterestTurns:
    """Works off the frames of connections, one of each in turn.

    Attributes:
        size: bytes of all that wait.
    """

    __slots__ = ("_inside", "_keys", "_learn", "_turns", "size")

    def __init__(self, learn: Learn, inside: Account) -> None:
        """Start with nothing.

        Args:
            learn: learns what a frame means.
            inside: the account of what is in this process, which waits for nobody.
        """
        self._learn = learn
        self._inside = inside
        self._turns: OrderedDict[Account, None] = OrderedDict()
        self._keys: dict[bytes, tuple[Account, int]] = {}
        self.size = 0

    def accounts(self) -> Collection[Account]:
        """Return those of whom something waits."""
        return self._turns.keys()

    def keys(self) -> Collection[bytes]:
        """Return the keys that are asked for by what waits."""
        return self._keys.keys()

    def put(self, frame: bytes, account: Account, teller: Account, now: float) -> None:
        """Put a frame behind all others of its connection.

        Args:
            frame: 1 or 0, and the key.
            account: whose turn it has.
            teller: whose it is.
            now: monotonic seconds.
        """
        if frame[:1] == b"\x01":
            _, count = self._keys.get(key := frame[1:], (account, 0))
            self._keys[key] = (account, count + 1)
        account.waiting.append(_Waiting(frame, self._learn(frame, now, teller)))
        # Of the key alone: limits go by that.
        account.waiting_bytes += len(frame) - 1
        self.size += len(frame) - 1
        self._turns[account] = None

    def behind(self, key: bytes, gone: Collection[Account]) -> Account:
        """Return the account behind whose frames it is looked at that a key was taken back by an end.

        What a connection took back by ending is behind what it asked for, and behind its goodbye.

        Args:
            key: the key.
            gone: the accounts that do not hold it any more.
        """
        waiting = next((one for one in gone if one.waiting), None)
        known = self._keys.get(key)
        return waiting or (self._inside if known is None else known[0])

    def work(self, clock: Callable[[], float], seconds: float) -> None:
        """Look at what waits, one connection after the other.

        Args:
            clock: what time it is, in monotonic seconds.
            seconds: after which to stop, though more waits.
        """
        if not self._turns:
            return
        # All of what is inside the process: a node that publishes hears what it has subscribed to before.
        inside = self._inside
        while inside.waiting:
            for _ in inside.waiting[0].steps:
                pass
            self._forget(inside.waiting.popleft().frame, inside)
        self._turns.pop(inside, None)
        deadline = clock() + seconds
        while self._turns:
            account, _ = self._turns.popitem(last=False)
            first = account.waiting[0]
            if next(first.steps, _DONE) is _DONE:
                account.waiting.popleft()
                self._forget(first.frame, account)
            if account.waiting:
                self._turns[account] = None
            if clock() >= deadline:
                return

    def _forget(self, frame: bytes, account: Account) -> None:
        key = frame[1:]
        account.waiting_bytes -= len(key)
        self.size -= len(key)
        if frame[:1] == b"\x01":
            holder, count = self._keys[key]
            if count > 1:
                self._keys[key] = (holder, count - 1)
            else:
                del self._keys[key]


class EarlyGoodbyes:
    """The goodbyes of connections that do not listen on the stream yet.

    A connection that begins asks in the order of bytes: a goodbye before its stream. So they come of a
    subscriber that leaves just as it meets a publisher, and waits for its answer.
    """

    __slots__ = ("_count", "_kept")

    def __init__(self) -> None:
        """Begin without any."""
        self._kept: dict[bytes, dict[Account, bytes]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return self._count

    def add(self, stream: bytes, key: bytes, account: Account) -> None:
        """Keep a goodbye, if it is not one too many.

        Args:
            stream: the key of the stream.
            key: the goodbye's.
            account: of the connection that says it.
        """
        self.take(stream, account)
        if len(key) <= _LONGEST_GOODBYE and account.goodbyes < _MOST_OF_ONE and self._count < _MOST_EARLY:
            self._kept.setdefault(stream, {})[account] = key
            account.goodbyes += 1
            self._count += 1

    def take(self, stream: bytes, account: Account) -> bytes | None:
        """Return the goodbye of a connection, which is not kept any more; None where there is none."""
        kept = self._kept.get(stream, {})
        key = kept.pop(account, None)
        if key is not None:
            account.goodbyes -= 1
            self._count -= 1
            if not kept:
                del self._kept[stream]
        return key

    def forget(self, stream: bytes, key: bytes, account: Account) -> None:
        """Forget a goodbye that is taken back.

        Args:
            stream: the key of the stream.
            key: the goodbye's.
            account: of the connection. Where ZeroMQ does not tell, one of those that have said it counts.
        """
        said = [one for one, kept in self._kept.get(stream, {}).items() if kept == key]
        if account in said or account.peer is None:
            for one in (account,) if account in said else said[:1]:
                self.take(stream, one)

    def sweep(self, is_alive: IsAlive) -> None:
        """Forget those of connections that have ended, or of which nothing is known.

        Args:
            is_alive: tells whether a connection is still there.
        """
        known = {one for kept in self._kept.values() for one in kept}
        gone = {one for one in known if one.peer is None or not is_alive(one.peer)}
        for stream, kept in list(self._kept.items()) if gone else ():
            for account in gone & kept.keys():
                self.take(stream, account)
