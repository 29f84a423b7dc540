"""The tenants of a daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .._decode import decode, decode_list
from .._request import path as url_path
from .._request import query
from ..models import FileInfo, TenantInfo
from ._backend import AsyncContent
from .transport import AsyncTransport


class AsyncTenants:
    """The tenants whose sandboxes share files, as far as the token may see them.

    Uploads are what a tenant's sandboxes see read-only at /mnt/user-data/uploads; paths are relative to it.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self, tenant_id: str) -> TenantInfo:
        """Describe a tenant."""
        return decode(TenantInfo, await self._transport.call("GET", url_path("tenants", tenant_id), repeat=True))

    async def remove(self, tenant_id: str) -> None:
        """Delete a tenant's shared files and uploads; a ConflictError while it has sandboxes, also stopped ones."""
        await self._transport.call("DELETE", url_path("tenants", tenant_id), repeat=True)

    async def uploads(self, tenant_id: str, path: str = "", *, recursive: bool = False) -> list[FileInfo]:
        """Return what is in a directory of the uploads; with recursive everything below it."""
        params = query(path=path or None, recursive=recursive)
        answer = await self._transport.call("GET", _uploads(tenant_id), params=params, repeat=True)
        return decode_list(FileInfo, answer, "entries")

    async def write_upload(self, tenant_id: str, path: str, content: AsyncContent) -> FileInfo:
        """Write an upload, replacing what is there at once. A tenant that is not known begins with it.

        Args:
            tenant_id: the tenant.
            path: the file; missing directories are made.
            content: text, bytes, a file that is open for reading bytes, or an iterable of bytes.
        """
        answer = await self._transport.send("PUT", _uploads(tenant_id), content, params=query(path=path), repeat=True)
        return decode(FileInfo, answer)

    async def read_upload(self, tenant_id: str, path: str) -> bytes:
        """Return an upload's bytes."""
        url = _uploads(tenant_id) + "/content"
        response = await self._transport.fetch("GET", url, params=query(path=path), repeat=True)
        return b"" if response is None else response.content

    async def remove_upload(self, tenant_id: str, path: str, *, recursive: bool = False) -> None:
        """Delete an upload or an empty directory, or with recursive a whole tree."""
        params = query(path=path, recursive=recursive)
        await self._transport.call("DELETE", _uploads(tenant_id), params=params, repeat=True)

    async def list(self, *, page_size: int | None = None) -> AsyncIterator[TenantInfo]:
        """Iterate over tenants by name, fetching page by page; page_size None is the daemon's choice."""
        cursor: str | None = None
        while True:
            params = query(limit=page_size, cursor=cursor)
            answer = await self._transport.call("GET", url_path("tenants"), params=params, repeat=True)
            for info in decode_list(TenantInfo, answer, "tenants"):
                yield info
            cursor = answer.get("next_cursor")
            if not cursor:
                return


def _uploads(tenant_id: str) -> str:
    return url_path("tenants", tenant_id, "uploads")
