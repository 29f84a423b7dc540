"""What packages and files come back as when they are installed, exported and imported."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ._short import Short
from .errors import InvalidRequestError

__all__ = ["ExportedFile", "FileToImport", "ImportedFile", "Package"]


@dataclass(frozen=True, repr=False)
class Package(Short):
    """A package that was installed."""

    name: str
    version: str = ""


@dataclass(frozen=True, repr=False)
class FileToImport(Short):
    """What to bring into a sandbox: one of content, ``path`` of another sandbox, or ``source``.

    Attributes:
        destination: where it goes, relative to /workspace; default the last part of its name. Content needs one.
        content: text or bytes of the file.
        sandbox: the id of the sandbox that exported ``path``.
        path: a file or directory that this sandbox exported, or something below one.
        source: a path of the daemon's machine, below the directories that its operator allows.
    """

    destination: str = ""
    content: bytes | str | None = None
    sandbox: str = ""
    path: str = ""
    source: str = ""

    def request(self) -> dict[str, Any]:
        """Return it as the API takes it."""
        kinds = [self.content is not None, bool(self.sandbox or self.path), bool(self.source)]
        if kinds.count(True) != 1:
            raise InvalidRequestError("a file to import has one of content, sandbox with path, and source")
        fields: dict[str, Any] = {
            "source": self.source,
            "session_id": self.sandbox,
            "path": self.path,
            "destination": self.destination,
        }
        fields = {k: v for k, v in fields.items() if v}
        if isinstance(self.content, str):
            fields |= {"file_content": self.content, "encoding": "text"}
        elif self.content is not None:
            fields |= {"file_content": base64.b64encode(self.content).decode(), "encoding": "base64"}
        return fields


@dataclass(frozen=True, repr=False)
class ImportedFile(Short):
    """One file or directory that was to be imported: where it is in the sandbox, or why it is not."""

    source: str
    destination: str = ""
    success: bool = False
    size: int = 0
    error: str = ""


@dataclass(frozen=True, repr=False)
class ExportedFile(Short):
    """One file or directory that is exported, or was to be.

    ``path`` is absolute; ``size`` of a directory is that of all files below it; ``error`` says why it is not exported.
    """

    session_id: str
    path: str
    success: bool = False
    size: int = 0
    dir: bool = False
    error: str = ""
    download_url: str | None = None
    created_at: datetime | None = None
