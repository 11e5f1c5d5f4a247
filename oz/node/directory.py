"""STAND-IN."""

import hashlib
import os
from pathlib import Path

from oz.configuration import private_directory


class Directory:
    def __init__(self, directory: Path, bus: str, node: bytes) -> None:
        self._directory = private_directory(directory) or directory
        begins = hashlib.blake2b(bus.encode(), digest_size=6).hexdigest() + "-"
        self.prefix = f"ipc://{directory}/{begins}"
        self.endpoint = f"{self.prefix}{node.hex()[:16]}.sock"

    def others(self) -> set[str]:
        folder = os.path.dirname(self.prefix[6:])
        return {
            f"ipc://{folder}/{one}"
            for one in os.listdir(folder)
            if f"ipc://{folder}/{one}".startswith(self.prefix) and one.endswith(".sock")
        } - {self.endpoint}

    def interval(self, *, has_peers: bool) -> float:
        return 30.0 if has_peers else 2.0

    def remove(self) -> None:
        from contextlib import suppress

        with suppress(OSError):
            os.unlink(self.endpoint[6:])
