"""The recipients of a subject, which a publisher works out once for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oz.protocol.publisher.groups import Choice, Group
from oz.protocol.publisher.stream import OutStream

NOBODY, PLAIN, ROUTED = 0, 1, 2


class Recipients:
    """The recipients of messages. Subjects with the same recipients share one object, so that batches fill.

    Attributes:
        kind: `NOBODY`, or of `PLAIN` and `ROUTED` those that apply, added.
        streams: the streams that each message goes out on.
        choices: for each queue group, the members of which one gets it.
        is_simple: whether a message goes out as it is on every stream: no groups, no `overflow`.
    """

    __slots__ = ("choices", "is_simple", "kind", "streams")

    def __init__(
        self, *, is_plain: bool, streams: tuple[OutStream, ...], choices: tuple[Choice, ...]
    ) -> None:
        """Put together who wants it."""
        self.kind = PLAIN * is_plain | ROUTED * bool(streams or choices)
        self.streams = streams
        self.choices = choices
        self.is_simple = not choices and all(one.delivery.overflow is None for one in streams)


class RecipientSets:
    """All recipients in use; forgotten whenever an interest comes or goes."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        """Start with none."""
        self._known: dict[Any, Recipients] = {}

    def clear(self) -> None:
        """Forget all. Messages that wait may have been given one already: it is marked as outdated."""
        for recipients in self._known.values():
            for choice in recipients.choices:
                choice.is_outdated = True
        self._known.clear()

    def find(self, found: Iterable[OutStream], groups: dict[str, Group], *, is_plain: bool) -> Recipients:
        """Return the recipients made of some streams.

        Args:
            found: the streams with a pattern that matches.
            groups: the queue groups by name.
            is_plain: whether a plain subscription matches.
        """
        members = frozenset(found)
        recipients = self._known.get((members, is_plain))
        if recipients is None:
            streams, grouped = [], dict[str, list[OutStream]]()
            for stream in sorted(members, key=lambda one: one.joined):
                if stream.delivery.group:
                    grouped.setdefault(stream.delivery.group, []).append(stream)
                else:
                    streams.append(stream)
            choices = tuple(Choice(groups[name], several) for name, several in grouped.items())
            recipients = Recipients(is_plain=is_plain, streams=tuple(streams), choices=choices)
            self._known[members, is_plain] = recipients
        return recipients
