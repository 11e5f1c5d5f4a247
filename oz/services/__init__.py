"""Long-running programs: name server, forwarder, proxy, gateway, and the recorder and the replayer of journals.

A public name is imported when a program first uses it. The recorder and the replayer need the extra `journal`, which a
program without these names need not install.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oz.services.bridge import Forwarder, ForwarderStats
    from oz.services.gateway import Gateway, GatewayStats
    from oz.services.name_server import NameServer, NameServerStats
    from oz.services.proxy import Proxy, ProxyStats
    from oz.services.recorder import Recorder, RecorderStats
    from oz.services.replayer import Replay, ReplayStats, replay
    from oz.services.worker import WorkerError

_HOMES = {
    "Forwarder": "oz.services.bridge",
    "ForwarderStats": "oz.services.bridge",
    "Gateway": "oz.services.gateway",
    "GatewayStats": "oz.services.gateway",
    "NameServer": "oz.services.name_server",
    "NameServerStats": "oz.services.name_server",
    "Proxy": "oz.services.proxy",
    "ProxyStats": "oz.services.proxy",
    "Recorder": "oz.services.recorder",
    "RecorderStats": "oz.services.recorder",
    "Replay": "oz.services.replayer",
    "ReplayStats": "oz.services.replayer",
    "WorkerError": "oz.services.worker",
    "replay": "oz.services.replayer",
}

__all__ = [
    "Forwarder",
    "ForwarderStats",
    "Gateway",
    "GatewayStats",
    "NameServer",
    "NameServerStats",
    "Proxy",
    "ProxyStats",
    "Recorder",
    "RecorderStats",
    "Replay",
    "ReplayStats",
    "WorkerError",
    "replay",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first access."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
