"""The queue of the interests that subscribers declare: a publisher looks at them a little at a time.

What ZeroMQ is to do for a connection must be said as soon as a frame of it was read. That is cheap. To learn
what the frame means may take long, as patterns are compiled: so it waits its turn (`interest_turns`).
"""

from __future__ import annotations

from collections.abc import Callable

from oz.logs import peer_logger
from oz.protocol.prefix_counts import NOTHING, KeyChanges
from oz.protocol.publisher.accounts import Account, IsAlive, Peer
from oz.protocol.publisher.interest_turns import EarlyGoodbyes, InterestTurns
from oz.protocol.publisher.key_holders import KeyHolders
from oz.protocol.publisher.key_ownership import KeyOwnership
from oz.protocol.publisher.router import Router
from oz.security.access import Access
from oz.security.limits import Limits
from oz.wire import keys
from oz.wire.denials import Denial
from oz.wire.keys import OWN

_log = peer_logger("oz.publisher")

_FIRST_SWEEP = 64
"""Accounts from which on those of connections that have ended are looked for."""


_OVERHEAD, _OVERHEAD_OF_CURVE = 11, 64
"""Bytes of a frame on the wire beside its own at most, and with CURVE: nobody honest is to seem too quick.
Source: ZeroMQ RFC 37 (SUBSCRIBE is a command) and 26."""

_COUNTED_ANEW = 65_536
"""Bytes that are read of a connection until it is found out anew what ZeroMQ reads besides, as heartbeats."""


SWEEP_EVERY, _MOST_SWEPT = 1.0, 1_000
"""Seconds between two looks for what connections have left behind; keys and holders looked at each time."""


class InterestQueue:
    """Takes in the subscriptions of one publisher.

    Attributes:
        to_cut: connections that ask for more and more of what they are refused: they are to be cut off.
        accounts: of the connections that are known.
        closed: of those that had closed before anything of them was read, by public key.
        holders: who holds which key; None where ZeroMQ tells no connections apart.
        turns: the subscriptions that wait for their turn.
        plain_bytes: bytes of all plain subscriptions.
    """

    __slots__ = (
        "_by_descriptor",
        "_ended",
        "_goodbyes",
        "_limits",
        "_others",
        "_ownership",
        "_reports",
        "_router",
        "_sweep_at",
        "_swept_at",
        "accounts",
        "closed",
        "holders",
        "plain_bytes",
        "to_cut",
        "turns",
    )  # fmt: skip

    def __init__(
        self, router: Router, limits: Limits, is_alive: IsAlive | None, access: Access | None = None
    ) -> None:
        """Start with nothing.

        Args:
            router: learns who wants what.
            limits: how much a connection may ask for.
            is_alive: tells whether a connection is still there; None where ZeroMQ tells no connections apart.
            access: who may ask for what; None where everybody may for everything. It needs `is_alive`.
        """
        self._router = router
        self._limits = limits
        self.holders = None if is_alive is None else KeyHolders(is_alive)
        router.acceptance.access = access
        self._ownership = None
        if self.holders is not None:
            router.hold_alone = self.holders.hold_alone
            self._ownership = None if access is None else KeyOwnership(access, router, self.holders)
        self._goodbyes = EarlyGoodbyes()
        self._others = Account()
        # Those that had closed before anything of them was read, by public key.
        self.closed: dict[str | None, Account] = {}
        self._ended = Account()
        self._ended.has_ended = True
        self.accounts: dict[Peer, Account] = {}
        self._by_descriptor: dict[int, Account] = {}
        self.turns = InterestTurns(router.learn_stepwise, self._others)
        self.plain_bytes = 0
        self._sweep_at = _FIRST_SWEEP
        self._swept_at = 0.0
        self._reports = True
        self.to_cut: list[Peer] = []

    @property
    def waits(self) -> bool:
        """Whether something waits to be looked at."""
        # Asked for each message that goes out alone.
        return self.turns.size > 0

    def peers(self) -> list[Peer]:
        """Return the connections that have asked for something."""
        return [one for one, account in self.accounts.items() if account.keys]

    # what has come ---------------------------------------------------------------------------------------

    def pass_over(self, frame: bytes, peer: Peer | None) -> None:
        """Take in a frame of which ZeroMQ does not know any more by which connection it came.

        Nothing is granted by it. What asks for something has its connection cut, so that it asks again; so
        has what is no subscription, which caused that.

        Args:
            frame: 1 or 0 and the key, or anything else.
            peer: the connection that it came over, as ZeroMQ tells with the frame.
        """
        if frame[:1] == b"\x01" and self.holders is not None:
            self.holders.refuse(frame[1:], self._account_of(peer), peer)
        if peer is not None and peer not in self.to_cut:
            self.to_cut.append(peer)

    def take(self, frame: bytes, peer: Peer | None, now: float) -> KeyChanges:
        """Take in a frame.

        Args:
            frame: 1 or 0, and the key. Source: ZeroMQ RFC 29.
            peer: the connection that it came over; None where ZeroMQ does not tell, as at the end of one.
            now: monotonic seconds.

        Returns:
            What ZeroMQ is to send to that connection, or no longer.
        """
        key, comes = frame[1:], frame[:1] == b"\x01"
        if not comes and frame[:1] != b"\x00":
            return NOTHING
        account = teller = self._account_of(peer)
        account.read += len(frame) + (_OVERHEAD if self._ownership is None else _OVERHEAD_OF_CURVE)
        times, gone = 1, list[Account]()
        if self.holders is not None and comes:
            times = self._come(key, account, peer)
        elif self.holders is not None:
            times, gone = self._go(key, account, peer)
            if peer is None:
                account, teller = self.turns.behind(key, gone), self._ended
        granted = NOTHING
        for _ in range(times):
            granted = self._put(frame, account, teller, now)
        goodbye = self._goodbyes.take(key, account) if comes and times else None
        if goodbye is not None and self._come(goodbye, account, peer):
            self.turns.put(b"\x01" + goodbye, account, teller, now)
        return granted

    def _put(self, frame: bytes, account: Account, teller: Account, now: float) -> KeyChanges:
        """Have a frame wait for its turn, or learn at once what is plain; return what ZeroMQ is to send."""
        key = frame[1:]
        if not key.startswith(OWN):
            return self._router.learn(frame, now)
        self.turns.put(frame, account, teller, now)
        granted = self._router.granted(key, comes=frame[:1] == b"\x01")
        return granted if self._ownership is None else self._ownership.permitted(granted, account)

    def is_all_read(self, peer: Peer, read_by_zmq: Callable[[Peer], int | None]) -> None:
        """Record that ZeroMQ has nothing more for oz to read.

        Args:
            peer: the connection that the last frame came over.
            read_by_zmq: tells the bytes that ZeroMQ has read of one; None where that is unknown.
        """
        account = self._account_of(peer)
        if account.read - account.uncounted[1] >= _COUNTED_ANEW and (count := read_by_zmq(peer)) is not None:
            account.uncounted = count - account.read, account.read

    def look_behind(self, peer: Peer, read_by_zmq: Callable[[Peer], int | None]) -> None:
        """See how much ZeroMQ has read of a connection that oz has not: who sends too quickly is cut off.

        ZeroMQ reads on whatever oz does, and takes a hundred bytes for each.

        Args:
            peer: the connection that a frame came over of late.
            read_by_zmq: tells the bytes that ZeroMQ has read of one; None where that is unknown.
        """
        account, limits = self._account_of(peer), self._limits
        count = read_by_zmq(peer)
        most = limits.waiting_keys + limits.refused_bytes
        if account.is_limited and count is not None and count - account.read - account.uncounted[0] > most:
            self.to_cut.append(peer)

    def _account_of(self, peer: Peer | None) -> Account:
        if peer is None or self.holders is None:
            return self._others
        if peer.inode is None:
            # It has ended since, and was the last that had the descriptor.
            found = self._by_descriptor.get(peer.descriptor)
            if found is None or found.key != peer.key:
                found = self.closed.setdefault(peer.key, Account(key=peer.key, is_limited=True))
            return found
        account = self.accounts.get(peer)
        if account is None:
            if len(self.accounts) >= self._sweep_at:
                self.accounts = {
                    one: held
                    for one, held in self.accounts.items()
                    # Until it has ended it counts who was refused something.
                    if not held.is_idle or (held.refused and self.holders.is_alive(one))
                }
                self._sweep_at = max(_FIRST_SWEEP, 2 * len(self.accounts))
            account = self.accounts[peer] = self._by_descriptor[peer.descriptor] = Account(
                peer, self._limits.unsent
            )
        return account

    def _come(self, key: bytes, account: Account, peer: Peer | None) -> int:
        """Record that a connection has asked for a key; return 1 if it may."""
        assert self.holders is not None
        is_plain = not key.startswith(OWN)
        if not self._may_say(key, account, peer):
            self._goodbyes.add(keys.stream_key(keys.stream_of(key)), key, account)
            return 0
        reason = self._refusal(key, account, is_plain=is_plain)
        if reason is None and self._ownership is not None and peer is not None:
            reason = self._ownership.denial(key, account.key or "")
        if reason is not None:
            self.holders.refuse(key, account, peer)
            self._refuse(account, len(key), reason)
            if self._ownership is None or not self._ownership.is_taken(key, account.key):
                # Otherwise the answer would go to the other, who would take it for its own.
                self._router.refuse(key, reason)
            return 0
        if self.holders.add(key, account, peer):
            account.hold(len(key), is_stream=key.startswith(keys.STREAM), is_plain=is_plain)
            self.plain_bytes += len(key) * is_plain
        return 1

    def _may_say(self, key: bytes, account: Account, peer: Peer | None) -> bool:
        """Tell whether a key is no goodbye, or one to a stream that the connection listens on."""
        assert self.holders is not None
        if not key.startswith(keys.DECLARATION) or not keys.is_goodbye(key):
            return True
        return self.holders.holds(keys.stream_key(keys.stream_of(key)), account, peer)

    def _go(self, key: bytes, account: Account, peer: Peer | None) -> tuple[int, list[Account]]:
        """Record that a connection has taken back a key, or has ended.

        Returns:
            How many less hold it, and the accounts that do not hold it any more.
        """
        assert self.holders is not None
        if key.startswith(keys.DECLARATION) and keys.is_goodbye(key):
            self._goodbyes.forget(keys.stream_key(keys.stream_of(key)), key, account)
        if account.peer is not None:
            less, gone = self.holders.take_back(key, account)
        elif peer is not None:
            less, gone = self.holders.take_back_closed(key, peer.descriptor)
        else:
            less, gone = self.holders.end_one(key)
        self._count_out(key, gone)
        return less, gone

    def _count_out(self, key: bytes, gone: list[Account]) -> None:
        is_plain = not key.startswith(OWN)
        for one in gone:
            one.hold(len(key), is_stream=key.startswith(keys.STREAM), is_plain=is_plain, by=-1)
            self.plain_bytes -= len(key) * is_plain

    @property
    def has_doubts(self) -> bool:
        """Whether `sweep` may find something, now or later."""
        return self.holders is not None and (self.holders.has_doubts or len(self._goodbyes) > 0)

    def sweep(self, now: float) -> None:
        """Take back what connections have left behind, now and then; all that ZeroMQ has was read.

        Args:
            now: monotonic seconds.
        """
        if self.holders is None or now - self._swept_at < SWEEP_EVERY:
            return
        self._swept_at = now
        self._goodbyes.sweep(self.holders.is_alive)
        for key, less, gone in self.holders.sweep(_MOST_SWEPT, self.accounts.values()):
            self._count_out(key, gone)
            for _ in range(less):
                self._put(b"\0" + key, self.turns.behind(key, gone), self._ended, now)

    def _refusal(self, key: bytes, account: Account, *, is_plain: bool) -> str | None:
        """Say why a connection may not subscribe to a key, if so."""
        assert self.holders is not None
        limits, size = self._limits, len(key)
        # A verbose proxy asks for each of its subscribers: that takes no more room, but for what waits.
        is_held = account.peer is not None and self.holders.holds(key, account, account.peer)
        if is_plain and not is_held and self.plain_bytes + size > limits.all_plain_bytes:
            return f"all plain subscriptions together have at most {limits.all_plain_bytes:g} bytes"
        if not is_plain and self.turns.size + size > limits.all_waiting_keys:
            return f"keys of {self.turns.size} bytes wait to be looked at"
        if is_held:
            return None if is_plain else account.refusal_to_wait(limits, size)
        return account.refusal(limits, size, is_stream=key.startswith(keys.STREAM), is_plain=is_plain)

    def revoke(self, now: float) -> None:
        """Have the connections cut that hold what they may not have any more; they may ask again.

        Args:
            now: monotonic seconds.
        """
        if self._ownership is None:
            return
        # What waits was let through to ZeroMQ by what held then.
        lost = {one for one in self.turns.accounts() if one.is_limited}
        lost |= self._ownership.losers(self.accounts.values(), now)
        self.to_cut += [one.peer for one in lost if one.peer is not None]

    def _refuse(self, account: Account, size: int, reason: str) -> None:
        if isinstance(reason, Denial):
            self._router.acceptance.deny(account, reason)
        else:
            self._router.stats.refused += 1
        before, account.refused_bytes = account.refused_bytes, account.refused_bytes + size
        if account.peer is not None and before <= self._limits.refused_bytes < account.refused_bytes:
            # What it says costs libzmq time and memory, whatever comes of it here.
            self.to_cut.append(account.peer)
        if self._reports and not isinstance(reason, Denial):
            self._reports = False
            _log.warning(
                "a connection asks for more than one may, and is refused it: %s; "
                "docs/limits.md says how to allow it more",
                reason,
            )

    def work(self, clock: Callable[[], float]) -> None:
        """Learn what waits, one connection after the other, for as long as the limits allow.

        Args:
            clock: what time it is, in monotonic seconds.
        """
        self.turns.work(clock, self._limits.interest_time)
