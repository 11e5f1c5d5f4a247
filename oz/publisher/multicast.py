"""Engine of a publisher on a multicast endpoint.

The engine is a subclass of `Engine`, and runs in a thread or an event loop. It has no sessions, because multicast
subscribers send nothing back. A `Sender` numbers the messages, and the XPUB for plain subscribers sends the frames.
With `plain=True` this socket sends each message without the frame format of oz.

If the socket refuses a frame, the frame waits in the sender. With `on_full="drop"` the frame is dropped. The numbers
of dropped messages are not used again, so that subscribers report the loss.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

import zmq

from oz.errors import ClosedError, ConfigurationError
from oz.multicast.endpoints import is_multicast
from oz.multicast.group import silence_libpgm
from oz.multicast.sender import BEAT, Sender
from oz.multicast.sending import Transmitter
from oz.options import Multicast, Options
from oz.publisher.engine import MAX_READ, Engine, Outgoing
from oz.publisher.stats import REASONS, PublisherStats
from oz.transport.contexts import has_ended
from oz.transport.endpoints import as_text, check
from oz.transport.steps import Steps

_MIN_LINGER = 50  # Milliseconds after `close(timeout=0)`; enough to reach subscribers on this host.
_clock = time.monotonic


def wants_multicast(options: Options | None, endpoints: Iterable[str]) -> bool:
    """Return whether a publisher with these arguments publishes by multicast."""
    return (options is not None and options.multicast is not None) or any(map(is_multicast, endpoints))


class MulticastEngine(Engine):
    """Engine of a multicast publisher, which has at most one endpoint."""

    def __init__(self, *, options: Options | None = None, **arguments: Any) -> None:
        """Create the socket, without an endpoint. The arguments are those of `Engine`.

        Raises:
            ConfigurationError: an argument has a wrong value, or multicast does not support the argument.
            TypeError: an argument has a wrong type.
        """
        options = Options() if options is None else options
        multicast = Multicast() if options.multicast is None else options.multicast
        _check(multicast, options, arguments)
        silence_libpgm()
        super().__init__(options=options, **arguments)
        self._multicast = multicast
        self._sender = Sender(self.origin, multicast, epoch=int(time.time()))
        self._numbered = self._missed = 0
        is_default = options.high_water_mark == Options().high_water_mark
        self._transmitter = Transmitter(
            self._plain.socket,
            multicast,
            # A frame that the socket refuses must stay in the sender, because its messages have numbers.
            refuses=self.refuses or not multicast.plain,
            high_water_mark=None if is_default else options.high_water_mark,
        )

    # endpoints

    def bind(self, endpoint: str | bytes) -> None:
        """Use a multicast endpoint. For multicast, `bind` and `connect` do the same.

        Raises:
            EndpointError: the endpoint cannot be used, or the publisher has another endpoint.
        """
        self._change_endpoints(lambda: self._attach(as_text(endpoint)))

    connect = bind

    def _attach(self, text: str) -> None:
        check(text, own_context=self.owns_context)
        self._transmitter.attach(text)
        if not self._multicast.plain:
            self._sender.attach()

    def unbind(self, endpoint: str | bytes) -> None:
        """Undo `bind`.

        Raises:
            EndpointError: the publisher does not use the endpoint.
        """
        self._change_endpoints(lambda: self._detach(as_text(endpoint)))

    disconnect = unbind

    def _detach(self, text: str) -> None:
        self._flush()
        self._transmitter.detach(text)
        self._sender.is_announced = False

    @property
    def endpoint(self) -> str | None:
        """Endpoint with the address of the network interface; None without an endpoint."""
        return self._transmitter.endpoint

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Tuple with the endpoint; empty without an endpoint."""
        endpoint = self._transmitter.endpoint
        return () if endpoint is None else (endpoint,)

    # publishing; the caller has the lock

    def _offer(self, message: Outgoing) -> bool:
        self.check_usable()
        _, raw, payload, extras, _ = message
        if self._multicast.plain:
            if not self._plain.send(raw, payload):
                return False
            self._numbered += 1
            return True
        if self.refuses and self._sender.frames:
            self._send_frames()
            if self._sender.frames:
                return False
        self.waiting.extend((None, raw, payload, extras))
        self._expect_flush()
        return True

    def _flush(self) -> None:
        waiting = self.waiting
        items = waiting[:]
        began = _clock()
        if items:
            del waiting[: len(items)]
            del items[0::4]
            self._numbered += len(items) // 3
            self._sender.add(items, began)
        self._send_frames()
        self.batcher.sent(began, _clock())

    def _send_frames(self) -> None:
        sender = self._sender
        while not self._transmitter.send(sender) and not self.refuses:
            self._missed += sender.drop()

    def _attend(self, flushes: bool) -> bool:
        self._plain.read(MAX_READ)
        now = _clock()
        due = None if self._held else self.batcher.deadline()
        if due is not None and (flushes or now >= due):
            self._flush()
        self._sender.beat(now)
        self._send_frames()
        self._notify_waiters()
        return self._plain.has_input()

    def next_deadline(self) -> float | None:
        """Return the time at which `attend` must run next, in seconds of `time.monotonic`; None without a deadline."""
        with self.lock:
            found = None if self._held else self.batcher.deadline()
            if not self._sender.is_announced or self.is_closed:
                return found
            beat = self._sender.next_beat
            return beat if found is None else min(beat, found)

    def _recover(self) -> None:
        """Begin a new epoch after an exception, because messages may have been lost before they were numbered."""
        self._given_up += len(self.waiting) // 4 + self._sender.pending
        self._numbered += len(self.waiting) // 4
        self.waiting.clear()
        self._sender.recover(_clock())
        self._notify_waiters()

    def _report_loss(self, count: int | None) -> None:
        self._flush()
        self._sender.skip(count, _clock())

    # subscribers

    def count_subscribers(self, subject: Any = None, *, only_up: bool = False) -> NoReturn:
        """Raise ConfigurationError, because multicast subscribers cannot be counted.

        Raises:
            ConfigurationError: always, if the publisher can be used.
            ClosedError, OwnershipError: see `check_usable`.
        """
        self.check_usable()
        rule = "subscribers of multicast do not answer, so that they cannot be counted or waited for"
        raise ConfigurationError("endpoint", self.endpoint, "argument", rule)

    def stats(self) -> PublisherStats:
        """Return the counters."""
        with self.lock:
            sent = self._numbered + len(self.waiting) // 4
            return PublisherStats(
                published=sent,
                sent=sent,
                unmatched=0,
                refused=self._refused,
                dropped=dict.fromkeys(REASONS, 0) | {"full": self._missed},
                given_up=self._given_up,
                redelivered=0,
                rejected=0,
            )

    # the end

    def acknowledgements(self, timeout: float | None) -> Steps[float]:
        """Refuse further messages, announce the end, and wait while subscribers may request repairs.

        Returns the end of the timeout in seconds of `time.monotonic`.
        """
        end = float("inf") if timeout is None else _clock() + timeout
        sender = self._sender
        with self.lock:
            if not self.is_closing:
                self.is_closing = True
                if not self.is_closed:
                    with suppress(ClosedError):  # The program has terminated the context.
                        self._locked(self._flush)
                sender.leave(_clock())
        self.wake()
        while not self.is_closed and sender.is_announced:
            now = _clock()
            until = now + BEAT if sender.frames else sender.stays_until
            if now >= min(until, end):
                break
            yield min(until, end)
        return end

    def finish(self, end: float) -> int:
        """Close the socket; return the number of messages that the socket has not accepted.

        Args:
            end: time in seconds of the clock until which libzmq may continue to send.
        """
        with self.lock:
            wait = -1 if end == float("inf") else max(int((end - _clock()) * 1000), _MIN_LINGER)
            if self.is_closed:
                # A signal handler may have raised and interrupted the first call.
                self._shut(wait)
                return 0
            self.is_closing = True
            left = 0
            try:
                self._flush()
            except zmq.ZMQError as error:
                if not has_ended(error, self._context):
                    raise
            finally:
                left = self._sender.pending
                self._given_up += left
                self._shut(wait)
            return left

    def _shut(self, linger: int) -> None:
        super()._shut(linger)
        self._transmitter.release()


def _check(multicast: Multicast, options: Options, arguments: dict[str, Any]) -> None:
    if arguments.get("last_value"):
        raise _refusal("last_value", True, "last values need links, and multicast has none")
    if isinstance(arguments.get("links"), str):
        raise _refusal("links", arguments["links"], "multicast has no links; leave links= out")
    if arguments.get("security") is not None:
        raise _refusal(
            "security", arguments["security"], "multicast has no keys: encrypt payloads, or use tcp endpoints"
        )
    if options.delimiter is not None and not multicast.plain:
        raise _refusal("delimiter", options.delimiter, "on multicast it needs Multicast(plain=True)")


def _refusal(name: str, value: object, rule: str) -> ConfigurationError:
    return ConfigurationError(name, value, "argument", rule)
