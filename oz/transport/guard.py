"""The guard of a socket: one thread at a time may touch it, in the process that made it.

libzmq crashes when two threads use one socket, and a socket inherited through fork takes messages and
delivers none. Both become clear errors here. Source: the ZeroMQ guide, "Multithreading with ZeroMQ".
"""

from __future__ import annotations

import _thread
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from logging import LogRecord
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from oz import logs
from oz.errors import OwnershipError
from oz.system import after_fork

T = TypeVar("T")

_NO_THREAD = "new thread"
"""What Python says where the system gives none, or the interpreter ends."""


def in_use() -> OwnershipError:
    """Make the error for a second thread."""
    return OwnershipError(
        "another thread is using this subscriber; give each thread a subscriber of its own. To end one from "
        "outside, let it receive with a timeout and look at a flag, or end its context with term(), at which "
        "it raises zmq.ContextTerminated"
    )


def foreign() -> OwnershipError:
    """Make the error for the child of a fork."""
    return OwnershipError("this socket was made before a fork, in the parent process; make one in the child")


def refuse(*_: object) -> NoReturn:
    """Refuse what the child of a fork may not use.

    Raises:
        OwnershipError: always.
    """
    raise foreign()


if TYPE_CHECKING:

    class _Lock:
        """The type of `_thread.RLock`; typeshed calls that final, which it is not."""

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
        def release(self) -> None: ...
        def _is_owned(self) -> bool: ...
        def __enter__(self) -> bool: ...
        def __exit__(self, *_: object) -> None: ...
else:
    _Lock = _thread.RLock


class Guard(_Lock):
    """The lock of a socket. It is re-entrant, so that a signal handler can close the socket.

    A publisher's lets other threads wait, since its calls are short and whole. It *is* a lock, and taking it
    is one call in C: a signal handler that raises comes before or after, so that it is never left held.

    What a signal handler of this thread may not come between is done with `busy` held, another lock of that
    kind. A handler that raises leaves `is_busy` behind, which means nothing without that lock; and `is_torn`,
    where numbers were being given: who comes next mends that first.

    A lock is not fair: who releases it and takes it at once has it again before others wake up. So whoever
    publishes says first that it is coming, and the thread that looks after a publisher makes room then.

    Attributes:
        is_wanted: somebody was about to take it for a message since the last time that room was made.
        busy: who has it sends the frames of a message, or takes subscriptions in: what a signal handler does
            with the socket in the middle of that would come between. Taken by who has the guard.
        is_busy: somebody has that, or a signal handler that raised has cut it short.
        is_handing_over: the compiled part does the same, which nothing cuts short.
        is_torn: what is sent was given numbers, and is being sent, or its sender was cut short.
        mend: called before anything else is sent when that was cut short.
        postponed: what signal handlers have put off; see `do_postponed`.
        when_disowned: called when this is disowned.
        delegated: what another thread does for who has this; see `apart`.
    """

    __slots__ = (
        "busy",
        "delegated",
        "is_busy",
        "is_handing_over",
        "is_torn",
        "is_wanted",
        "mend",
        "postponed",
        "when_disowned",
    )

    is_foreign = False
    """Whether its socket was made before a fork, in the parent process."""

    has_waiters = True
    """Whether other threads wait for it; otherwise they are refused."""

    def __init__(self) -> None:
        """Start free."""
        super().__init__()
        self.is_wanted = self.is_busy = self.is_handing_over = self.is_torn = False
        self.busy = _Lock()
        self.mend: Callable[[], object] = bool
        self.postponed: deque[Callable[[], object]] = deque()
        self.when_disowned: Callable[[], None] | None = None
        self.delegated: _DelegatedCall | None = None
        _guards.add(self)

    @property
    def is_mine(self) -> bool:
        """Whether this thread has it: a signal handler may run in the middle of what it guards."""
        # What threading.Condition asks too.
        return self._is_owned()

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal handler asks, in the middle of what must not be divided."""
        if self.is_handing_over:
            return self.is_mine
        # A flag alone would stay where a handler has raised.
        return self.is_busy and self.busy._is_owned()

    def undivided(self, do: Callable[..., T], *given: Any) -> T:
        """Do something with this held, and let no signal handler of this thread come in between.

        Args:
            do: what is to be done.
            given: what it is called with.

        Returns:
            What that gives.
        """
        before = self.is_interrupted
        with self.busy:
            self.is_busy = True
            if self.is_torn and not before:
                self.mend_torn()
            result = do(*given)
        self.is_busy = before
        if self.postponed and not before:
            self.do_postponed()
        return result

    def mend_torn(self) -> None:
        """Mend what was cut short in the middle of being sent; called with `busy` held, before all else."""
        self.mend()
        self.is_torn = False

    def do_postponed(self) -> None:
        """Do what signal handlers have put off, in their order; called by who has it, and is not busy."""
        with self.busy:
            # What handlers do meanwhile comes behind it.
            self.is_busy = True
            while self.postponed:
                self.postponed.popleft()()
        self.is_busy = False

    def end_interrupted(self) -> None:
        """Mark what is done from now on as whole: what it interrupts does not get to its end."""
        if self.is_torn:
            self.mend_torn()
        self.is_busy = self.is_handing_over = False

    def check_owner(self) -> None:
        """Refuse the child of a fork.

        Raises:
            OwnershipError: the socket was made before a fork, in the parent process.
        """
        if self.is_foreign:
            refuse()

    def disown(self) -> None:
        """Refuse everything from now on, and see to it that no short way leads past."""
        self.__class__ = _Foreign
        if self.delegated is not None:
            self.delegated.forsake()
        if self.when_disowned is not None:
            self.when_disowned()

    def apart(self, do: Callable[..., T], *given: Any) -> T:
        """Do something where no signal handler runs: in a thread of its own, where this is the main one.

        What a handler raises meanwhile is raised when it is done, so that nothing can cut it short. A handler
        that takes this waits until then: two threads may not use one socket.

        Args:
            do: what is to be done. It takes no lock that this thread may have. What it logs is written when
                it is done, as this thread may have the lock of a handler of logging.
            given: what it is called with.

        Returns:
            What that gives.
        """
        if not _may_interrupt():
            return do(*given)
        self.delegated = delegated = _DelegatedCall(do, given)
        try:
            self.__class__ = _Delegating
            result: T = _outcome(delegated)
        finally:
            self.delegated = None
            if not self.is_foreign:
                self.__class__ = Guard
        return result


class _DelegatedCall:
    """A call that another thread makes on behalf of one that has a guard.

    Attributes:
        do: what is to be done.
        given: what it is called with.
        done: what it has given or raised, once it is over.
        is_over: is had until then.
        has_begun: whether the other thread has it.
        lines: what it has logged.
    """

    __slots__ = ("do", "done", "given", "has_begun", "is_over", "lines")

    def __init__(self, do: Callable[..., Any], given: tuple[Any, ...]) -> None:
        """Make one that has not begun; it does nothing by itself."""
        self.do, self.given = do, given
        self.done: list[Any] = []
        self.is_over = _thread.allocate_lock()
        self.is_over.acquire()
        self.has_begun = False
        self.lines: list[LogRecord] = []

    def work(self) -> None:
        """Do it, in the other thread."""
        result: Any
        me = _thread.get_ident()
        logs.held_back[me] = self.lines
        try:
            result = self.do(*self.given)
        except BaseException as error:
            result = error
        del logs.held_back[me]
        # Who logs has Python remember this thread, and before 3.13 also when it has ended.
        threading._active.pop(me, None)  # type: ignore[attr-defined]
        self.done.append(result)
        self.is_over.release()

    def wait(self) -> None:
        """Wait until it is done, in a signal handler of the thread that waits for it already."""
        while not self.done:
            with self.is_over:
                pass

    def forsake(self) -> None:
        """Wake the thread that waits, in the child of a fork: the other one has stayed behind."""
        self.done.append(foreign())
        with suppress(RuntimeError):
            self.is_over.release()


def _may_interrupt() -> bool:
    """Tell whether signal handlers may run in this thread.

    At the end of the interpreter none do, and a thread that is started then would never come to work.
    """
    return _thread.get_ident() == threading.main_thread().ident and not sys.is_finalizing()


def apart(do: Callable[..., T], *given: Any) -> T:
    """Do something where no signal handler runs, and nobody has a guard that it takes; see `Guard.apart`."""
    if not _may_interrupt():
        return do(*given)
    result: T = _outcome(_DelegatedCall(do, given))
    return result


def _outcome(delegated: _DelegatedCall) -> Any:
    """Start a call in another thread, and wait for its end, whatever signal handlers raise meanwhile."""
    raised: BaseException | None = None
    delegated.has_begun = True
    try:
        _thread.start_new_thread(delegated.work, ())
    except RuntimeError as error:
        if _NO_THREAD in str(error):
            delegated.has_begun = False
            return delegated.do(*delegated.given)
        raised = error
    except BaseException as error:
        raised = error
    try:
        while not delegated.done:
            try:
                delegated.is_over.acquire()
            except BaseException as error:
                raised = error
    except BaseException as error:
        # Another handler, where the loop begins anew.
        raised = error
        if not delegated.done:
            delegated.is_over.acquire()
    result = delegated.done[0]
    logs.write(delegated.lines)
    if raised is not None:
        raise raised
    if isinstance(result, BaseException):
        raise result
    return result


class _Delegating(Guard):
    """The guard of a socket that another thread uses on behalf of the one that has it; see `Guard.apart`."""

    __slots__ = ()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it; a signal handler of the thread that has it waits until the other one is done."""
        delegated = self.delegated
        if delegated is not None and delegated.has_begun and self._is_owned():
            delegated.wait()
        return super().acquire(blocking, timeout)

    def __enter__(self) -> bool:
        """Take it, as `acquire`."""
        return self.acquire()


class StrictGuard(Guard):
    """A subscriber's guard: it refuses other threads, since who has it may wait for a message for ever."""

    __slots__ = ()

    has_waiters = False

    def __enter__(self) -> bool:
        """Take it.

        Raises:
            OwnershipError: another thread has it, or the process did not make it.
        """
        try:
            if self.acquire(False):
                return True
        except BaseException:
            # A signal handler has raised behind it.
            try:  # noqa: SIM105 - no call before it, in which one might raise again
                self.release()
            except RuntimeError:
                pass  # Another thread has it.
            raise
        raise in_use()


class _Foreign(Guard):
    """The guard of a socket in the child of a fork."""

    __slots__ = ()

    is_foreign = True
    acquire = __enter__ = refuse  # type: ignore[assignment]


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def holds_up_others() -> bool:
    """Tell whether this thread has a guard that others wait for.

    Nobody waits with one, but a signal handler that has come between two steps of who has it.
    """
    while True:
        # Another thread may make one meanwhile.
        with suppress(RuntimeError):
            return any(one.has_waiters and one.is_mine for one in tuple(_guards))


def _disown_all() -> None:
    for guard in list(_guards):
        guard.disown()
    _guards.clear()


after_fork(_disown_all)
