"""The services of a sandbox."""

from __future__ import annotations

import builtins

from .._decode import decode, decode_list, malformed
from .._request import path, query
from ..execresults import decode_exec
from ..models import ExecResult
from ..serviceresults import Service
from .process import AsyncProcess
from .transport import AsyncTransport


class AsyncServices:
    """The commands that run for as long as the sandbox does.

    They are declared at create or by an update. A run of one is a command, whose output is read as any other's.
    """

    def __init__(self, transport: AsyncTransport, box: str) -> None:
        self._transport = transport
        self._box = box

    def _path(self, *elements: str) -> str:
        return path("sandboxes", self._box, "services", *elements)

    async def list(self) -> builtins.list[Service]:
        """Return the services and how they stand. It wakes nothing."""
        return decode_list(Service, await self._transport.call("GET", self._path(), repeat=True), "services")

    async def get(self, name: str) -> Service:
        """Return one service. It wakes nothing."""
        return decode(Service, await self._transport.call("GET", self._path(name), repeat=True))

    async def start(self, name: str) -> Service:
        """Start a service, also one that was given up. One that runs is left as it is."""
        return decode(Service, await self._transport.call("POST", self._path(name, "start"), repeat=True))

    async def stop(self, name: str) -> Service:
        """Stop a service, which stays stopped until it is started or the sandbox is."""
        return decode(Service, await self._transport.call("POST", self._path(name, "stop"), repeat=True))

    async def restart(self, name: str) -> Service:
        """Stop a service if it runs, and start it."""
        return decode(Service, await self._transport.call("POST", self._path(name, "restart")))

    async def process(self, name: str) -> AsyncProcess | None:
        """Return a handle on the last run of a service, whose output is the service's; None before the first."""
        seq = (await self.get(name)).exec
        return AsyncProcess(self._transport, self._box, seq) if seq else None

    async def runs(self, name: str, *, after_seq: int = 0, limit: int | None = None) -> builtins.list[ExecResult]:
        """Return the runs of a service after a number, in order, without their output."""
        params = query(service=name, after_seq=after_seq or None, limit=limit)
        answer = await self._transport.call("GET", path("sandboxes", self._box, "execs"), params=params, repeat=True)
        items = answer.get("execs") if isinstance(answer, dict) else None
        if not isinstance(items, builtins.list):
            raise malformed("execs is not a list")
        return [decode_exec(item) for item in items]
