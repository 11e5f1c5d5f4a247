"""Other functions in place of those that sockets of pyzmq are called by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oz.transport import backend


def call_instead(monkeypatch: pytest.MonkeyPatch, **functions: Callable[..., Any]) -> None:
    """Have sockets that are made from now on called by other functions: `send=…`, `recv=…`.

    With another `send` every frame goes by that.
    """
    if "send" in functions:
        functions["send_whole"] = None  # type: ignore[assignment]
    monkeypatch.setattr(backend, "PYZMQ", replace(backend.PYZMQ, **functions))
