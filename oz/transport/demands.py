"""The demands of listeners for keys, as a side finds them out that has none.

ZeroMQ tells it nothing: it goes on trying, and nobody ever answers. A listener names the mechanism that it
demands in its greeting, before anything has been proved. Source: ZeroMQ RFC 23 (ZMTP), greeting.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from oz.errors import PermissionDenied
from oz.protocol.backoff import growing
from oz.transport.endpoints import addresses_of

ASKED_AFTER = 0.5
"""Seconds in which nearly all answer who demand no keys; others are asked then."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds before somebody is asked again who has not said."""

_PATIENCE = 1.0
"""Seconds for which a greeting is waited for."""

_LOOK_EVERY = 0.05
"""Seconds between two looks at what was found, where nobody is woken by it."""

_ASKED = ("tcp", "ipc")

_SIGNATURE = b"\xff" + bytes(8) + b"\x7f" + b"\x03"
"""The signature of ZMTP, and its version: what a listener answers by the rest of its own greeting."""

KEYLESS = "NULL"
"""The mechanism of whoever demands no keys."""

_MECHANISM = slice(12, 32)


class Demands:
    """The endpoints that one side has named, and which of them demand keys.

    Attributes:
        refusals: why there is no connection, in words, by endpoint; of those that were named until they are
            asked again, or settled.
        absent: the endpoints at which nobody said anything when they were asked last.
    """

    __slots__ = (
        "_asking",
        "_at",
        "_found",
        "_is_needed",
        "_lasting",
        "_pauses",
        "_tell",
        "_wake",
        "absent",
        "refusals",
    )

    def __init__(
        self,
        endpoints: Iterable[str],
        now: float,
        *,
        is_needed: Callable[[str], bool] = lambda _: True,
        tell: Callable[[str, str], object] = lambda *_: None,
        wake: Callable[[], object] = lambda: None,
    ) -> None:
        """Begin; nobody is asked yet.

        Args:
            endpoints: those that the user has named.
            now: monotonic seconds.
            is_needed: tells whether nobody has answered at an endpoint; otherwise it is not asked any more.
            tell: is told of a refusal: in words, and where.
            wake: has `look` called soon; called by any thread.
        """
        asked = [one for one in endpoints if can_be_asked(one)]
        self._at = dict.fromkeys(asked, now + ASKED_AFTER)
        self._pauses: dict[str, Iterator[float]] = {}
        self._lasting = frozenset(asked)
        self._asking: set[str] = set()
        self._found: dict[str, str | None] = {}
        self._is_needed = is_needed
        self._tell, self._wake = tell, wake
        self.refusals: dict[str, str] = {}
        self.absent: set[str] = set()

    def next_deadline(self) -> float | None:
        """Return when to call `look`, in monotonic seconds; None for never."""
        return min(self._at.values(), default=None)

    def next_look_in(self, now: float) -> float | None:
        """Return in how many seconds to call `check`, also while somebody is being asked; None for never."""
        at = self.next_deadline()
        left = None if at is None else max(0.0, at - now)
        return left if not self._asking else min(_LOOK_EVERY, _LOOK_EVERY if left is None else left)

    def check(self, now: float) -> None:
        """Do what is due, where nobody is told.

        Raises:
            PermissionDenied: somebody demands keys.
        """
        self.look(now)
        if self.refusals:
            raise PermissionDenied("; ".join(self.refusals.values()))

    def look(self, now: float) -> None:
        """Take in what was found, and ask those whose time it is."""
        while self._found:
            self._take(*self._found.popitem(), now)
        for endpoint in [one for one, at in self._at.items() if now >= at]:
            del self._at[endpoint]
            if self._is_needed(endpoint):
                self._begin(endpoint)
            else:
                self.refusals.pop(endpoint, None)

    def ask(self, endpoint: str) -> None:
        """Ask somebody now, named or not, unless that is known or being asked; `look` takes the answer in.

        Those whose first time is to come are asked then: nobody could have begun to listen to what is told.
        """
        is_first = endpoint in self._at and endpoint not in self._pauses
        if can_be_asked(endpoint) and not is_first and endpoint not in self._asking | self.refusals.keys():
            self._begin(endpoint)

    def is_asking(self, endpoint: str) -> bool:
        """Tell whether somebody is being asked."""
        return endpoint in self._asking

    @property
    def is_asking_any(self) -> bool:
        """Whether anybody is being asked."""
        return bool(self._asking)

    def settle(self, endpoint: str) -> None:
        """Record that a listener demands no keys: a connection stands."""
        self.absent.discard(endpoint)
        self._asking.discard(endpoint)
        for one in (self.refusals, self._at, self._pauses):
            one.pop(endpoint, None)

    def refuse(self, why: str, endpoint: str) -> None:
        """Record that somebody demands keys, and tell of it where that is news.

        Args:
            why: in words.
            endpoint: where.
        """
        if endpoint not in self.refusals:
            self.refusals[endpoint] = why
            self._tell(why, endpoint)

    def _begin(self, endpoint: str) -> None:
        self._asking.add(endpoint)
        name = f"oz-greeting-{endpoint}"
        threading.Thread(target=self._ask, args=(endpoint,), name=name, daemon=True).start()

    def _take(self, endpoint: str, mechanism: str | None, now: float) -> None:
        if endpoint not in self._asking:
            # A connection stands since.
            return
        self._asking.discard(endpoint)
        (self.absent.add if mechanism is None else self.absent.discard)(endpoint)
        if mechanism == KEYLESS:
            self.refusals.pop(endpoint, None)
            return
        if endpoint in self._lasting:
            pauses = self._pauses.setdefault(endpoint, growing(_FIRST_PAUSE, _LONGEST_PAUSE))
            self._at[endpoint] = now + next(pauses)
        if mechanism is not None:
            why = (
                f"{endpoint} demands keys ({mechanism}), and this side has none: give it security=, or let "
                "OZ_SECURITY or [security] name a file with its key"
            )
            self.refuse(why, endpoint)

    def _ask(self, endpoint: str) -> None:
        self._found[endpoint] = mechanism_at(endpoint)
        self._wake()


def can_be_asked(endpoint: str) -> bool:
    """Tell whether a listener at an endpoint can be asked."""
    return endpoint.partition("://")[0] in _ASKED


def mechanism_at(endpoint: str) -> str | None:
    """Return the mechanism that a listener demands; None where nobody says."""
    ends = time.monotonic() + _PATIENCE
    for address in addresses_of(endpoint):
        with suppress(OSError), socket.socket(_family(address)) as caller:
            caller.settimeout(max(0.01, ends - time.monotonic()))
            caller.connect(address if len(address) > 1 else address[0])
            caller.sendall(_SIGNATURE)
            greeting = b""
            while len(greeting) < _MECHANISM.stop:
                caller.settimeout(max(0.01, ends - time.monotonic()))
                greeting += (some := caller.recv(64))
                if not some:
                    break
            else:
                is_zmtp = greeting[0] == _SIGNATURE[0] and greeting[9] & 1
                name = greeting[_MECHANISM].rstrip(b"\0")
                return name.decode() if is_zmtp and name.isalnum() else None
    return None


def _family(address: tuple[object, ...]) -> socket.AddressFamily:
    if len(address) == 1:
        return socket.AF_UNIX
    return socket.AF_INET6 if ":" in str(address[0]) else socket.AF_INET
