"""The publisher of a node that a subject goes out by, and what it has to know before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oz.errors import OwnershipError
from oz.protocol.node import reserved_subjects
from oz.protocol.node.links import Links
from oz.transport.node.opening import NodeSockets
from oz.transport.node.publisher import NodePublisher
from oz.transport.node.subscriptions import NodeShell

_MARKS = {"_", b"_"}
_INBOXES = {reserved_subjects.INBOX, reserved_subjects.INBOX.encode()}
"""How reserved subjects begin, and those of them that go out as all others do."""


class NodePublishing:
    """Says which publisher of a node a subject goes out by, and flushes all, once it has its sockets.

    Attributes:
        sockets: of the node.
        links: to its peers.
        is_unheard: the node has subscribed to something that its own publishers do not know yet.
    """

    def __init__(self, shell: NodeShell, dialect: str, check_open: Callable[[], None]) -> None:
        """Begin without sockets.

        Args:
            shell: the threads or loop of the node.
            dialect: of its subjects.
            check_open: raises where nothing goes out.
        """
        self._shell = shell
        self._dialect = dialect
        self._check_open = check_open
        self.sockets: NodeSockets
        self.links: Links
        self.is_unheard = False

    def publisher_for(self, subject: Any) -> NodePublisher:
        """Say which publisher a subject goes out by.

        Raises:
            SubjectError: it is one of oz's own.
            ClosedError: the node is closed.
        """
        self._check_open()
        if self.is_unheard and self._shell.may_call:
            self.tell_own()
        if isinstance(subject, (str, bytes)) and subject[:1] in _MARKS and subject[:7] not in _INBOXES:
            reserved_subjects.check_published(subject, self._dialect)
            local = reserved_subjects.LOCAL if isinstance(subject, str) else reserved_subjects.LOCAL.encode()
            if subject.startswith(local):  # type: ignore[arg-type]
                return self.sockets.local
        return self.sockets.main

    def has_responders(self, subject: Any) -> bool | None:
        """Tell whether a request would be answered; None when not every peer has had its say yet.

        Raises:
            SubjectError, ClosedError: see `publisher_for`.
        """
        if self.publisher_for(subject).engine.interest(subject):
            return True
        return None if self.links.unready() else False

    def tell_own(self) -> None:
        """Tell this node's publishers its own subscriptions: it may publish right after that.

        Not in a signal handler that interrupts a publisher, for which the I/O side would wait in vain.
        """
        if not self.is_interrupted:
            self._shell.call(self._take_in_own)

    def _take_in_own(self) -> None:
        self.sockets.sub.flush()
        for publisher in self.sockets.publishers:
            # What goes over inproc is there as soon as it is asked for.
            publisher.engine.listen()
        self.is_unheard = False

    @property
    def is_interrupted(self) -> bool:
        """Whether this thread interrupts a publisher of the node, as a signal handler does."""
        # Asked for each request: a loop over them takes four times as long.
        local, network = self.sockets.local, self.sockets.network
        return local.engine.guard.is_mine or (network is not None and network.engine.guard.is_mine)

    def flush(self) -> None:
        """Send now what waits for others to make a batch.

        Raises:
            ClosedError: the node is closed.
        """
        self._check_open()
        for publisher in self.sockets.publishers:
            publisher.engine.flush_now()

    def look_soon(self) -> None:
        """Take in what was unsubscribed before anybody asks: over inproc it is there already."""
        for publisher in self.sockets.publishers:
            publisher.engine.sender.listened_at = 0.0

    def check_owner(self) -> None:
        """Refuse what is done after a fork.

        Raises:
            OwnershipError: the node was made in the parent process.
        """
        if self.sockets.local.engine.guard.is_foreign:
            raise OwnershipError(
                "this node was made before a fork, in the parent process; make one in the child"
            )
