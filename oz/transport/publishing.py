"""What sync and asyncio publishers share: all but the waiting."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, Literal, NoReturn

import zmq

from oz.errors import ProtocolError, SubjectError, SubjectWarning, WouldBlock
from oz.protocol.interest import PeerInterest
from oz.protocol.stats import PublisherStats
from oz.subjects import dialects
from oz.subjects.pattern import DEFAULT_DIALECT
from oz.transport import endpoints
from oz.transport.guard import Guard
from oz.transport.joining import JoiningOutlet
from oz.transport.outlet import LISTEN_EVERY, Outlet
from oz.transport.socket import BaseSocket, backend_get, backend_recv, check_delimiter
from oz.wire.codec import Codec, find_codec

OnFull = Literal["drop", "block", "error"]

OWN_KEYS = b"\x00\x31"
"""No subject may begin with these bytes: they open the keys of routed messages."""

SUBJECTS_REMEMBERED = 65_536
"""How many subjects a publisher remembers as valid."""

# As plain numbers: the enum members cost 0.3 µs a message.
_NOBLOCK = int(zmq.NOBLOCK)
_POLLIN = int(zmq.POLLIN)


class PublisherBase(BaseSocket):
    """An XPUB socket that checks subjects. `oz.Publisher` and `oz.asyncio.Publisher` add the waiting."""

    _kind = zmq.XPUB
    _accepted_kinds = (zmq.PUB, zmq.XPUB)
    _outlet: Outlet
    _delimiter: bytes
    _interest: PeerInterest
    _on_full: OnFull
    _full_timeout: float | None
    _plain_sends: int = 0

    def __init__(
        self,
        bind: Any = None,
        connect: Any = None,
        *,
        dialect: str = DEFAULT_DIALECT,
        context: zmq.Context[Any] | None = None,
        codec: str | Codec | None = None,
        delimiter: bytes | None = None,
        on_full: OnFull = "drop",
        full_timeout: float | None = None,
        high_water_mark: int | None = None,
    ) -> None:
        r"""Make a publisher.

        Args:
            bind: an endpoint to bind to, or a list of them; `tcp://127.0.0.1:*` lets the system choose.
            connect: an endpoint to connect to, or a list of them.
            dialect: the dialect that subjects must be valid in; one of `oz.DIALECTS`.
            context: the ZeroMQ context to share; without it the publisher has one of its own.
            codec: `"msgpack"`, or an object with `encode` and `decode`; without it payloads are bytes.
            delimiter: for messages of one frame: what stands between subject and payload, such as
                `b" "` or `b"\\0"`. Without it the subject is a frame of its own.
            on_full: what to do when a subscriber is at its high-water mark: `"drop"` the message for
                that subscriber, as ZeroMQ does; `"block"` until there is room for all; `"error"` raises.
            full_timeout: seconds that `"block"` waits at most; None is for ever.
            high_water_mark: messages that may wait here for each subscriber; 0 is no limit. Default
                100,000, or what ZeroMQ has when the context is yours.

        Raises:
            ValueError: no such dialect, codec, `on_full` or endpoint, or an empty delimiter.
            TransportUnavailable: this libzmq lacks the transport of an endpoint.
            zmq.ZMQError: an endpoint cannot be bound or connected to.
        """
        if isinstance(bind, zmq.Context):
            # pyzmq's own way to make a socket: (context, type).
            context, kind, bind, connect = bind, connect, None, None
        else:
            kind = None
        if on_full not in ("drop", "block", "error"):
            raise ValueError(f'on_full is "drop", "block" or "error", not {on_full!r}')
        found, ends = find_codec(codec), check_delimiter(delimiter)
        self._create(context, kind, dialect, Guard(waits=True))
        self._outlet = (Outlet if ends is None else JoiningOutlet)(self._guard, found)
        self._delimiter = ends or b""
        self._interest = PeerInterest()
        self._on_full = on_full
        self._full_timeout = full_timeout
        with self._closed_on_failure():
            self._set_options(high_water_mark)
            self._attach(bind, connect)

    def _set_options(self, high_water_mark: int | None) -> None:
        self._set_high_water_mark(high_water_mark)
        # Every subscription and unsubscription is reported, not only the first and last of a prefix.
        self.set(zmq.XPUB_VERBOSER, 1)
        if self._on_full != "drop":
            self.set(zmq.XPUB_NODROP, 1)

    def connect(self, addr: str) -> Any:
        """Connect to an endpoint, such as a proxy's; see `BaseSocket.connect`."""
        # Without it the pipe to a peer that is gone stays, and with it interests that nobody has.
        self.set(zmq.IMMEDIATE, 1)
        return super().connect(addr)

    @property
    def stats(self) -> PublisherStats:
        """What this publisher did so far; see `PublisherStats`."""
        return self._outlet.stats

    # subjects --------------------------------------------------------------------------------------------

    def _admit(self, subject: Any) -> bytes:
        """Check a subject that is not remembered; give its bytes.

        Raises:
            SubjectError: the dialect does not allow it, or it may not leave this host.
            ProtocolError: it begins with the bytes that are oz's own.
            TypeError: it is no text.
        """
        rules = dialects.find(self.dialect)
        own = rules.decode(subject, SubjectError)
        rules.check_subject(own)
        raw = own if isinstance(own, bytes) else own.encode()
        if raw.startswith(OWN_KEYS):
            raise ProtocolError(f"subject {subject!r} begins with {OWN_KEYS!r}, which opens oz's own keys")
        if raw.startswith(b"_LOCAL.") and not all(endpoints.is_local(one) for one in self._endpoints):
            rule = f"_LOCAL subjects stay on this host, and {', '.join(self._endpoints)} does not"
            raise SubjectError(self.dialect, subject, 0, rule)
        advice = rules.subject_advice(own)
        if advice is not None:
            warnings.warn(advice, SubjectWarning, stacklevel=5)
        if self._delimiter and self._delimiter in raw:
            rule = f"the delimiter {self._delimiter!r} ends the subject, so it cannot hold one"
            raise SubjectError(self.dialect, subject, raw.index(self._delimiter), rule)
        raw += self._delimiter
        subjects = self._outlet.subjects
        if len(subjects) >= SUBJECTS_REMEMBERED:
            subjects.clear()
        if isinstance(subject, (str, bytes)):
            subjects[subject] = raw
        return raw

    def _endpoints_changed(self) -> None:
        # What was allowed to leave, `_LOCAL.` subjects above all, may not be any more.
        self._outlet.subjects.clear()

    def _refused(self, subject: str | bytes) -> NoReturn:
        self._outlet.stats.dropped += 1
        has_waited = self._on_full == "block" and self._full_timeout is not None
        waited = f" for {self._full_timeout:g} s" if has_waited else ""
        raise WouldBlock(
            f"a subscriber is at its high-water mark{waited}; {subject!r} was not sent to anybody"
        ) from None

    # interest --------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Take in the subscriptions that have arrived. They would pile up in the socket otherwise."""
        with self._guard:
            while int(backend_get(self, zmq.EVENTS)) & _POLLIN:
                self._interest.learn(backend_recv(self, _NOBLOCK))

    def interest(self, subject: str | bytes) -> bool:
        """Tell whether any subscriber has asked for what a subject begins with.

        Args:
            subject: a valid subject of the dialect.

        Raises:
            SubjectError: it is not.
            ClosedError: the publisher is closed.
        """
        self._check_open()
        if subject is None:
            raise TypeError("which subject? wait_for_subscribers() is for all of them")
        return self._enough(1, subject)

    def _enough(self, wanted: int, subject: str | bytes | None) -> bool:
        if not isinstance(wanted, int):
            raise TypeError(
                f"n is how many subscriptions to wait for, not {wanted!r}; a subject is subject=…"
            )
        self._listen()
        raw = None if subject is None else self._outlet.subject(self, subject)
        return self._interest.count(raw) >= wanted

    def _too_few(self, wanted: int, subject: str | bytes | None, timeout: float | None) -> str:
        raw = None if subject is None else self._outlet.subject(self, subject)
        what = "" if subject is None else f" for {subject!r}"
        return f"{self._interest.count(raw)} of {wanted} subscriptions{what} came within {timeout or 0:g} s"

    # the pyzmq surface -----------------------------------------------------------------------------------

    def send(  # type: ignore[override]
        self, data: Any, flags: int = 0, copy: bool = True, track: bool = False, **kwargs: Any
    ) -> Any:
        """Send one frame, as `zmq.Socket.send` does: subjects are not checked here."""
        with self._guard:
            self._listen_at_times()
            return super().send(data, flags, copy=copy, track=track, **kwargs)

    def send_multipart(
        self, msg_parts: Iterable[Any], flags: int = 0, copy: bool = True, track: bool = False, **kwargs: Any
    ) -> Any:
        """Send the frames of one message, as `zmq.Socket.send_multipart` does, unchecked."""
        with self._guard:
            self._listen_at_times()
            return super().send_multipart(list(msg_parts), flags, copy=copy, track=track, **kwargs)

    def _listen_at_times(self) -> None:
        self._plain_sends += 1
        if not self._plain_sends % LISTEN_EVERY:
            self._listen()

    def poll(self, timeout: int | None = None, flags: int = zmq.POLLIN) -> Any:
        """Wait for events, as `zmq.Socket.poll`: milliseconds.

        Raises:
            OwnershipError: the publisher was made before a fork.
        """
        self.check_owner()
        return super().poll(timeout, flags)

    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> NoReturn:
        """Refuse, as a PUB socket does; see `interest` for what subscribers want."""
        raise zmq.ZMQError(zmq.ENOTSUP)
