"""Engine of a subscriber: it manages subscriptions, reads the sockets, calls handlers, and closes the subscriber.

Theory of operation
-------------------
The engine has no thread. The sockets are read by the program's own calls that wait, for example `receive`. These calls
run `attend`, which reads a bounded number of frames, runs due steps, and sends frames. The module
`oz.subscriber.connections` implements these parts.

Each use of a socket holds `lock`. Only one thread reads at a time. This thread holds `reading` from its poll to the end
of its callbacks, so that inline handlers and `on_gap` are called in order. The counter `version` changes with each
event for which a call may wait. Other waiting threads sleep until `version` changes.

`connect` and `subscribe` send frames at once, so that publishers get the subscriptions while the program does other
work. If a socket is full, the next call sends the frames.

The methods that wait are generators (`oz.subscriber.waits`), which check the queues and the state, and yield when they
must wait. Then `oz.subscriber.threads` or `oz.subscriber.tasks` calls `attend`.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import zmq

from oz.compiled import HOT
from oz.errors import ClosedError, ConfigurationError, ProtocolError, one_line
from oz.logs import peer_logger
from oz.message import Gap
from oz.options import Delivery, Options
from oz.program_end import check_running, close_all
from oz.subjects.pattern import Pattern
from oz.subscriber.connections import CLOSED, DRAINED, FOREIGN, Connections
from oz.subscriber.keys import SubscriberKeys
from oz.subscriber.link import Link, ListeningClock
from oz.subscriber.lone import Lone
from oz.subscriber.message import Arrival, HandledMessage, Message
from oz.subscriber.multicast import needs_link
from oz.subscriber.places import Place, PublisherInfo
from oz.subscriber.queue import REMOVED, Inbox, Queue, SubscriberStats
from oz.subscriber.subscriptions import Subscription as Entry
from oz.system import after_fork
from oz.transport.contexts import has_ended
from oz.transport.credentials import Credentials
from oz.wire.links import StreamOptions

ATTEND_INTERVAL = 0.02
"""Seconds after which a call reads the sockets again, even if its queue has a message."""
ALONE_INTERVAL = 0.1
"""Seconds instead of `ATTEND_INTERVAL` while C code reads the frames of the only link.

With 50 subscribers on two cores, `ATTEND_INTERVAL` needed 1.6 times the processor time.
"""
CHUNK = 16
"""Number of messages that a call delivers before it reads the clock again."""

NO_ENDPOINT = "the subscriber has no endpoint: call connect(endpoint)"
"""Text of a `Timeout` if the subscriber has no endpoint."""
MAX_NAMED = 3
"""Maximum number of reasons in the text of a `Timeout`."""

_call_handlers = None if HOT is None else HOT.call_handlers
_log = peer_logger("oz.subscriber")


class Engine(Connections):
    """Everything in a subscriber that does not wait. Subscribers for threads and for asyncio use this class.

    Attributes:
        attend_at: time of `clock` at which a call must read the sockets, even if its queue has a message.
        runs_handlers: whether calls that wait run the handlers. True for threads; in asyncio, tasks run the handlers.
        handlers_running: number of handler calls that have not returned.
        handled: number of handler calls.
        in_hand: dict from threads or tasks to the message that each of them has received with `ack="handled"` and not
            acknowledged yet.
        held_messages: the plain dict inside `in_hand`, whose length can be read faster.
        gap_listeners: functions called with each gap: `on_gap`, and the recorder of a journal.
    """

    # C code reads these slots.
    __slots__ = ("attend_at", "lone", "version")

    def __init__(
        self,
        *,
        context: zmq.Context[Any] | None,
        filtering: str,
        decode: Callable[[bytes], Any] | None,
        link_endpoints: str | Mapping[str, str] | None,
        on_gap: Callable[[Gap], object] | None,
        options: Options,
        runs_handlers: bool,
        credentials: Credentials | None = None,
        member: bytes | None = None,
        card: bytes = b"",
    ) -> None:
        """Create the engine without endpoints.

        Args:
            context: context of the sockets; None uses the shared context of the process.
            filtering: one of "auto", "publisher" and "prefix".
            decode: function of the codec that decodes a payload, or None.
            link_endpoints: link endpoint, if the subscriber has one endpoint; or a dict from endpoints to link
                endpoints.
            on_gap: function called with each gap, or None.
            options: options of the subscriber.
            runs_handlers: whether calls that wait run the handlers.
            credentials: keys of the subscriber, or None.
            member: id of the subscriber, 16 bytes; None for a random id.
            card: encoded description of a node; empty for other subscribers.

        Raises:
            ValueError: the card is too large.
        """
        check_running("Subscriber")
        super().__init__(
            context, filtering, decode, link_endpoints, options, credentials, member=member, card=card
        )
        self.gap_listeners: list[Callable[[Gap], object]] = [] if on_gap is None else [on_gap]
        self.runs_handlers = runs_handlers
        self.attend_at = self._attended_at = 0.0
        self.in_hand: MutableMapping[Any, HandledMessage] = (
            weakref.WeakKeyDictionary() if runs_handlers else {}
        )
        # `len` of a WeakKeyDictionary runs Python code, which takes longer.
        self.held_messages = getattr(self.in_hand, "data", self.in_hand)
        self._has_descriptor = self._is_draining = self._is_shut = False
        # Counters of denied and received messages at the last text that mentioned a denial; see `_why_keys`.
        self._named_denials = 0, 0
        self.handlers_running = self.handled = 0
        _engines.add(self)

    # the end of the context

    @contextmanager
    def _closing_with_context(self) -> Iterator[None]:
        """Close the subscriber if a socket call inside the block fails because the context has ended.

        Raises:
            ClosedError: the context is terminated.
        """
        try:
            yield
        except zmq.ZMQError as error:
            if not self.has_ended(error):
                raise
            self.close()
            raise ClosedError(
                "the context of the subscriber is terminated: create a subscriber in another context"
            ) from None

    def has_ended(self, error: BaseException) -> bool:
        """Return whether an error was raised because the context has ended."""
        return has_ended(error, self._context)

    # endpoints

    def connect(self, endpoint: str) -> None:
        """Connect to a publisher; see `Subscriber.connect`."""
        with self._closing_with_context():
            super().connect(endpoint)

    def bind(self, endpoint: str) -> str:
        """Bind a plain SUB; see `Subscriber.bind`."""
        with self._closing_with_context():
            return super().bind(endpoint)

    def disconnect(self, endpoint: str, *, is_bound: bool = False, is_lost: bool = False) -> None:
        """Disconnect or unbind; see `Connections.disconnect`."""
        with self._closing_with_context():
            super().disconnect(endpoint, is_bound=is_bound, is_lost=is_lost)

    # subscriptions

    def subscribe(
        self,
        patterns: list[Pattern],
        handler: Callable[[Message], Any] | None,
        stream: StreamOptions,
        delivery: Delivery,
        *,
        last_value: bool,
        limit: int | None,
    ) -> Inbox:
        """Add a subscription and declare it to the publishers at once."""
        with self._closing_with_context(), self.lock:
            self.check_open()
            if self.state == DRAINED or self._is_draining:
                raise ClosedError("the subscriber is drained: create another one")
            falls_back = not (stream.group or last_value or stream.handled or stream.overflow)
            if self._multicasts and not falls_back:
                raise needs_link(next(iter(self._multicasts)).endpoint)
            inbox = Inbox(
                handler,
                is_inline=delivery.inline,
                is_handled=stream.handled,
                limit=limit,
                falls_back=falls_back,
            )
            for pattern in patterns:
                try:
                    inbox.entries.append(
                        self.subscriptions.add(pattern, stream, last_value=last_value, owner=inbox)
                    )
                except ConfigurationError:
                    for entry in inbox.entries:
                        self.subscriptions.remove(entry)
                    raise
            self.dispatcher.add(inbox, delivery.max_pending, stream.overflow, has_work=self.runs_handlers)
            if falls_back and self.filtering != "publisher":
                self._patterns.add(inbox)
                for place in self.places.values():
                    if place.plain is not None:
                        place.plain.subscribe(self._patterns.prefixes_of(inbox))
            self._declare()
            return inbox

    def change_patterns(
        self, inbox: Inbox, stream: StreamOptions, added: Iterable[Pattern], removed: Iterable[Entry]
    ) -> list[Entry]:
        """Add and remove patterns of a subscription in one declaration; return the new entries.

        Args:
            inbox: inbox of the subscription, which must not use plain connections.
            stream: delivery options of the subscription.
            added: patterns to add.
            removed: entries of the patterns to remove.
        """
        with self.lock:
            self.check_open()
            made = [self.subscriptions.add(pattern, stream, owner=inbox) for pattern in added]
            for entry in removed:
                self.subscriptions.remove(entry)
            inbox.entries = [entry for entry in inbox.entries if entry.is_active] + made
            self.dispatcher.forget()
            self._declare()
            return made

    def unsubscribe(self, inbox: Inbox) -> None:
        """End a subscription and drop its waiting messages."""
        with self._closing_with_context(), self.lock:
            self.check_open()
            if inbox.is_active:
                self._end_entries(inbox)
                self.dispatcher.remove(inbox)
                self._declare()
                self._changed()

    def _end_entries(self, inbox: Inbox) -> None:
        for entry in inbox.entries:
            if not self.subscriptions.retire(entry):
                continue
            self.subscriptions.forget(entry)
        self._end_plain(inbox)

    def _end_plain(self, inbox: Inbox) -> None:
        if inbox.falls_back and self._patterns.discard(inbox):
            for place in self.places.values():
                if place.plain is not None:
                    place.plain.unsubscribe(self._patterns.prefixes_of(inbox))

    def _finish(self) -> None:
        """End the subscriptions that have received `max_messages` messages."""
        finished = self.dispatcher.finished
        while finished:
            inbox = finished.pop()
            if inbox.is_active:
                inbox.is_active = False
                self.dispatcher.inboxes.pop(inbox, None)
                self._end_entries(inbox)
                self.dispatcher.forget()
                self._declare()

    # reading

    def attend(self, *, may_read: bool = True) -> bool:
        """Read a bounded number of frames, run due steps, and send frames. Then call inline handlers and `on_gap`.

        The caller holds `reading`.

        Args:
            may_read: whether to read messages. False if the caller's queue already has many messages.

        Returns:
            Whether more frames may be waiting.
        """
        with self.lock:
            lone, self.lone = self.lone, None
            if self.state in (CLOSED, FOREIGN):
                return False
            before = self.dispatcher.stats.received
            try:
                has_more = self._attend(may_read)
            except BaseException as error:
                if self.has_ended(error):
                    # The program has terminated the context. After `close`, calls that wait raise ClosedError.
                    self.close()
                    return False
                self._undo_frame()
                raise
            if lone is not None:
                self.follow_alone()
            if self.dispatcher.stats.received != before or self.dispatcher.reports:
                self._changed()
            elif has_more:
                has_more = not self.dispatcher.is_full
            if self._has_descriptor and (has_more or self.dispatcher.shared.items):
                self.poll.ring()
        self._call_back()
        return has_more

    def _attend(self, may_read: bool) -> bool:
        now = self.clock()
        self._attended_at, self.attend_at = now, now + ATTEND_INTERVAL
        if self._current is not None:
            self._undo_frame()
        self.poll.silence()
        has_more = is_empty = False
        if may_read and not self.dispatcher.is_full:
            has_more = self._read_links(now)
            is_empty = not has_more
            has_more |= self._read_plain(now)
            has_more |= self._read_multicast(now)
        elif self.dispatcher.is_full:
            # Stop the clock that measures the silence of publishers, because unread frames may wait in the sockets.
            self.listening.leave(now)
            if self._inside:
                self.listening.enter()
        if self.dispatcher.finished:
            self._finish()
        self._read_monitors(now)
        if self.keys is not None:
            self.keys.tend(now)
        if is_empty or self.listening.is_running:
            # Check the links even if one publisher sends without a pause, because the other links need their timers.
            self._tick(now)
        for place in [*self._unacked]:
            if place.link is not None:
                place.link.before_wait(now)
                self._touched[place] = None
        return self._flush(now) or has_more

    def follow_alone(self) -> None:
        """If only batches of one link can arrive, set `lone`, so that C code reads the next frames."""
        if self.may_wait_alone():
            self.lone = self.find_lone()
            if self.lone is not None:
                self.attend_at = self._attended_at + ALONE_INTERVAL

    # callbacks

    def after_alone(self) -> None:
        """Finish the work of `read_alone`: end subscriptions and call callbacks. The caller must not hold the lock."""
        dispatcher = self.dispatcher
        if dispatcher.finished:
            with suppress(ClosedError), self._closing_with_context(), self.lock:
                self._finish()
        if dispatcher.reports or dispatcher.inline:
            self._call_back()

    def _call_back(self) -> None:
        """Call inline handlers and `on_gap` for waiting messages and gaps. The caller must not hold the lock."""
        dispatcher = self.dispatcher
        while dispatcher.reports:
            self.report(dispatcher.reports.popleft())
        while dispatcher.inline:
            inbox, message = dispatcher.inline.popleft()
            self.call(inbox, message)

    def report(self, gap: Gap) -> None:
        """Call the gap listeners with a gap. If a listener raises, the exception is logged."""
        if gap is REMOVED:
            return
        if gap.reason == "malformed":
            _log.warning("%s messages do not decode: both sides need the same codec=", gap.count)
        for listener in self.gap_listeners:
            try:
                listener(gap)
            except Exception:
                _log.exception("on_gap raised for %r", gap)

    def call(self, inbox: Inbox, message: Message) -> None:
        """Call a handler, and acknowledge a `HandledMessage`. If the handler raises, log and count the exception."""
        assert inbox.handler is not None
        self.handlers_running += 1
        self.handled += 1
        try:
            inbox.handler(message)
        except Exception:
            self.handler_failed(inbox, message)
        finally:
            self.handlers_running -= 1
            if self._drains:
                self._handler_ended()
        if isinstance(message, HandledMessage):
            self.acknowledge(message)

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Count a `with` block as a running handler call, so that `drain` and `run` wait for it."""
        self.handlers_running += 1
        self.handled += 1
        try:
            yield
        finally:
            self.handlers_running -= 1
            if self._drains:
                self._handler_ended()

    def _handler_ended(self) -> None:
        with self.lock:
            self._changed()

    def handler_failed(self, inbox: Inbox, message: Message) -> None:
        """Log and count the current exception of a handler."""
        self.dispatcher.stats.failed += 1
        _log.exception("the handler of %r raised for %r", inbox.entries[0].pattern.text, message.subject)

    def run_handlers(self) -> bool:
        """Call handlers with at most `CHUNK` messages; return whether a message or gap was waiting."""
        work = self.dispatcher.work
        if not work:
            return False
        if _call_handlers is not None and self._call_handlers():
            return True
        has_run, called = False, 0
        gap: Gap | None = None
        self.handlers_running += 1
        try:
            for _ in range(CHUNK):
                try:
                    queue = work.popleft()
                except IndexError:
                    break
                has_run = True
                try:
                    item = queue.items.popleft()
                except IndexError:
                    # The subscription has ended.
                    continue
                inbox = queue.inbox
                assert inbox is not None
                if item.__class__ is Message:
                    # The code of `call` is repeated here, because one more function call for each message takes time.
                    assert inbox.handler is not None
                    called += 1
                    try:
                        inbox.handler(item)
                    except Exception:
                        self.handler_failed(inbox, item)
                elif isinstance(item, Message):
                    self.call(inbox, item)
                else:
                    gap = item
                    break
        finally:
            self._handlers_ran(called)
        if gap is not None:
            # Report after `_handlers_ran`, because `on_gap` may call `drain`, which waits for running handlers.
            self.report(gap)
        return has_run

    def _handlers_ran(self, called: int) -> None:
        self.handlers_running -= 1
        self.handled += called
        if self._drains:
            self._handler_ended()

    def _call_handlers(self) -> bool:
        """Run handlers in C code; return False if the next item is not a plain message."""
        assert _call_handlers is not None
        counts = [0]
        self.handlers_running += 1
        try:
            return _call_handlers(self.dispatcher.work, CHUNK, self.handler_failed, counts)
        finally:
            self._handlers_ran(counts[0])

    def acknowledge(self, message: Message) -> None:
        """Record that a message is handled. Send an ACK if the last ACK is older than `ACK_AGE`."""
        link = message.arrival.link
        with self.lock:
            place = self._place_of.get(link)
            if self.state in (CLOSED, FOREIGN) or place is None:
                return
            self.dispatcher.handled(message)
            now = self.clock()
            self._unacked[place] = None
            if now >= link.ack_at:
                link.before_wait(now)
                self._touched[place] = None
                with suppress(ClosedError), self._closing_with_context():
                    self._flush(now)

    def release(self, owner: Any) -> None:
        """Acknowledge the previous message of a thread or task, because it calls `receive` again.

        The messages of ended tasks are acknowledged too, because `asyncio.wait_for` and similar functions call
        `receive` in a separate task.
        """
        owners = [owner]
        if not self.runs_handlers:
            owners += [task for task in self.in_hand if task is not owner and task.done()]
        for holder in owners:
            message = self.in_hand.pop(holder, None)
            if message is not None:
                message.ack()

    # parts of the calls that wait

    def is_exhausted(self, inbox: Inbox | None) -> bool:
        """Return whether no more messages can arrive for a subscription. None means the whole subscriber."""
        if self.state in (CLOSED, DRAINED):
            return True
        return inbox is not None and not inbox.is_active

    def why_nothing_comes(self, timeout: float | None, inbox: Inbox | None) -> str:
        """Return a text with possible causes of a timeout that the program can remedy; empty if none is known.

        With `timeout=0` only one cause is checked, because this call must be fast.

        Args:
            timeout: timeout of the call in seconds; None waits for ever.
            inbox: inbox of the receiving subscription; None for the whole subscriber.
        """
        if not self.dispatcher.inboxes:
            return "; the subscriber has no subscription: call subscribe(pattern)"
        if not timeout:
            return ""
        if not self.places:
            return f"; {NO_ENDPOINT}"
        silent = [publisher.endpoint for publisher in self.publishers if publisher.mode == "connecting"]
        found = [f"no publisher answers at {', '.join(silent)}"] if silent else []
        with self.lock:
            for place in self.places.values():
                for refusal in place.refusals.values():
                    entry = self.subscriptions.by_sid.get(refusal.sid)
                    if entry is not None and inbox in (None, entry.owner):
                        found.append(self.refusal_text(place, entry.pattern.text, refusal))
            if self.keys is not None:
                found += self._why_keys(self.keys)
            if not found:
                found = self._why_no_match(inbox)
        return "".join(f"; {text}" for text in found[:MAX_NAMED])

    def _why_no_match(self, inbox: Inbox | None) -> list[str]:
        """Return possible causes of a timeout during which publishers were connected, but no message matched."""
        connected = [place.endpoint for place in self.places.values() if not place.is_bound]
        if not connected:
            return []
        entries = self.subscriptions.by_sid.values() if inbox is None else inbox.entries
        patterns = [repr(entry.pattern.text) for entry in entries][:MAX_NAMED]
        where = ", ".join(connected[:MAX_NAMED])
        found = [f"connected to {where}, and no message that matches {', '.join(patterns)} arrived"]
        stats = self.dispatcher.stats
        if stats.filtered:
            messages = "1 message" if stats.filtered == 1 else f"{stats.filtered} messages"
            subject = self.dispatcher.unmatched_subject()
            example = "" if subject is None else f", such as {one_line(subject)},"
            found.append(f"{messages}{example} passed the prefix, but no pattern matched")
        elif not stats.received and any(place.mode() == "prefix" for place in self.places.values()):
            found.append(
                "a plain connection misses messages that are published before the subscription arrives: call "
                "publisher.wait_for_subscribers() before publish()"
            )
        return found

    def _why_keys(self, keys: SubscriberKeys) -> Iterator[str]:
        """Yield possible causes of a timeout: denied messages and missing keys. The caller holds the lock."""
        received, denial = self.dispatcher.stats.received, keys.rights.last_denial()
        if denial is not None and (
            keys.denied != self._named_denials[0] or received == self._named_denials[1]
        ):
            # Mention the denial again until a message arrives, so that a repeated call also returns this cause.
            self._named_denials = keys.denied, received
            yield f"a message was denied: {denial}"
        plain = [
            place.endpoint
            for place in self.places.values()
            if place.mode() == "prefix" and place.heard_at is None
        ]
        if plain:
            yield (
                f"the plain connection to {', '.join(plain)} does not report denied subscriptions: read the log "
                'of the publisher, or use filtering="publisher"'
            )

    def missing(self) -> list[str]:
        """Return a text for each endpoint that is not ready, with the reason.

        Raises:
            PermissionDenied, ProtocolError: a publisher refuses a subscription or a connection.
            ClosedError, OwnershipError: the subscriber cannot be used; see `check_open`.
        """
        self.check_open()
        with self.lock:
            if not self.places:
                return [NO_ENDPOINT]
            needs_link = any(not inbox.falls_back for inbox in self.dispatcher.inboxes)
            found = [
                place.missing(
                    needs_link=needs_link,
                    may_fall_back=self.filtering == "auto",
                    has_keys=self.keys is not None,
                )
                for place in self.places.values()
            ]
            self.raise_refusals()
            return [reason for reason in found if reason]

    def raise_denial(self, inbox: Inbox | None) -> None:
        """Raise the next refusal that no call has raised yet. Refusals of subscriptions with handlers are only logged.

        Args:
            inbox: inbox of the receiving subscription; None for the whole subscriber.

        Raises:
            PermissionDenied: no call has raised this refusal yet.
        """
        if inbox is not None and inbox.handler is not None:
            return
        with self.lock:
            for key, (owner, error) in self.denials.items():
                if owner is None or owner is inbox or (inbox is None and owner.handler is None):
                    del self.denials[key]
                    raise error

    def raise_refusals(self) -> None:
        """Raise an error if a publisher refuses a subscription or a connection. The caller holds the lock.

        A refusal is raised only once, so that a later wait can succeed. If several publishers refuse the same
        subscription, only one error is raised.

        Raises:
            PermissionDenied, ProtocolError: a publisher refuses a subscription or a connection.
        """
        for place in self.places.values():
            refused = self.denials.pop((place, 0), None)
            if refused is not None:
                raise refused[1]
            for refusal in place.refusals.values():
                entry = self.subscriptions.by_sid.get(refusal.sid)
                if entry is None or refusal.sid in place.raised:
                    continue
                for other in self.places.values():
                    if refusal.sid in other.refusals:
                        other.raised.add(refusal.sid)
                self.denials.pop((place, refusal.sid), None)
                if refusal.rule is not None or refusal.witness is not None:
                    raise self.denial(place, entry.pattern.text, refusal)
                raise ProtocolError(self.refusal_text(place, entry.pattern.text, refusal))

    def begin_drain(self, inbox: Inbox | None) -> tuple[list[Inbox], int]:
        """Declare to the publishers that one subscription or all subscriptions have ended.

        Args:
            inbox: inbox of the subscription; None for all subscriptions.

        Returns:
            The inboxes of these subscriptions, and the revision of the declaration.

        Raises:
            ClosedError, OwnershipError: the subscriber cannot be used; see `check_open`.
        """
        with self._closing_with_context(), self.lock:
            self.check_open()
            inboxes = [*self.dispatcher.inboxes] if inbox is None else [inbox]
            self._is_draining = self._is_draining or inbox is None
            self._drains += 1
            for retired in inboxes:
                for entry in retired.entries:
                    self.subscriptions.retire(entry)
                if retired.falls_back:
                    for place in self.places.values():
                        if place.plain is not None:
                            place.plain.unsubscribe(self._patterns.prefixes_of(retired))
            for place in self.places.values():
                place.drained = place.plain is None and place.multicast is None
            self._declare()
            return inboxes, self.subscriptions.revision

    def is_drained(self, inboxes: list[Inbox], revision: int) -> bool:
        """Return whether all messages published before `begin_drain` have arrived, and all handlers have finished.

        Args:
            inboxes: inboxes that `begin_drain` has returned.
            revision: revision that `begin_drain` has returned.

        Raises:
            ClosedError, OwnershipError: the subscriber cannot be used; see `check_open`.
        """
        self.check_open()
        with self.lock:
            return (
                all(place.is_drained(revision) for place in self.places.values())
                and not self.handlers_running
                and not any(inbox.handler and inbox.queue and inbox.queue.items for inbox in inboxes)
            )

    def end_drain(self, inboxes: list[Inbox], *, is_last: bool) -> None:
        """End the subscriptions in the subscriber, after `begin_drain` has ended them at the publishers.

        Args:
            inboxes: inboxes that `begin_drain` has returned.
            is_last: whether the whole subscriber is drained.
        """
        with self.lock:
            self._drains -= 1
            if self.state in (CLOSED, FOREIGN):
                return
            self.subscriptions.is_drained |= is_last
            for inbox in inboxes:
                if inbox.is_active:
                    inbox.is_active = False
                    for entry in inbox.entries:
                        self.subscriptions.forget(entry)
                        if entry.options.redeliver:
                            self.subscriptions.release(entry)
                    self.dispatcher.inboxes.pop(inbox, None)
                    self._patterns.discard(inbox)
            self.dispatcher.forget()
            if is_last:
                self.state = DRAINED
            else:
                self._declare()
            self._changed()

    # state for the program

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a message may have arrived."""
        with self.lock:
            self.check_open()
            self._has_descriptor = True
            self.poll.ring()
            return self.poll.fileno()

    def own_queue(self, inbox: Inbox, delivery: Delivery, overflow: str | None) -> Queue:
        """Return the subscription's own queue. The first call creates the queue."""
        with self.lock:
            self.lone = None
            return self.dispatcher.own_queue(inbox, delivery.max_pending, overflow)

    @property
    def stats(self) -> SubscriberStats:
        """Copy of the counters."""
        with self.lock:
            found = self.dispatcher.stats
            withdrawn = sum(link.unwanted for link in self._place_of)
            denied = 0 if self.keys is None else self.keys.denied
            return replace(
                found,
                received=found.received + withdrawn + denied,
                malformed=found.malformed + sum(link.malformed for link in self._place_of),
                repeated=found.repeated + sum(link.repeated for link in self._place_of),
                unwanted=found.unwanted + withdrawn,
                denied=denied,
            )

    @property
    def publishers(self) -> list[PublisherInfo]:
        """State of each endpoint."""
        with self.lock:
            now = self.clock()
            return [place.info(now) for place in self.places.values()]

    # end

    def close(self) -> None:
        """Send BYE on all links and close the sockets. A second call has no effect."""
        if self.state == FOREIGN:
            return
        with self.lock:
            if self._is_shut:
                return
            if self.state != CLOSED:
                self.state = CLOSED
                self._send_byes()
            # If a signal handler has raised in the first call, a second call repeats these steps.
            for place in self.places.values():
                self._close_plain(place)
            if self._dialler is not None:
                if self._dialler.monitor is not None:
                    self.poll.remove([self._dialler.monitor.fd])
                self.poll.remove([self._dialler.fd])
                self._dialler.close()
            self.dispatcher.shared.items.clear()
            for inbox in self.dispatcher.inboxes:
                inbox.is_active = False
                if inbox.queue is not None:
                    inbox.queue.items.clear()
            self._changed()
        # Wake the polling thread, and wait for it, before the descriptors are closed.
        self.poll.ring()
        if self.reading.acquire(timeout=1.0):
            try:
                self.poll.close()
            finally:
                self.reading.release()
        _engines.discard(self)
        self._is_shut = True

    def _send_byes(self) -> None:
        now = self.clock()
        for place in self.places.values():
            if place.link is not None:
                place.link.close()
                with suppress(zmq.ZMQError):
                    self._send_all(place, now)

    def _close_at_exit(self, timeout: float) -> None:
        self.close()

    def disown(self) -> None:
        """Stop using the sockets in the child of a fork, because the sockets belong to the parent."""
        self.state, self.lone = FOREIGN, None
        self.lock, self.reading = threading.RLock(), threading.RLock()
        self.dispatcher.work.clear()
        self.dispatcher.shared.items.clear()
        for inbox in self.dispatcher.inboxes:
            if inbox.queue is not None:
                inbox.queue.items.clear()
        self.in_hand.clear()


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _disown_all() -> None:
    for engine in list(_engines):
        engine.disown()
    _engines.clear()


if HOT is not None:
    HOT.know_lone_links(Engine, Lone, Link, Place, ListeningClock, SubscriberStats, Arrival)

after_fork(_disown_all)
atexit.register(lambda: close_all(_engines))
