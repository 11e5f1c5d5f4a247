"""The compiled part of oz, if it runs: the plain, common case of what is done for each message, in C.

Each function has a twin in Python, which says what is right and does all that is not plain. Without a
compiler oz is installed without this part, and does the same more slowly: decision 068 in docs/decisions.

The environment variable `OZ_COMPILED` says whether it runs: `1`, the default, where it is there; `0` never;
`require` has the import of oz fail where it cannot.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any, Protocol, cast

_CHOICES = ("0", "1", "require")


class Hot(Protocol):
    """What the compiled part does; None stands for what its twin has to do."""

    def unpack(
        self, frame: bytes, at: int, count: int, known: dict[bytes, Any]
    ) -> tuple[list[bytes], list[bytes], list[Any] | None] | None:
        """Read the body of a batch in which all is plain bytes: subjects, payloads, and the route of each.

        There are no routes where one of them is not among those known.
        """

    def know_messages(self, message_class: type, route_class: type) -> None:
        """Say of which classes the messages of a batch and their routes are."""

    def make(self, payloads: list[bytes], routes: list[Any], arrival: Any) -> list[Any] | None:
        """Make the messages of a batch, numbered from 0."""

    def know_packer(self, pack: Callable[[list[Any]], bytes]) -> None:
        """Say what packs a list that `pack` does not."""

    def pack(self, items: list[Any]) -> bytes:
        """Pack a list as a MessagePack array."""


def _load() -> tuple[Hot | None, str]:
    """Return the compiled part, or None and why it does not run.

    Raises:
        ImportError: it is required and cannot run; or `OZ_COMPILED` is none of its values.
    """
    choice = os.environ.get("OZ_COMPILED") or "1"
    if choice not in _CHOICES:
        raise ImportError(f"OZ_COMPILED is one of {', '.join(_CHOICES)}, not {choice!r}")
    if choice == "0":
        return None, "switched off by OZ_COMPILED=0"
    try:
        return cast(Hot, importlib.import_module("oz.compiled._hot")), ""
    except ModuleNotFoundError:
        reason = "not built: there was no C compiler, or no Python headers, when oz was installed"
    except ImportError as error:
        reason = f"does not load: {error}"
    if choice == "require":
        raise ImportError(f"OZ_COMPILED=require, but the compiled part of oz is {reason}")
    return None, reason


HOT, WHY_NOT = _load()
"""The compiled part, or None; and why it does not run, empty where it does."""
