"""Methods of a subscriber that wait, as generators that run in threads and in asyncio loops.

Each generator does all work that needs no wait. Then it yields a deadline for the wait, or None for a wait without a
deadline. The caller, `oz.subscriber.threads` or `oz.subscriber.tasks`, waits, calls `Engine.attend`, and continues the
generator.
"""

from __future__ import annotations

from typing import Any

from oz.errors import ClosedError, Timeout
from oz.program_end import end_daemon
from oz.subscriber.connections import FOREIGN
from oz.subscriber.engine import Engine
from oz.subscriber.message import HandledMessage, Message
from oz.subscriber.queue import Inbox, Queue
from oz.transport.steps import Steps
from oz.transport.waiting import try_acquire

READ_BELOW = 1_000
"""A call that finds a message in its queue also reads the sockets, if the subscriber's queue has fewer messages than
this number."""


def receive(engine: Engine, queue: Queue, timeout: float | None, owner: Any) -> Steps[Message]:
    """Wait for the next message of a queue; see `Subscriber.receive`.

    Args:
        engine: engine of the subscriber.
        queue: queue of the subscriber or of a subscription.
        timeout: timeout in seconds; None waits for ever.
        owner: thread or task that receives the message.

    Raises:
        Timeout: no message arrived within `timeout`.
        ClosedError: no more messages can arrive.
        PermissionDenied: a publisher refuses a subscription or the key. Each refusal is raised only once.
        OwnershipError: the subscriber was created before a fork.
    """
    if engine.held_messages:
        engine.release(owner)
    deadline = None if timeout is None else engine.clock() + timeout
    has_waited = False
    while True:
        if engine.denials:
            engine.raise_denial(queue.inbox)
        if queue.items and engine.clock() >= engine.attend_at:
            # Read the sockets before a message leaves the queue: if a signal handler raises in this call, no message is
            # lost.
            _attend_between(engine)
        message = _take(engine, queue, owner)
        if message is not None:
            return message
        engine.check_open()
        if engine.is_exhausted(queue.inbox):
            end_daemon()
            raise ClosedError(
                "the subscriber is drained: create another one"
                if queue.inbox is None
                else "the subscription has ended: subscribe again"
            )
        if has_waited and deadline is not None and engine.clock() >= deadline:
            raise Timeout(f"no message in {timeout:g} s{engine.why_nothing_comes(timeout, queue.inbox)}")
        yield deadline
        has_waited = True


def _take(engine: Engine, queue: Queue, owner: Any) -> Message | None:
    """Report the gaps at the front of a queue, and return the next message, or None."""
    if engine.runs_handlers:
        while engine.dispatcher.work and engine.run_handlers():
            pass
    items = queue.items
    while True:
        try:
            item = items.popleft()
        except IndexError:
            return None
        if not isinstance(item, Message):
            engine.report(item)
            continue
        if isinstance(item, HandledMessage):
            engine.in_hand[owner] = item
        return item


def _attend_between(engine: Engine) -> None:
    """Read the sockets although a message waits in the caller's queue."""
    acquired: list[bool] = []
    try:
        if try_acquire(engine.reading, acquired):
            engine.attend(may_read=len(engine.dispatcher.shared.items) < READ_BELOW)
        elif engine.poll.is_full and not engine.dispatcher.is_full:
            # Another thread has stopped reading because a queue was full.
            engine.poll.ring()
    finally:
        if True in acquired:
            engine.reading.release()


def run(engine: Engine, timeout: float | None) -> Steps[int]:
    """Run handlers; see `Subscriber.run`.

    Args:
        engine: engine of the subscriber.
        timeout: the call returns when no message has arrived for this number of seconds; None waits for ever.

    Raises:
        OwnershipError: the subscriber was created before a fork.
    """
    begin = seen = engine.handled
    idle_since = engine.clock()
    has_waited = False
    while True:
        while engine.runs_handlers and engine.run_handlers():
            if engine.clock() >= engine.attend_at:
                _attend_between(engine)
        if engine.handled != seen or engine.handlers_running:
            seen, idle_since, has_waited = engine.handled, engine.clock(), False
        if engine.state == FOREIGN:
            engine.check_open()
        if engine.is_exhausted(None):
            return engine.handled - begin
        deadline = None if timeout is None else idle_since + timeout
        if has_waited and deadline is not None and engine.clock() >= deadline:
            return engine.handled - begin
        yield deadline
        has_waited = True


def wait_ready(engine: Engine, timeout: float | None) -> Steps[None]:
    """Wait until each endpoint is ready; see `Subscriber.wait_ready`.

    Args:
        engine: engine of the subscriber.
        timeout: timeout in seconds; None waits for ever.

    Raises:
        Timeout: an endpoint is not ready within `timeout`.
        PermissionDenied, ProtocolError: a publisher refuses a subscription.
        ClosedError, OwnershipError: the subscriber cannot be used.
    """
    deadline = None if timeout is None else engine.clock() + timeout
    has_waited = False
    while True:
        missing = engine.missing()
        if not missing:
            return
        if has_waited and deadline is not None and engine.clock() >= deadline:
            raise Timeout(f"not ready within {timeout:g} s: " + "; ".join(missing))
        yield deadline
        has_waited = True


def drain(engine: Engine, inbox: Inbox | None, timeout: float | None) -> Steps[bool]:
    """End one subscription or all subscriptions, but deliver earlier messages; see `Subscriber.drain`.

    Args:
        engine: engine of the subscriber.
        inbox: inbox of the subscription; None for all subscriptions.
        timeout: timeout in seconds; None waits for ever.

    Raises:
        ClosedError, OwnershipError: the subscriber cannot be used.
    """
    deadline = None if timeout is None else engine.clock() + timeout
    inboxes, revision = engine.begin_drain(inbox)
    try:
        while True:
            if engine.runs_handlers:
                while engine.run_handlers():
                    pass
            is_done = engine.is_drained(inboxes, revision)
            if is_done or (deadline is not None and engine.clock() >= deadline):
                return is_done
            yield deadline
    finally:
        engine.end_drain(inboxes, is_last=inbox is None)
