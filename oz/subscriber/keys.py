"""Keys of a subscriber: session ids made from its own key, and the check whether publishers may send their messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import zmq

from oz.message import Extras
from oz.security.identity import make_uuid_of
from oz.security.publish_access import Denials, PublishAccess
from oz.subscriber.link import Messages
from oz.transport.credentials import Credentials
from oz.transport.keys import Keys
from oz.wire.extras import REPLY_TO


class SubscriberKeys(Keys):
    """Keys of the publishers to which a subscriber connects.

    Attributes:
        rights: permissions that decide which messages each publisher's key may publish.
        denials: object that counts and logs denied messages.
    """

    def __init__(
        self,
        credentials: Credentials,
        wake: Callable[[], object],
        report: Callable[[str, str], object],
        reconnect: Callable[[str], object],
        end: Callable[[str], object],
        delimiter: bytes | None = None,
    ) -> None:
        """Start without endpoints; see `Keys`.

        Args:
            credentials: key, trusted keys and permissions of the subscriber.
            wake: function that makes the engine call `tend`. Any thread may call the function.
            report: function called with an endpoint and the reason when a key is refused; see `Keys`.
            reconnect: function called with an endpoint to which the engine must connect again with the current key.
            end: function called with an endpoint whose connections must end.
            delimiter: bytes between subject and payload in plain messages of one frame; None for two frames.
        """
        super().__init__(credentials, wake, report, reconnect, end)
        self._delimiter = delimiter
        self._has_permissions = credentials.permissions is not None
        self.denials = Denials()
        self.rights = PublishAccess(credentials.rights, self.denials)

    @property
    def denied(self) -> int:
        """Number of received messages that their publisher's key was not allowed to publish."""
        return self.denials.denied

    def new_session(self) -> bytes:
        """Return a session id made from the subscriber's key. Publishers refuse this id from any other key."""
        return make_uuid_of(self.credentials.public_key, os.urandom)

    def serve(self, socket: zmq.Socket[Any], now: float) -> None:
        """Require a trusted key at the next endpoint that a socket binds. Peers without one are logged and counted.

        Raises:
            ConfigurationError: the context has another authenticator.
        """
        self.credentials.serve(socket)
        self.watch(socket, now)

    def allowed(self, key: str | None, origin: bytes, effect: Messages) -> Iterable[Messages]:
        """Return the messages that the publisher's key may publish; count the denied messages.

        Args:
            key: key of the publisher; None for a publisher in the same process.
            origin: id of the publisher's process. The id belongs to the first key that has used it. Messages with this
                id from other keys are denied.
            effect: messages that have arrived on the link.
        """
        rights = self.rights
        rights.key = key
        count = len(effect.positions)
        if not rights.owns(origin, count):
            return ()
        if not self._has_permissions:
            # Without permissions every message is allowed. Do not decode the subjects.
            return (effect,)
        denied = rights.denied(effect.flat[0::3], _inboxes_of(effect.flat[2::3]))
        return (effect,) if not denied else _without(effect, denied)

    def allowed_plain(self, key: str | None, messages: list[list[bytes]]) -> list[list[bytes]]:
        """Return the plain messages that their publisher's key may publish; count the denied messages."""
        rights = self.rights
        rights.key = key
        delimiter = self._delimiter
        if delimiter is not None:
            return [message for message in messages if rights.allows(message[0].partition(delimiter)[0])]
        return [message for message in messages if rights.allows(message[0])]


def _inboxes_of(extras: list[dict[Any, Any] | None]) -> list[Extras | None] | None:
    """Return a list with `Extras` for each request and None for each other message; None without requests."""
    found = [None if extra is None else extra.get(REPLY_TO) for extra in extras]
    if not any(found):
        return None
    return [Extras(reply_to=item) if isinstance(item, str) else None for item in found]


def _without(effect: Messages, denied: list[int]) -> list[Messages]:
    found = []
    start = 0
    for stop in (*denied, len(effect.positions)):
        if stop > start:
            found.append(
                effect._replace(
                    sequence=effect.sequence + start,
                    positions=effect.positions[start:stop],
                    content=effect.flat[3 * start : 3 * stop],
                )
            )
        start = stop + 1
    return found
