"""Files of a sandbox."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import IO, Literal

from .._decode import decode, decode_list
from .._request import path as url_path
from .._request import query, read_change
from .._tree import pack, unpack
from ..errors import NotFoundError
from ..models import FileChange, FileInfo
from ._backend import AsyncContent, AsyncGen, in_thread
from .saving import save
from .streams import AsyncStream
from .transport import AsyncTransport


class AsyncFiles:
    """A sandbox's files. Relative paths are relative to /workspace.

    It works also while the sandbox is stopped, for /workspace and /home/sandbox.
    """

    def __init__(self, transport: AsyncTransport, box_id: str) -> None:
        self._transport = transport
        self._box_id = box_id

    def _url(self, *elements: str) -> str:
        return url_path("sandboxes", self._box_id, "files", *elements)

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes.

        Args:
            path: the file.
            offset: where to begin; an offset behind the end is an InvalidRequestError.
            length: how much; None is up to the end.
        """
        if length == 0:
            return b""
        response = await self._transport.fetch(
            "GET", self._url("content"), params=query(path=path), headers=_range(offset, length), repeat=True
        )
        return b"" if response is None else response.content

    async def read_text(self, path: str, *, encoding: str = "utf-8") -> str:
        """Return a whole file as text."""
        return (await self.read(path)).decode(encoding)

    @asynccontextmanager
    async def open(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read a file piece by piece: the context gives an iterator over bytes. Takes what read takes."""
        async with self._transport.stream(
            self._url("content"), params=query(path=path), headers=_range(offset, length)
        ) as response:
            yield response.aiter_bytes()

    async def write(
        self,
        path: str,
        content: AsyncContent,
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
        answer = await self._transport.send(
            "PUT",
            self._url(),
            content,
            params=query(path=path, append=append, parents=parents, mode=octal),
            repeat=not append,
        )
        return decode(FileInfo, answer)

    async def list(self, path: str = "/workspace", *, recursive: bool = False) -> list[FileInfo]:
        """Return what is in a directory, by name; with recursive everything below it."""
        answer = await self._transport.call(
            "GET", self._url(), params=query(path=path, recursive=recursive), repeat=True
        )
        return decode_list(FileInfo, answer, "entries")

    async def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        """Describe a path; of a symlink what it leads to, or without follow the link itself."""
        answer = await self._transport.call(
            "GET", self._url("stat"), params=query(path=path, follow=follow), repeat=True
        )
        return decode(FileInfo, answer)

    async def exists(self, path: str) -> bool:
        """Tell whether a path exists; a symlink does, wherever it leads."""
        try:
            await self.stat(path, follow=False)
        except NotFoundError as e:
            if "no such file or directory" not in e.message:
                raise  # it is the sandbox that is not there
            return False
        return True

    async def mkdir(self, path: str, *, parents: bool = True, mode: int | str | None = None) -> FileInfo:
        """Make a directory; with parents also the missing ones above it, and an existing one is then no error."""
        body: dict[str, object] = {"path": path, "parents": parents}
        if mode is not None:
            body["mode"] = f"{mode:04o}" if isinstance(mode, int) else mode
        return decode(FileInfo, await self._transport.call("POST", self._url("mkdir"), json=body, repeat=parents))

    async def move(self, source: str, target: str, *, replace: bool = False) -> FileInfo:
        """Rename; without replace an existing target is a ConflictError."""
        body = {"from": source, "to": target, "replace": replace}
        return decode(FileInfo, await self._transport.call("POST", self._url("move"), json=body))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file or an empty directory, or with recursive a whole tree."""
        await self._transport.call("DELETE", self._url(), params=query(path=path, recursive=recursive), repeat=True)

    async def upload(
        self, local: str | os.PathLike[str], path: str, *, mode: int | str | None = None, parents: bool = True
    ) -> FileInfo:
        """Copy a local file into the sandbox. Takes what write takes."""
        file = await in_thread(Path(local).open, "rb")
        try:
            return await self.write(path, file, mode=mode, parents=parents)
        finally:
            await in_thread(file.close)

    async def download(self, path: str, local: str | os.PathLike[str]) -> None:
        """Copy a file of the sandbox to a local path. Nothing appears there before all of it has come."""
        async with self.open(path) as pieces:
            await save(pieces, Path(local))

    async def upload_dir(self, local: str | os.PathLike[str], path: str) -> None:
        """Copy what is in a local directory into a directory of the sandbox, which is made when it is missing.

        Symlinks are copied as links; devices, sockets and pipes are left out.
        """
        await self.extract(path, pack(Path(local)))

    async def download_dir(self, path: str, local: str | os.PathLike[str]) -> None:
        """Copy what is in a directory of the sandbox into a local directory, which is made when it is missing.

        What comes from a sandbox is not trusted: nothing is written outside of the local directory, also not through
        symlinks, and devices are left out. Symlinks are made as they are, and may lead anywhere.
        """
        with tempfile.TemporaryFile() as archive:
            await self._fetch_archive(path, archive)
            await in_thread(unpack, archive, Path(local))

    async def _fetch_archive(self, path: str, into: IO[bytes]) -> None:
        async with self.archive(path, format="tar") as pieces:
            async for piece in pieces:
                await in_thread(into.write, piece)
        into.seek(0)

    @asynccontextmanager
    async def archive(
        self, path: str, *, format: Literal["tar", "tar.gz", "zip"] = "tar.gz"
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read a directory as an archive, piece by piece. Names in it are relative to the directory.

        Args:
            path: the directory.
            format: ``"tar"``, ``"tar.gz"`` or ``"zip"``.
        """
        async with self._transport.stream(self._url("archive"), params=query(path=path, format=format)) as response:
            yield response.aiter_bytes()

    async def extract(self, path: str, archive: AsyncContent) -> None:
        """Unpack a tar or tar.gz into a directory, which is made when it is missing."""
        await self._transport.send(
            "PUT",
            self._url("archive"),
            archive,
            params=query(path=path),
            headers={"Content-Type": "application/x-tar"},
            repeat=True,
        )

    def watch(self, path: str = "/workspace", *, recursive: bool = False) -> AsyncStream[FileChange]:
        """Report changes of a directory, with recursive of everything below it, until the stream is closed.

        The first change has the op ``ready``: what happens after it is reported. Changes have no offsets, so a
        connection that breaks ends the watch with an error.
        """
        return AsyncStream(self._watch(query(path=path, recursive=recursive)))

    async def _watch(self, params: dict[str, str]) -> AsyncGen[FileChange]:
        async with aclosing(self._transport.events(self._url("watch"), params)) as events:
            async for event in events:
                change = read_change(event)
                if change is not None:
                    yield change


def _range(offset: int, length: int | None) -> dict[str, str]:
    if length is not None:
        return {"Range": f"bytes={offset}-{offset + length - 1}"}
    return {"Range": f"bytes={offset}-"} if offset else {}
