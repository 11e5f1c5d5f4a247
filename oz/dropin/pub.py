"""A PUB of pyzmq that checks subjects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq

from oz.dropin.checks import check_arguments
from oz.subjects.pattern import validate_subject

_SNDMORE = int(zmq.SNDMORE)


class SendState:
    """State of one libzmq PUB, which its shadows share.

    Attributes:
        dialect: dialect of the subjects.
        is_checked: whether the dialect forbids any subject.
        more: whether the last frame was sent with SNDMORE, so that the next frame is not a subject. Not kept
            unless `is_checked`.
    """

    __slots__ = ("dialect", "is_checked", "more")

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.is_checked = dialect != "zmq"
        self.more = False


class PubSocket(zmq.Socket[bytes]):
    """A PUB of pyzmq that checks the first frame of each message.

    All methods, options and attributes are those of `zmq.Socket`.

    Args:
        context: a `zmq.Context`, or another PUB to shadow. Default: `zmq.Context.instance()`.
        socket_type: `zmq.PUB`.
        dialect: one of `oz.DIALECTS`; a first frame that is no subject of the dialect is refused. Default: "zmq",
            which allows any bytes.
        options: `shadow` and `copy_threshold`, as for `zmq.Socket`.

    Raises:
        ConfigurationError: the socket type is not `zmq.PUB`, or no dialect has this name.
        TypeError: the context is gevent's.
    """

    def __init__(
        self,
        context: zmq.Context[Any] | zmq.Socket[Any] | None = None,
        socket_type: int = zmq.PUB,
        *,
        dialect: str = "zmq",
        **options: Any,
    ) -> None:
        check_arguments("PubSocket", context, socket_type, zmq.PUB, dialect)
        shadowed = context if isinstance(context, zmq.Socket) else options.get("shadow")
        # Not by setattr, which pyzmq takes for an option.
        self.__dict__["_sending"] = getattr(shadowed, "_sending", None) or SendState(dialect)
        made_of: Any = zmq.Context.instance() if context is None and not shadowed else context
        super().__init__(made_of, socket_type, **options)
        if shadowed:
            check_arguments("PubSocket", None, int(self.get(zmq.TYPE)), zmq.PUB, dialect)
        else:
            made_of._add_socket(self)

    _sending: SendState

    @property
    def dialect(self) -> str:
        """Dialect whose rules the subjects must obey."""
        return self._sending.dialect

    def send(self, data: Any, flags: int = 0, *arguments: Any, **options: Any) -> Any:
        """Send one frame, as `zmq.Socket.send`; the first frame of a message is its subject.

        Raises:
            SubjectError: the dialect does not allow the subject; nothing is sent.
            zmq.ZMQError: as `zmq.Socket.send`.
        """
        sending = self._sending
        if not sending.is_checked:
            return super().send(data, flags, *arguments, **options)
        if not sending.more and not isinstance(data, str):
            validate_subject(bytes(memoryview(data)), sending.dialect)
        sent = super().send(data, flags, *arguments, **options)
        sending.more = bool(flags & _SNDMORE)
        return sent

    def send_multipart(
        self, msg_parts: Sequence[Any], flags: int = 0, *arguments: Any, **options: Any
    ) -> Any:
        """Send all frames of a message, as `zmq.Socket.send_multipart`; the first frame is its subject.

        Raises:
            SubjectError: the dialect does not allow the subject; nothing is sent.
            zmq.ZMQError: as `zmq.Socket.send_multipart`.
        """
        return super().send_multipart(msg_parts, flags, *arguments, **options)

    @classmethod
    def shadow(cls, address: int | zmq.Socket[Any]) -> PubSocket:
        """Return a second socket object for the libzmq socket of another, as `zmq.Socket.shadow`."""
        return cls(shadow=address)

    def __copy__(self, memo: Any | None = None) -> PubSocket:
        """Return a shadow, which shares the check."""
        return self.shadow(self)

    __deepcopy__ = __copy__
