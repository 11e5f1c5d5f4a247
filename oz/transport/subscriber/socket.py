"""The sockets of subscribers, blocking and asyncio, as pyzmq's own: options and monitors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from oz.transport.dropin import has_wildcard
from oz.transport.socket import refuse_to_copy
from oz.transport.subscriber.front import AnyHandler, SubscriberFront
from oz.transport.subscriber.subscribing import AnySubscription


class SubscriberSocket(SubscriberFront[AnyHandler, AnySubscription], zmq.Socket[Any]):  # type: ignore[misc]
    """A SUB socket of pyzmq that knows patterns. `oz.Subscriber` and `oz.asyncio.Subscriber` add the waiting.

    It can be made as an oz socket, `Subscriber("tcp://…")`, or as pyzmq makes sockets,
    `context.socket(zmq.SUB, socket_class=Subscriber)`, which calls it with context and type.
    """

    _context_class: Callable[[], zmq.Context[Any]] = zmq.Context
    _asked_sndhwm: int = 0

    __copy__ = __deepcopy__ = __reduce__ = refuse_to_copy  # type: ignore[assignment]
    shadow = classmethod(refuse_to_copy)  # type: ignore[assignment]

    def _open_handle(self, context: zmq.Context[Any]) -> None:
        super(SubscriberFront, self).__init__(context, zmq.SUB)

    def _close_handle(self, linger: int) -> None:
        super().close(linger)

    @property
    def _keeps_rcvtimeo(self) -> bool:
        """Whether RCVTIMEO is kept here, and that of the socket itself is another."""
        return not self._may_block or self._engine.declarer.has_duties

    def get_monitor_socket(self, events: int | None = None, addr: str | None = None) -> Any:
        """Make a socket that receives events of the connections, as `zmq.Socket.get_monitor_socket` does.

        It has no limit: what you do not read stays in memory. Closing it ends the monitor, and closing this
        socket does too.

        Args:
            events: which events, as a sum of `zmq.EVENT_…`; default all.
            addr: an `inproc://` address to have them sent to; default one of oz's own.

        Returns:
            A PAIR; the same one until it is closed or the monitor ends.

        Raises:
            OwnershipError: the socket was made before a fork.
            zmq.ZMQError: the socket is closed, the address is in use, or there are too many sockets.
        """
        return self._monitor.socket_for(self, events, addr)

    def monitor(self, addr: Any, events: int = zmq.EVENT_ALL) -> None:
        """Send events of the connections to an endpoint, as `zmq.Socket.monitor` does.

        Whoever connects a PAIR to it must read all of them and call `disable_monitor` before closing it:
        otherwise libzmq stands still, with all sockets of the context.

        Args:
            addr: an `inproc://` address; None ends the monitor.
            events: which events, as a sum of `zmq.EVENT_…`.

        Raises:
            OwnershipError: the socket was made before a fork.
            zmq.ZMQError: the socket is closed, or the address is in use.
        """
        self._monitor.begin(self, addr, events)

    # the pyzmq surface -----------------------------------------------------------------------------------

    def set(self, option: int, optval: Any) -> None:
        """Set a socket option; SUBSCRIBE and UNSUBSCRIBE go through `subscribe` and `unsubscribe`."""
        if option == zmq.SUBSCRIBE:
            self.subscribe(optval)
        elif option == zmq.UNSUBSCRIBE:
            self.unsubscribe(optval)
        else:
            # A SUB forwards only SNDHWM subscriptions in a burst and silently drops the rest: no limit
            # there, also when set_hwm sets both marks.
            if option == zmq.RCVTIMEO:
                self._set_rcvtimeo(optval)
                return
            if option == zmq.CONFLATE and optval:
                self._subscribing.check_conflated()
            if self._attachments.group is not None:
                self._attachments.group.check_option(option)
            super().set(option, optval)
            if option == zmq.SNDHWM:
                super().set(option, 0)
                self._asked_sndhwm = int(optval)
            elif option == zmq.CONFLATE:
                self._subscribing.conflates = bool(optval)

    setsockopt = set

    def _set_rcvtimeo(self, milliseconds: Any) -> None:
        before = super().get(zmq.RCVTIMEO)
        # Also where it is kept here: pyzmq and libzmq say what will not do.
        super().set(zmq.RCVTIMEO, milliseconds)
        if self._keeps_rcvtimeo:
            super().set(zmq.RCVTIMEO, before)
        self._receive_path.limit = int(milliseconds)

    def set_string(self, option: int, optval: str, encoding: str = "utf-8") -> None:
        """Set an option to text. For SUBSCRIBE: a text with wildcards is a pattern, any other a prefix."""
        if (
            option in (zmq.SUBSCRIBE, zmq.UNSUBSCRIBE)
            and isinstance(optval, str)
            and has_wildcard(optval, self.dialect, warns=option == zmq.SUBSCRIBE)
        ):
            self.set(option, optval)
        else:
            super().set_string(option, optval, encoding)

    setsockopt_string = setsockopt_unicode = set_string

    def get(self, option: int) -> Any:
        """Get a socket option; RCVMORE speaks of the frames that `recv` has left of a message."""
        if option == zmq.RCVMORE:
            return int(bool(self._rest))
        if option == zmq.SNDHWM and not self.closed:
            return self._asked_sndhwm
        if option == zmq.RCVTIMEO and self._keeps_rcvtimeo:
            return self._receive_path.limit
        self.check_owner()
        value: Any = super().get(option)
        if option == zmq.EVENTS and self._engine.has_some:
            return value | zmq.POLLIN
        return value

    getsockopt = get
