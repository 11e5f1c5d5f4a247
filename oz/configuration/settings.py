"""The settings of a node, and what each may be."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from oz.configuration.directory import default_directory
from oz.configuration.kinds import Count, Directory, Endpoints, Name, OneOf, Seconds, SettingKind
from oz.subjects.dialects import DIALECTS

CODECS = ("msgpack", "json")
"""The codecs that have a name; those of oz.wire.codec, which is none of this layer's business."""

MAX_BOUND = 16
"""What an announcement to a name server has room for."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it came from.

    Attributes:
        name: what the setting is called.
        value: in the form that the node uses.
        source: "argument", "environment variable OZ_BUS", "file /x/oz.toml" or "default".
    """

    name: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Definition:
    """One setting: its name, its kind and its default.

    Attributes:
        name: as an argument and in a file.
        kind: what it may be.
        default: gives its value when nobody says anything.
        meaning: what it is for, in a few words.
    """

    name: str
    kind: SettingKind
    default: Callable[[], Any]
    meaning: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"OZ_{self.name.upper()}"


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


DEFINITIONS: tuple[Definition, ...] = (
    Definition("bus", Name(), _always("default"), "the bus to join; nodes of others never hear of it"),
    Definition("name", Name(), _always(None), "what the node is called"),
    Definition("nameserver", Endpoints(16), _always(()), "where name servers are"),
    Definition("bind", Endpoints(MAX_BOUND, are_bound=True), _always(()), "where other hosts connect to it"),
    Definition("peers", Endpoints(1_024), _always(()), "nodes to connect to, without a name server"),
    Definition("dialect", OneOf(DIALECTS), _always(DIALECTS[0]), "the dialect of its patterns"),
    Definition("codec", OneOf(CODECS, ("encode", "decode")), _always(CODECS[0]), "what payloads are"),
    Definition("join_timeout", Seconds(0, 86_400), _always(5.0), "seconds to wait for a name server"),
    Definition("directory", Directory(), default_directory, "where nodes of one host find each other"),
    Definition("threads", Count(1, 1_024), _always(8), "the most handlers that run at once"),
    Definition("lost_after", Seconds(0.1, 3_600), _always(3.0), "seconds of silence until a peer is lost"),
)
"""All settings, in the order in which they are shown."""

BY_NAME: dict[str, Definition] = {one.name: one for one in DEFINITIONS}


def meant(wrong: str, names: Iterable[str]) -> str | None:
    """Guess which of some names a wrong one was meant to be."""
    return next(iter(difflib.get_close_matches(wrong, names, n=1, cutoff=0.75)), None)
