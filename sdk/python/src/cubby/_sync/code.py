# Made from ../_async/code.py by tools/unasync.py; change that one.
"""Cells of code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing

from .._request import FIRST_WAIT, CodeEvent, compact, path, read_code_chunk
from ..coderesults import CodeChunk, CodeEnd, Execution, RichOutput, decode_execution
from ..models import Exit, Output, OutputKind
from ._backend import Gen, owned, tell
from .process import Process
from .relaying import Relay
from .streams import CodeStream
from .transport import Transport
from .waiting import poll, poll_finished


class Cell:
    """A handle on one cell of code, running or ended. It holds no connection.

    Attributes:
        box_id: the sandbox's id.
        seq: the cell's number, counted together with commands.
    """

    def __init__(self, transport: Transport, box_id: str, seq: int, *, fresh: bool = False) -> None:
        self._transport = transport
        self._process = Process(transport, box_id, seq, fresh=fresh)
        self.box_id = box_id
        self.seq = seq

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.seq} of {self.box_id}>"

    def _path(self) -> str:
        return path("sandboxes", self.box_id, "code", self.seq)

    def get(self) -> Execution:
        """Return how the cell stands now, with what it printed and showed so far."""
        return decode_execution(self._transport.call("GET", self._path(), repeat=True))

    def wait(self, timeout: float | None = None) -> Execution:
        """Return when the cell has ended. It outlives restarts of the daemon.

        Args:
            timeout: seconds to wait; after that a RequestTimeoutError is raised, and the cell goes on. None waits for
                as long as it takes.
        """
        return poll_finished(self._transport, self._path(), timeout, decode_execution)

    def stream(self, after: int = 0) -> CodeStream:
        """Follow what the cell prints and shows from an offset, 0 for the beginning, to its end.

        Leaving the stream does not touch the cell.
        """
        return CodeStream(self._chunks(after), after)

    def _chunks(self, after: int) -> Gen[CodeChunk]:
        url = path("sandboxes", self.box_id, "execs", self.seq, "stream")
        items: Gen[CodeEvent] = self._transport.follow(url, {}, after, read_code_chunk)
        with closing(items) as chunks:
            for chunk in chunks:
                if isinstance(chunk, Exit):
                    yield CodeEnd(self.wait(), chunk.offset)
                else:
                    yield chunk

    def output(self, after: int = 0, *, stream: OutputKind | None = None) -> bytes:
        """Return all that the cell printed so far, however long it is.

        Args:
            after: bytes to leave out.
            stream: ``"stdout"`` or ``"stderr"`` for only that one; ``"rich"`` for what it showed, one JSON object per
                line.
        """
        return self._process.output(after, stream=stream)

    def cancel(self) -> Execution:
        """Interrupt the cell; what it has defined stays. A kernel that does not react is killed after a few seconds.

        Canceling a cell that has ended does nothing.
        """
        self._process.cancel()
        return self.get()

    def write_stdin(self, data: bytes | str, *, eof: bool = False) -> None:
        """Answer what the cell asks, with a line break at the end; it must have been started with ``stdin=True``.

        It waits while the cell does not read, and raises WrongStateError once the cell has ended.

        Args:
            data: what to write; text is written as UTF-8.
            eof: also close the input afterwards.
        """
        self._process.write_stdin(data, eof=eof)

    def close_stdin(self) -> None:
        """Give the cell the end of its input. One that has ended does not miss it."""
        self._process.close_stdin()


class Code:
    """Runs cells in one sandbox."""

    def __init__(self, transport: Transport, box_id: str) -> None:
        self._transport = transport
        self._box_id = box_id

    def start(self, code: str, **fields: object) -> Cell:
        """Start a cell with the fields of a request."""
        execution = self._post(compact(code=code, wait=False, **fields))
        return Cell(self._transport, self._box_id, execution.seq, fresh=True)

    def run(
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

        def follow(cell: Cell) -> Execution:
            if calls_back:
                return _call_back(cell, Relay(on_stdout, on_stderr), on_output)
            return poll(self._transport, cell._path(), limit, decode_execution)

        if kill_on_cancel:
            return owned(lambda: self.start(code, **fields), follow, lambda cell: cell._process._abandon())
        if calls_back:
            return follow(self.start(code, **fields))
        first = FIRST_WAIT if limit is None else min(FIRST_WAIT, limit)
        execution = self._post(compact(code=code, wait=first > 0, wait_seconds=first or None, **fields))
        left = None if limit is None else limit - first
        if not execution.finished and (left is None or left > 0):
            url = path("sandboxes", self._box_id, "code", execution.seq)
            execution = poll(self._transport, url, left, decode_execution)
        return execution

    def _post(self, body: Mapping[str, object]) -> Execution:
        url = path("sandboxes", self._box_id, "code")
        return decode_execution(self._transport.call("POST", url, json=body))


def _call_back(cell: Cell, relay: Relay, on_output: Callable[[RichOutput], object] | None) -> Execution:
    """Follow a cell to its end and call back with what comes."""
    with cell.stream() as stream:
        for chunk in stream:
            if isinstance(chunk, Output):
                relay.take(chunk)
            elif isinstance(chunk, RichOutput):
                tell(on_output, chunk)
            else:
                relay.finish()
                return chunk.execution
    return cell.wait()
