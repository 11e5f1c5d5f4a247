"""`oz.PubSocket`, a PUB of pyzmq that checks subjects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq

from oz.dropin.checks import check_arguments
from oz.subjects.pattern import validate_subject

_SNDMORE = int(zmq.SNDMORE)


class SendState:
    """State of one libzmq PUB. A PUB and its shadows share the state.

    Attributes:
        dialect: dialect of the subjects.
        is_checked: whether `send` checks subjects. The dialect "zmq" allows all subjects.
        more: whether the last frame was sent with SNDMORE. If so, the next frame is not a subject. The value is valid
            only if `is_checked` is true.
    """

    __slots__ = ("dialect", "is_checked", "more")

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.is_checked = dialect != "zmq"
        self.more = False


class PubSocket(zmq.Socket[bytes]):
    """A PUB of pyzmq that checks the first frame of each message.

    The socket has all methods, options and attributes of `zmq.Socket`.

    Args:
        context: a `zmq.Context`, or another PUB to shadow. Default: `zmq.Context.instance()`.
        socket_type: type of the socket, always `zmq.PUB`.
        dialect: one of `oz.DIALECTS`. `send` refuses a first frame that the dialect does not allow as a subject.
            Default: "zmq", which allows any bytes.
        options: keyword arguments `shadow` and `copy_threshold` of `zmq.Socket`.

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
        # `__dict__`, because `setattr` of pyzmq would set a socket option.
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
        """Send one frame, as `zmq.Socket.send`. The first frame of a message is the subject.

        Raises:
            SubjectError: the dialect does not allow the subject, and nothing is sent.
            zmq.ZMQError: libzmq cannot send the frame; see `zmq.Socket.send`.
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
        """Send all frames of a message, as `zmq.Socket.send_multipart`. The first frame is the subject.

        Raises:
            SubjectError: the dialect does not allow the subject, and nothing is sent.
            zmq.ZMQError: libzmq cannot send the message; see `zmq.Socket.send_multipart`.
        """
        return super().send_multipart(msg_parts, flags, *arguments, **options)

    @classmethod
    def shadow(cls, address: int | zmq.Socket[Any]) -> PubSocket:
        """Return a second socket object for the same libzmq socket; see `zmq.Socket.shadow`."""
        return cls(shadow=address)

    def __copy__(self, memo: Any | None = None) -> PubSocket:
        """Return a shadow of the socket, which checks subjects by the same dialect."""
        return self.shadow(self)

    __deepcopy__ = __copy__
