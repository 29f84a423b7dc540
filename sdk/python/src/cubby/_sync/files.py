# Made from ../_async/files.py by tools/unasync.py; change that one.
"""Files of a sandbox."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Literal

from .._decode import decode, decode_list
from .._request import path as url_path
from .._request import query, read_change
from .._tree import pack, unpack
from ..errors import NotFoundError
from ..models import FileChange, FileInfo
from ._backend import Content, Gen, in_thread
from .saving import save
from .streams import Stream
from .transport import Transport


class Files:
    """A sandbox's files. Relative paths are relative to /workspace.

    It works also while the sandbox is stopped, for /workspace and /home/sandbox.
    """

    def __init__(self, transport: Transport, box_id: str) -> None:
        self._transport = transport
        self._box_id = box_id

    def _url(self, *elements: str) -> str:
        return url_path("sandboxes", self._box_id, "files", *elements)

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes.

        Args:
            path: the file.
            offset: where to begin; an offset behind the end is an InvalidRequestError.
            length: how much; None is up to the end.
        """
        if length == 0:
            return b""
        response = self._transport.fetch(
            "GET", self._url("content"), params=query(path=path), headers=_range(offset, length), repeat=True
        )
        return b"" if response is None else response.content

    def read_text(self, path: str, *, encoding: str = "utf-8") -> str:
        """Return a whole file as text."""
        return (self.read(path)).decode(encoding)

    @contextmanager
    def open(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> Iterator[Iterator[bytes]]:
        """Read a file piece by piece: the context gives an iterator over bytes. Takes what read takes."""
        with self._transport.stream(
            self._url("content"), params=query(path=path), headers=_range(offset, length)
        ) as response:
            yield response.iter_bytes()

    def write(
        self,
        path: str,
        content: Content,
        *,
        mode: int | str | None = None,
        append: bool = False,
        parents: bool = True,
    ) -> FileInfo:
        """Write a file. It belongs to the sandbox's default user.

        A file is replaced atomically: readers see the old or the new content, never a part. Appends are not atomic.

        Args:
            path: the file.
            content: text, bytes, a file that is open for reading bytes, or an iterable of bytes.
            mode: its permissions, ``0o755`` or ``"0755"``; None keeps an existing file's, else 0644.
            append: add to the file instead of replacing it.
            parents: make missing directories; without it they are a NotFoundError.
        """
        octal = f"{mode:04o}" if isinstance(mode, int) else mode
        answer = self._transport.send(
            "PUT",
            self._url(),
            content,
            params=query(path=path, append=append, parents=parents, mode=octal),
            repeat=not append,
        )
        return decode(FileInfo, answer)

    def list(self, path: str = "/workspace", *, recursive: bool = False) -> list[FileInfo]:
        """Return what is in a directory, by name; with recursive everything below it."""
        answer = self._transport.call(
            "GET", self._url(), params=query(path=path, recursive=recursive), repeat=True
        )
        return decode_list(FileInfo, answer, "entries")

    def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        """Describe a path; of a symlink what it leads to, or without follow the link itself."""
        answer = self._transport.call(
            "GET", self._url("stat"), params=query(path=path, follow=follow), repeat=True
        )
        return decode(FileInfo, answer)

    def exists(self, path: str) -> bool:
        """Tell whether a path exists; a symlink does, wherever it leads."""
        try:
            self.stat(path, follow=False)
        except NotFoundError as e:
            if "no such file or directory" not in e.message:
                raise  # it is the sandbox that is not there
            return False
        return True

    def mkdir(self, path: str, *, parents: bool = True, mode: int | str | None = None) -> FileInfo:
        """Make a directory; with parents also the missing ones above it, and an existing one is then no error."""
        body: dict[str, object] = {"path": path, "parents": parents}
        if mode is not None:
            body["mode"] = f"{mode:04o}" if isinstance(mode, int) else mode
        return decode(FileInfo, self._transport.call("POST", self._url("mkdir"), json=body, repeat=parents))

    def move(self, source: str, target: str, *, replace: bool = False) -> FileInfo:
        """Rename; without replace an existing target is a ConflictError."""
        body = {"from": source, "to": target, "replace": replace}
        return decode(FileInfo, self._transport.call("POST", self._url("move"), json=body))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file or an empty directory, or with recursive a whole tree."""
        self._transport.call("DELETE", self._url(), params=query(path=path, recursive=recursive), repeat=True)

    def upload(
        self, local: str | os.PathLike[str], path: str, *, mode: int | str | None = None, parents: bool = True
    ) -> FileInfo:
        """Copy a local file into the sandbox. Takes what write takes."""
        file = in_thread(Path(local).open, "rb")
        try:
            return self.write(path, file, mode=mode, parents=parents)
        finally:
            in_thread(file.close)

    def download(self, path: str, local: str | os.PathLike[str]) -> None:
        """Copy a file of the sandbox to a local path. Nothing appears there before all of it has come."""
        with self.open(path) as pieces:
            save(pieces, Path(local))

    def upload_dir(self, local: str | os.PathLike[str], path: str) -> None:
        """Copy what is in a local directory into a directory of the sandbox, which is made when it is missing.

        Symlinks are copied as links; devices, sockets and pipes are left out.
        """
        self.extract(path, pack(Path(local)))

    def download_dir(self, path: str, local: str | os.PathLike[str]) -> None:
        """Copy what is in a directory of the sandbox into a local directory, which is made when it is missing.

        What comes from a sandbox is not trusted: nothing is written outside of the local directory, also not through
        symlinks, and devices are left out. Symlinks are made as they are, and may lead anywhere.
        """
        with tempfile.TemporaryFile() as archive:
            self._fetch_archive(path, archive)
            in_thread(unpack, archive, Path(local))

    def _fetch_archive(self, path: str, into: IO[bytes]) -> None:
        with self.archive(path, format="tar") as pieces:
            for piece in pieces:
                in_thread(into.write, piece)
        into.seek(0)

    @contextmanager
    def archive(
        self, path: str, *, format: Literal["tar", "tar.gz", "zip"] = "tar.gz"
    ) -> Iterator[Iterator[bytes]]:
        """Read a directory as an archive, piece by piece. Names in it are relative to the directory.

        Args:
            path: the directory.
            format: ``"tar"``, ``"tar.gz"`` or ``"zip"``.
        """
        with self._transport.stream(self._url("archive"), params=query(path=path, format=format)) as response:
            yield response.iter_bytes()

    def extract(self, path: str, archive: Content) -> None:
        """Unpack a tar or tar.gz into a directory, which is made when it is missing."""
        self._transport.send(
            "PUT",
            self._url("archive"),
            archive,
            params=query(path=path),
            headers={"Content-Type": "application/x-tar"},
            repeat=True,
        )

    def watch(self, path: str = "/workspace", *, recursive: bool = False) -> Stream[FileChange]:
        """Report changes of a directory, with recursive of everything below it, until the stream is closed.

        The first change has the op ``ready``: what happens after it is reported. Changes have no offsets, so a
        connection that breaks ends the watch with an error.
        """
        return Stream(self._watch(query(path=path, recursive=recursive)))

    def _watch(self, params: dict[str, str]) -> Gen[FileChange]:
        with closing(self._transport.events(self._url("watch"), params)) as events:
            for event in events:
                change = read_change(event)
                if change is not None:
                    yield change


def _range(offset: int, length: int | None) -> dict[str, str]:
    if length is not None:
        return {"Range": f"bytes={offset}-{offset + length - 1}"}
    return {"Range": f"bytes={offset}-"} if offset else {}
