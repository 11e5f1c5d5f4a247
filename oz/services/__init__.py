"""Programs that run for long: the name server, the forwarder, the recorder and the replayer of the journal.

What is public of them is here, and loaded when it is asked for: the recorder and the replayer need the extra
`journal`, and a program that only asks a name server starts no threads.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oz.protocol.node.registry import RegistryStats
    from oz.protocol.stats import ForwarderStats
    from oz.services.forwarder import Forwarder
    from oz.services.nameserver import NameServer, ask
    from oz.services.proxy import Proxy, ProxyStats
    from oz.services.recorder import Recorder, RecorderStats
    from oz.services.replayer import Replay, replay

_HOMES = {
    "Forwarder": "oz.services.forwarder",
    "ForwarderStats": "oz.protocol.stats",
    "NameServer": "oz.services.nameserver",
    "Proxy": "oz.services.proxy",
    "ProxyStats": "oz.services.proxy",
    "Recorder": "oz.services.recorder",
    "RecorderStats": "oz.services.recorder",
    "RegistryStats": "oz.protocol.node.registry",
    "Replay": "oz.services.replayer",
    "ask": "oz.services.nameserver",
    "replay": "oz.services.replayer",
}

__all__ = [
    "Forwarder",
    "ForwarderStats",
    "NameServer",
    "Proxy",
    "ProxyStats",
    "Recorder",
    "RecorderStats",
    "RegistryStats",
    "Replay",
    "ask",
    "replay",
]


def __getattr__(name: str) -> Any:
    """Load what is asked for first."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
