"""The layout of a lake: a folder for each day and first token, files named by the offsets in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from oz.errors import LakeError

DAY, FIRST_TOKEN = "day", "first_token"
GAPS, OTHER = "@gaps", "@other"
"""The folders of records that are no messages, and of tokens that have none of their own."""

MOST_CHARACTERS = 100
"""The longest name of a token's folder; a longer one shares `OTHER`."""

_FILE_SYSTEM = "file://"
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_NULL = "__HIVE_DEFAULT_PARTITION__"  # a name that readers take for null
_FILE = re.compile(r"(\d{20})-(\d{20})-(\d{5})(?:-c(\d+))?\.parquet")


@dataclass(frozen=True)
class LakeLayout:
    """The layout of a lake. All but the separator may change from run to run.

    Attributes:
        separator: what ends the first token of a subject.
        most_tokens: how many first tokens have folders of their own; the others share one. Those with the
            most messages come first, and a token that has a folder keeps it.
        file_bytes: about how large a file becomes, where there are enough rows for it.
        row_group_rows: rows of a row group: what a reader skips or reads at a time.
        step_rows: about how many records are archived at a time; what is killed costs the work of one step.
        step_bytes: the same in bytes of the journal's files.
    """

    separator: str = "."
    most_tokens: int = 100
    file_bytes: int = 128 << 20
    row_group_rows: int = 50_000
    step_rows: int = 4_000_000
    step_bytes: int = 512 << 20

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            ValueError: there is no separator, or a number is not positive.
        """
        if not self.separator:
            raise ValueError("the separator is empty")
        if self.most_tokens < 0:
            raise ValueError(f"most_tokens is {self.most_tokens}; it is at least 0")
        least_one = {
            "file_bytes": self.file_bytes,
            "row_group_rows": self.row_group_rows,
            "step_rows": self.step_rows,
            "step_bytes": self.step_bytes,
        }
        for name, value in least_one.items():
            if value < 1:
                raise ValueError(f"{name} is {value}; it is at least 1")


def folder_of_token(token: str) -> str | None:
    """Name the folder of a token: letters, digits, `_` and `-` stand for themselves, other bytes as `@2f`.

    Returns:
        The value of `first_token`; None when it would be too long.
    """
    if _PLAIN.fullmatch(token) and token != _NULL:
        name = token
    elif token == _NULL:
        name = "@5f" + token[1:]
    else:
        name = "".join(_written(character) for character in token) or "@"
    return name if len(name) <= MOST_CHARACTERS else None


def _written(character: str) -> str:
    if _PLAIN.fullmatch(character):
        return character
    return "".join(f"@{byte:02x}" for byte in character.encode())


def file_name(first: int, end: int, number: int, generation: int | None = None) -> str:
    """Name a file.

    Args:
        first: all its offsets are from this one on.
        end: and before this one.
        number: which of the files with that range.
        generation: of a file that a compaction made: which compaction.
    """
    mark = "" if generation is None else f"-c{generation}"
    return f"{first:020d}-{end:020d}-{number:05d}{mark}.parquet"


def range_of(name: str) -> tuple[int, int] | None:
    """Return the offsets that a file's name says; None for a name that is not of this kind."""
    match = _FILE.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def folders(lake: Path) -> Iterable[Path]:
    """List the folders that hold files, in order."""
    return sorted(lake.glob(f"{DAY}=*/{FIRST_TOKEN}=*"))


def token_of_folder(folder: str) -> str:
    """Return the value of `first_token` in a folder's path."""
    return Path(folder).name.partition("=")[2]


def day_of_folder(folder: str) -> str:
    """Return the value of `day` in a folder's path."""
    return Path(folder).parent.name.partition("=")[2]


def is_stored(lake: str) -> bool:
    """Tell whether the address of a lake is one of an object store, or of another remote file system."""
    return "://" in lake.removeprefix(_FILE_SYSTEM)


def local_path(path: str | Path) -> Path:
    """Take a path of a file system.

    Raises:
        LakeError: it is the address of an object store.
    """
    text = str(path).removeprefix(_FILE_SYSTEM)
    if is_stored(text):
        raise LakeError(
            f"{path}: files wait on a file system that driver and executors see; name a directory"
        )
    return Path(text).absolute()
