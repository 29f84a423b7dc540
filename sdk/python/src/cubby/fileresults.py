"""What there is at paths of a sandbox, and what changes there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from ._short import Short

__all__ = [
    "FileChange",
    "FileInfo",
    "FileOperation",
    "FileType",
]

FileType = Literal["file", "dir", "symlink", "other"]
"""What there is at a path."""


FileOperation = Literal["ready", "create", "write", "remove", "rename", "chmod", "overflow"]
"""What a watch reports of a path."""


@dataclass(frozen=True, repr=False)
class FileInfo(Short):
    """A path inside a sandbox.

    ``type`` is ``file``, ``dir``, ``symlink`` or ``other``; ``mode`` is octal text, ``"0644"``; ``target`` is where a
    symlink leads, as stored.
    """

    _shown: ClassVar[Sequence[str]] = ("path", "type", "size", "mode", "target")

    path: str
    name: str
    type: FileType
    size: int = 0
    mode: str = ""
    uid: int = 0
    gid: int = 0
    mod_time: datetime | None = None
    target: str = ""

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.type == "dir"

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.type == "file"


@dataclass(frozen=True, repr=False)
class FileChange(Short):
    """A change that a watch reports.

    ``op`` is ``create``, ``write``, ``remove``, ``rename``, ``chmod``, or ``overflow`` when changes came too fast and
    some were dropped.
    """

    path: str
    op: FileOperation
    time: datetime | None = None
