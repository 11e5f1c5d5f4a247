"""One archiver at a time."""

from __future__ import annotations

from pathlib import Path

from oz.errors import LakeError
from oz.journal.lock import ProcessLock


class LakeLock(ProcessLock):
    """The right to change a lake."""

    def __init__(self, path: Path) -> None:
        """Take it.

        Args:
            path: the lock's file, in a directory of the lake's.

        Raises:
            LakeError: another archiver has it.
        """
        super().__init__(
            path,
            lambda holder: LakeError(
                f"{path.parent.parent}: another archiver is at work on this lake (process {holder}); wait "
                "for its end"
            ),
        )
