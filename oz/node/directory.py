"""Directory in which nodes of one host find each other: a stand-in until the branch `roster` has its own."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from oz.configuration import private_directory


class Directory:
    """Sockets of the nodes of one bus on this host.

    Attributes:
        prefix: begin of the endpoints of all nodes of the bus.
        endpoint: of this node.
    """

    def __init__(self, directory: Path, bus: str, node: bytes) -> None:
        """Create the directory, if it does not exist."""
        private_directory(directory)
        begins = hashlib.blake2b(bus.encode(), digest_size=6).hexdigest()
        self.prefix = f"ipc://{directory}/{begins}-"
        self.endpoint = f"{self.prefix}{node.hex()[:16]}.sock"

    def others(self) -> set[str]:
        """Return the endpoints of other nodes."""
        folder = Path(self.endpoint.removeprefix("ipc://")).parent
        found = {f"ipc://{folder}/{one}" for one in os.listdir(folder) if one.endswith(".sock")}
        return {one for one in found if one.startswith(self.prefix)} - {self.endpoint}

    def interval(self, *, has_peers: bool) -> float:
        """Return seconds until the directory is read again."""
        return 30.0 if has_peers else 2.0

    def remove(self) -> None:
        """Remove the socket of this node."""
        with suppress(OSError):
            os.unlink(self.endpoint.removeprefix("ipc://"))
