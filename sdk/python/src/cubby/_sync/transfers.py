# Made from ../_async/transfers.py by tools/unasync.py; change that one.
"""Files that a sandbox offers to others, and what it takes from them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from .._decode import decode_list
from .._request import path as url_path
from .._request import query
from ..transferresults import ExportedFile, FileToImport, ImportedFile
from .saving import save
from .transport import Transport


class Transfers:
    """Exports and imports of one sandbox."""

    def __init__(self, transport: Transport, box_id: str) -> None:
        self._transport = transport
        self._box_id = box_id

    def _url(self, *elements: str) -> str:
        return url_path("sandboxes", self._box_id, *elements)

    def export(self, paths: Sequence[str]) -> list[ExportedFile]:
        """Register files and directories; see :meth:`cubby.Sandbox.export_files`."""
        body = {"files": [{"source": p} for p in paths]}
        answer = self._transport.call("POST", self._url("exports"), json=body, repeat=True)
        return decode_list(ExportedFile, answer, "files")

    def exports(self) -> list[ExportedFile]:
        """Return what is registered."""
        answer = self._transport.call("GET", self._url("exports"), repeat=True)
        return decode_list(ExportedFile, answer, "files")

    def take(self, files: Sequence[FileToImport]) -> list[ImportedFile]:
        """Bring files into the sandbox; see :meth:`cubby.Sandbox.import_files`."""
        body = {"files": [f.request() for f in files]}
        return decode_list(ImportedFile, self._transport.call("POST", self._url("imports"), json=body), "files")

    @contextmanager
    def open(self, path: str, format: Literal["zip", "tar.gz"] | None) -> Iterator[Iterator[bytes]]:
        """Read something exported piece by piece."""
        with self._transport.stream(
            self._url("exports", "download"), params=query(path=path, format=format)
        ) as response:
            yield response.iter_bytes()

    def download(self, path: str, local: str | os.PathLike[str], format: Literal["zip", "tar.gz"] | None) -> None:
        """Copy something exported to a local file, which is there when all of it has come."""
        with self.open(path, format) as pieces:
            save(pieces, Path(local))
