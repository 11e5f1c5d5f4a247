"""The engine of sync and asyncio publishers: all but the waiting."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf
from typing import Any, NoReturn

import zmq

from oz.errors import KEYS_HINT, ClosedError, Timeout, WouldBlock
from oz.numbers import check_count
from oz.program_end import end_daemon
from oz.protocol.stats import PublisherStats
from oz.security.access import Access, Reserved
from oz.transport.attachments import Attachments
from oz.transport.backend import backend_of, new_socket
from oz.transport.calls import Calls
from oz.transport.guard import Guard
from oz.transport.peer_keys import PeerKeys
from oz.transport.publisher import alone
from oz.transport.publisher.attending import Attendant, KeyedInterest, Shell
from oz.transport.publisher.closing import PublisherClosing, pauses
from oz.transport.publisher.options import PublisherOptions, Role
from oz.transport.publisher.sender import Refused, Sender
from oz.transport.publisher.sink import PlainFrames
from oz.transport.publisher.subjects import Routes, subject_check
from oz.transport.security import credentials_of


class PublisherEngine:
    """Has an XPUB socket, and does all that is done on it. Its subclasses add the waiting.

    Attributes:
        socket: the socket; only who has the guard uses it.
        guard: lets one thread after the other use it.
        attachments: where it is bound.
        router: who wants what.
        dispatch: sends batches.
        records: tells subscribers where this publisher stands.
        sender: what every message passes through.
        closing: the end of it all.
        dialect: the dialect that subjects must be valid in.
        on_full: what to do when a subscriber is at its high-water mark.
        full_timeout: seconds that `"block"` waits at most; None is for ever.
        monotonic: the clock that its deadlines are of.
        flush_now: sends what waits in the accumulator; raises ClosedError.
        listen: takes in the subscriptions that have arrived; see `Attendant.listen`.
        rest: says how long the thread or loop behind it may sleep; see `Attendant.rest`.
        attend: does what is due; see `Attendant.attend`.
    """

    def __init__(self, options: PublisherOptions, shell: Shell, role: Role) -> None:
        """Make one that is not bound yet.

        Args:
            options: of the node.
            shell: the thread or the loop.
            role: what the publisher knows of its subscribers.

        Raises:
            zmq.ZMQError: there are too many sockets.
        """
        self.dialect = options.dialect
        self.on_full = options.on_full
        self.full_timeout = options.full_timeout
        self._shell = shell
        self.guard = guard = Guard()
        self.attachments = Attachments(guard, credentials_of(options.security))
        self._calls: Calls | None = None
        assert options.context is not None
        self.socket = socket = new_socket(options.context, zmq.XPUB)
        backend = backend_of(socket)
        self.monotonic = backend.monotonic
        parts = options.route(socket, role)
        self.router, self.dispatch, self.records = parts.router, parts.dispatch, parts.records
        routes = Routes(
            guard,
            self.router,
            subject_check(options.dialect, self.attachments.endpoints),
            self.check_open,
        )
        plain = PlainFrames(guard, self.dispatch, parts.sink, backend)
        self.sender = Sender(
            guard, options.codec, parts,
            routes=routes, hand_over=plain.shortest(), in_use=shell.in_use, check_open=self.check_open,
            expect_more=shell.expect_more, in_turns=shell.in_turns, backend=backend,
        )  # fmt: skip
        self.sender.send_alone = alone.shortest(self.sender, parts.sink, socket)
        self.closing = PublisherClosing(socket, guard, self.attachments, parts, self.sender)
        self.sender.most_bytes = options.limits.message_size
        attendant = Attendant(
            socket,
            guard,
            parts,
            self.sender,
            self.closing,
            shell,
            limits=options.limits,
            security=self._secured(options, role.reserved),
            interest_changed=role.interest_changed,
        )
        self.listen, self.rest, self.attend = attendant.listen, attendant.rest, attendant.attend
        self.flush_now = partial(self.sender.flush, socket)
        try:
            options.set_up(socket)
        except BaseException:
            self.give_up()
            raise
        # `Context.destroy` is to know of it, as of what `Context.socket` makes.
        socket.context._add_socket(self)

    def _secured(self, options: PublisherOptions, reserved: Reserved | None) -> KeyedInterest | None:
        credentials = self.attachments.credentials
        if credentials is None:
            return None
        # A refusal is logged: `publish` goes on for all others.
        self._calls = self.closing.calls = Calls(self.attachments, lambda error: None, lambda end: end())
        access = Access(credentials.rights, options.dialect, reserved=reserved)
        return KeyedInterest(PeerKeys(self.attachments, backend_of(self.socket)).receive, access, self._calls)

    def give_up(self) -> None:
        """Leave nothing open behind when it was never bound nor connected."""
        self.closing.close_socket(0)

    # the socket ------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self.socket.closed

    @property
    def context(self) -> zmq.Context[Any]:
        """The context of its socket."""
        return self.socket.context

    @property
    def is_foreign(self) -> bool:
        """Whether it was made before a fork, in the parent process."""
        return self.guard.is_foreign

    @property
    def stats(self) -> PublisherStats:
        """The counts of this publisher so far; see `PublisherStats`."""
        return self.sender.stats if self.is_foreign else self.sender.count()

    def has_to_make_room(self) -> bool:
        """Tell whether more waits to be looked at, and somebody publishes meanwhile, who is to come first."""
        is_wanted, self.guard.is_wanted = self.guard.is_wanted, False
        return is_wanted and self.sender.is_behind

    def check_open(self) -> None:
        """Refuse what comes after the end.

        Raises:
            ClosedError: the publisher is closed, or closes.
        """
        if self.socket._closed:
            end_daemon()
            raise ClosedError("this Publisher is closed")
        if self.sender.routes.is_closing:
            raise ClosedError("this Publisher is closing")

    def bind(self, addr: str | bytes) -> Any:
        """Bind to an endpoint; see `Attachments.bind`."""
        if self._calls is not None:
            with self.guard:
                self._calls.begin(self.socket)
        manager = self.attachments.bind(self.socket, addr)
        # What was allowed to leave, `_LOCAL.` subjects above all, may not be any more.
        self.sender.routes.forget_valid()
        self._shell.attached()
        self._shell.in_use()
        return manager

    def setsockopt(self, option: int, optval: Any) -> None:
        """Set a socket option, as `zmq.Context.destroy` does."""
        with self.guard:
            self.socket.set(option, optval)

    # publishing ------------------------------------------------------------------------------------------

    def publish_again(self, refused: Refused) -> bool:
        """Publish a message if there is room for it now; tell whether there was.

        Raises:
            ClosedError: the publisher was closed meanwhile.
        """
        (_, raw), payload, item = refused
        with self.guard:
            self.check_open()
            # Its route is looked up again: interests may have changed meanwhile.
            route = self.sender.routes.look_up(raw)
            return self.sender.publish_any(self.socket, route, payload, item) is None

    def try_again(self, subject: Any, refused: Refused) -> Iterator[float]:
        """Publish a message once there is room for it; give the seconds to wait between the attempts.

        Raises:
            WouldBlock: there was none in time, or it is not to be waited for.
            ClosedError: the publisher was closed meanwhile.
        """
        if self.on_full != "block":
            self.refuse(subject)
        deadline = inf if self.full_timeout is None else self.monotonic() + self.full_timeout
        for pause in pauses():
            # Looked at before the attempt: whoever was not scheduled until the end still has one.
            is_over = self.monotonic() >= deadline
            if self.publish_again(refused):
                return
            if is_over:
                self.refuse(subject)
            yield pause

    def refuse(self, subject: str | bytes) -> NoReturn:
        """Refuse a message that was published, and count it.

        Raises:
            WouldBlock: always.
        """
        self.sender.stats.dropped += 1
        has_waited = self.on_full == "block" and self.full_timeout is not None
        waited = f" for {self.full_timeout:g} s" if has_waited else ""
        raise WouldBlock(
            f"a subscriber is at its high-water mark{waited}; {subject!r} was not sent to anybody"
        ) from None

    def report_loss(self, count: int | None) -> None:
        """Report messages as lost here; see `oz.Publisher.report_loss`."""
        if count is not None:
            check_count("count", count, 0, 2**62)
        self.check_open()
        with self.guard:
            # What was published before stays before.
            self.sender.accumulator.flush(self.socket)
            self.guard.undivided(self.sender.skip, count)
            self.records.beats_at = 0.0
            self.records.beat(self.monotonic())
            self._shell.in_use()

    def interest(self, subject: str | bytes) -> bool:
        """Tell whether a subscriber has asked for what a subject begins with; see `oz.Publisher.interest`."""
        self.check_open()
        if subject is None:
            raise TypeError("which subject? It is str or bytes, not None")
        return self.enough(1, subject)

    def enough(self, wanted: int, subject: str | bytes | None) -> bool:
        """Tell whether there are so many subscriptions; for a subject, of those that let it through."""
        if not isinstance(wanted, int) or isinstance(wanted, bool):
            raise TypeError(
                f"n is how many subscriptions to wait for, not {wanted!r}; a subject is subject=…"
            )
        self.listen()
        return self.sender.routes.count(subject) >= wanted

    def too_few(self, wanted: int, subject: str | bytes | None, timeout: float | None) -> Timeout:
        """Return the error of a wait that ended with too few subscriptions."""
        what = "" if subject is None else f" for {subject!r}"
        count = self.sender.routes.count(subject)
        hint = f". {KEYS_HINT}" if self.attachments.may_lack_keys else ""
        return Timeout(f"{count} of {wanted} subscriptions{what} came within {timeout or 0:g} s{hint}")
