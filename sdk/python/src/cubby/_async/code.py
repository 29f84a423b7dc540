"""Cells of code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing

from .._request import FIRST_WAIT, CodeEvent, compact, path, read_code_chunk
from ..coderesults import CodeChunk, CodeEnd, Execution, RichOutput, decode_execution
from ..models import Exit, Output, OutputKind
from ._backend import AsyncGen, owned, tell
from .process import AsyncProcess
from .relaying import AsyncRelay
from .streams import AsyncCodeStream
from .transport import AsyncTransport
from .waiting import poll, poll_finished


class AsyncCell:
    """A handle on one cell of code, running or ended. It holds no connection.

    Attributes:
        box_id: the sandbox's id.
        seq: the cell's number, counted together with commands.
    """

    def __init__(self, transport: AsyncTransport, box_id: str, seq: int, *, fresh: bool = False) -> None:
        self._transport = transport
        self._process = AsyncProcess(transport, box_id, seq, fresh=fresh)
        self.box_id = box_id
        self.seq = seq

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.seq} of {self.box_id}>"

    def _path(self) -> str:
        return path("sandboxes", self.box_id, "code", self.seq)

    async def get(self) -> Execution:
        """Return how the cell stands now, with what it printed and showed so far."""
        return decode_execution(await self._transport.call("GET", self._path(), repeat=True))

    async def wait(self, timeout: float | None = None) -> Execution:
        """Return when the cell has ended. It outlives restarts of the daemon.

        Args:
            timeout: seconds to wait; after that a RequestTimeoutError is raised, and the cell goes on. None waits for
                as long as it takes.
        """
        return await poll_finished(self._transport, self._path(), timeout, decode_execution)

    def stream(self, after: int = 0) -> AsyncCodeStream:
        """Follow what the cell prints and shows from an offset, 0 for the beginning, to its end.

        Leaving the stream does not touch the cell.
        """
        return AsyncCodeStream(self._chunks(after), after)

    async def _chunks(self, after: int) -> AsyncGen[CodeChunk]:
        url = path("sandboxes", self.box_id, "execs", self.seq, "stream")
        items: AsyncGen[CodeEvent] = self._transport.follow(url, {}, after, read_code_chunk)
        async with aclosing(items) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Exit):
                    yield CodeEnd(await self.wait(), chunk.offset)
                else:
                    yield chunk

    async def output(self, after: int = 0, *, stream: OutputKind | None = None) -> bytes:
        """Return all that the cell printed so far, however long it is.

        Args:
            after: bytes to leave out.
            stream: ``"stdout"`` or ``"stderr"`` for only that one; ``"rich"`` for what it showed, one JSON object per
                line.
        """
        return await self._process.output(after, stream=stream)

    async def cancel(self) -> Execution:
        """Interrupt the cell; what it has defined stays. A kernel that does not react is killed after a few seconds.

        Canceling a cell that has ended does nothing.
        """
        await self._process.cancel()
        return await self.get()

    async def write_stdin(self, data: bytes | str, *, eof: bool = False) -> None:
        """Answer what the cell asks, with a line break at the end; it must have been started with ``stdin=True``.

        It waits while the cell does not read, and raises WrongStateError once the cell has ended.

        Args:
            data: what to write; text is written as UTF-8.
            eof: also close the input afterwards.
        """
        await self._process.write_stdin(data, eof=eof)

    async def close_stdin(self) -> None:
        """Give the cell the end of its input. One that has ended does not miss it."""
        await self._process.close_stdin()


class AsyncCode:
    """Runs cells in one sandbox."""

    def __init__(self, transport: AsyncTransport, box_id: str) -> None:
        self._transport = transport
        self._box_id = box_id

    async def start(self, code: str, **fields: object) -> AsyncCell:
        """Start a cell with the fields of a request."""
        execution = await self._post(compact(code=code, wait=False, **fields))
        return AsyncCell(self._transport, self._box_id, execution.seq, fresh=True)

    async def run(
        self,
        code: str,
        wait: bool | float,
        on_stdout: Callable[[str], object] | None,
        on_stderr: Callable[[str], object] | None,
        on_output: Callable[[RichOutput], object] | None,
        kill_on_cancel: bool,
        **fields: object,
    ) -> Execution:
        """Run a cell with the fields of a request; see :meth:`cubby.Sandbox.run_code`."""
        limit: float | None = None if wait is True else float(wait)
        calls_back = on_stdout is not None or on_stderr is not None or on_output is not None

        async def follow(cell: AsyncCell) -> Execution:
            if calls_back:
                return await _call_back(cell, AsyncRelay(on_stdout, on_stderr), on_output)
            return await poll(self._transport, cell._path(), limit, decode_execution)

        if kill_on_cancel:
            return await owned(lambda: self.start(code, **fields), follow, lambda cell: cell._process._abandon())
        if calls_back:
            return await follow(await self.start(code, **fields))
        first = FIRST_WAIT if limit is None else min(FIRST_WAIT, limit)
        execution = await self._post(compact(code=code, wait=first > 0, wait_seconds=first or None, **fields))
        left = None if limit is None else limit - first
        if not execution.finished and (left is None or left > 0):
            url = path("sandboxes", self._box_id, "code", execution.seq)
            execution = await poll(self._transport, url, left, decode_execution)
        return execution

    async def _post(self, body: Mapping[str, object]) -> Execution:
        url = path("sandboxes", self._box_id, "code")
        return decode_execution(await self._transport.call("POST", url, json=body))


async def _call_back(cell: AsyncCell, relay: AsyncRelay, on_output: Callable[[RichOutput], object] | None) -> Execution:
    """Follow a cell to its end and call back with what comes."""
    async with cell.stream() as stream:
        async for chunk in stream:
            if isinstance(chunk, Output):
                await relay.take(chunk)
            elif isinstance(chunk, RichOutput):
                await tell(on_output, chunk)
            else:
                await relay.finish()
                return chunk.execution
    return await cell.wait()
