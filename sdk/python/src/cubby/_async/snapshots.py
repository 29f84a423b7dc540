"""The snapshots of a daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .._decode import decode, decode_list
from .._request import compact, path, query
from ..models import SnapshotInfo
from .transport import AsyncTransport


class AsyncSnapshots:
    """What was kept of sandboxes, as far as the token may see it. Snapshots are found by their id or name."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, sandbox_id: str, name: str | None = None, *, memory: bool = False) -> SnapshotInfo:
        """Keep a sandbox as it is. It goes on, and the snapshot outlives it.

        Args:
            sandbox_id: the sandbox.
            name: unique among the snapshots of its tenant; default the snapshot's id.
            memory: keep what runs beside the files. gVisor only; a sandbox that sleeps is
                woken, unless its auto_wake is never.
        """
        body = compact(source_sandbox_id=sandbox_id, name=name, memory=memory)
        return decode(SnapshotInfo, await self._transport.call("POST", path("snapshots"), json=body))

    async def get(self, name: str) -> SnapshotInfo:
        """Describe a snapshot."""
        return decode(SnapshotInfo, await self._transport.call("GET", path("snapshots", name), repeat=True))

    async def remove(self, name: str) -> None:
        """Delete a snapshot. Sandboxes that began from it go on."""
        await self._transport.call("DELETE", path("snapshots", name), repeat=True)

    async def list(
        self, *, sandbox_id: str | None = None, tenant_id: str | None = None, page_size: int | None = None
    ) -> AsyncIterator[SnapshotInfo]:
        """Iterate over snapshots, newest first, fetching page by page.

        Args:
            sandbox_id: only those of a sandbox.
            tenant_id: only those of a tenant.
            page_size: how many are fetched at a time; None is the daemon's choice.
        """
        cursor: str | None = None
        while True:
            params = query(source_sandbox_id=sandbox_id, tenant_id=tenant_id, limit=page_size, cursor=cursor)
            answer = await self._transport.call("GET", path("snapshots"), params=params, repeat=True)
            for info in decode_list(SnapshotInfo, answer, "snapshots"):
                yield info
            cursor = answer.get("next_cursor")
            if not cursor:
                return
