"""Runs commands."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .._request import FIRST_WAIT, compact, path
from ..errors import WrongStateError
from ..execresults import decode_exec
from ..models import ExecResult, Output
from ._backend import owned
from .process import AsyncProcess
from .relaying import AsyncRelay
from .transport import AsyncTransport
from .waiting import wait_up_to


class AsyncCommands:
    """Runs commands in one sandbox."""

    def __init__(self, transport: AsyncTransport, box_id: str) -> None:
        self._transport = transport
        self._box_id = box_id

    def _path(self, *elements: str | int) -> str:
        return path("sandboxes", self._box_id, *elements)

    async def start(self, body: dict[str, Any]) -> AsyncProcess:
        """Start a command with the fields of a request."""
        answer = await self._transport.call("POST", self._path("exec"), json={**body, "wait": False})
        return AsyncProcess(self._transport, self._box_id, decode_exec(answer).seq, fresh=True)

    async def run(
        self,
        body: dict[str, Any],
        *,
        stdin: bytes | str | None,
        wait: bool | float,
        on_stdout: Callable[[str], object] | None,
        on_stderr: Callable[[str], object] | None,
        kill_on_cancel: bool,
        max_output_bytes: int | None,
    ) -> ExecResult:
        """Run a command with the fields of a request; see :meth:`cubby.Sandbox.exec`."""
        limit: float | None = None if wait is True else float(wait)
        relay = None if on_stdout is None and on_stderr is None else AsyncRelay(on_stdout, on_stderr)

        async def follow(process: AsyncProcess) -> ExecResult:
            if stdin is not None:
                with suppress(WrongStateError):  # it ended without reading all of it
                    await process.write_stdin(stdin, eof=True)
            if relay is not None:
                await _call_back(process, relay)
            return await wait_up_to(self._transport, self._path("execs", process.seq), limit, max_output_bytes)

        if kill_on_cancel:
            return await owned(lambda: self.start(body), follow, lambda process: process._abandon())
        if stdin is not None or relay is not None:
            return await follow(await self.start(body))
        first = FIRST_WAIT if limit is None else min(FIRST_WAIT, limit)
        asked = body | compact(wait=first > 0, wait_seconds=first or None, max_output_bytes=max_output_bytes)
        result = decode_exec(await self._transport.call("POST", self._path("exec"), json=asked))
        left = None if limit is None else limit - first
        if not result.finished and (left is None or left > 0):
            result = await wait_up_to(self._transport, self._path("execs", result.seq), left, max_output_bytes)
        return result


async def _call_back(process: AsyncProcess, relay: AsyncRelay) -> None:
    async with process.stream() as stream:
        async for chunk in stream:
            if isinstance(chunk, Output):
                await relay.take(chunk)
    await relay.finish()
