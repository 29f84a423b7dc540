"""Handles on commands."""

from __future__ import annotations

import signal as signals

from .._decode import malformed
from .._request import Backoff, path, query, read_chunk
from ..errors import CubbyError, RequestTimeoutError, WrongStateError
from ..execresults import decode_exec
from ..models import ExecResult, OutputKind
from ._backend import sleep
from .streams import AsyncOutputStream
from .transport import AsyncTransport
from .waiting import wait_finished

_INPUT_PIECE = 256 << 10
_INPUT_WAIT = 60.0
_CANCEL_WAIT = 5.0


class AsyncProcess:
    """A handle on one command of a sandbox, running or ended.

    It holds no connection: any number of them may name the same command, also in other programs.

    Attributes:
        box_id: the sandbox's id.
        seq: the command's number.
    """

    def __init__(self, transport: AsyncTransport, box_id: str, seq: int, *, fresh: bool = False) -> None:
        self._transport = transport
        self.box_id = box_id
        self.seq = seq
        # How far the input has come; None until the daemon has told it.
        self._input: int | None = 0 if fresh else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.seq} of {self.box_id}>"

    def _path(self, *elements: str) -> str:
        return path("sandboxes", self.box_id, "execs", self.seq, *elements)

    async def get(self, *, max_output_bytes: int | None = None) -> ExecResult:
        """Return how the command stands now, with its output so far."""
        params = query(max_output_bytes=max_output_bytes)
        return decode_exec(await self._transport.call("GET", self._path(), params=params, repeat=True))

    async def wait(self, timeout: float | None = None, *, max_output_bytes: int | None = None) -> ExecResult:
        """Return when the command has ended, with its output. It outlives restarts of the daemon.

        Args:
            timeout: seconds to wait; after that a RequestTimeoutError is raised, and the command goes on. None waits
                for as long as it takes.
            max_output_bytes: most of stdout and of stderr in the answer, each; the daemon's default is 8 MiB.
        """
        return await wait_finished(self._transport, self._path(), timeout, max_output_bytes)

    def stream(self, after: int = 0) -> AsyncOutputStream:
        """Follow the output from an offset, 0 for the beginning, to the end of the command.

        Leaving the stream does not touch the command.
        """
        return AsyncOutputStream(self._transport.follow(self._path("stream"), {}, after, read_chunk), after)

    async def output(self, after: int = 0, *, stream: OutputKind | None = None) -> bytes:
        """Return what the command printed so far, after an offset, both streams in the order in which it came.

        Args:
            after: bytes of both streams to leave out.
            stream: ``"stdout"`` or ``"stderr"`` for only that one; ``"rich"`` for what a cell showed, as JSON
                lines.
        """
        response = await self._transport.fetch(
            "GET", self._path("output"), params=query(after=after or None, stream=stream), repeat=True
        )
        return b"" if response is None else response.content

    async def cancel(self) -> ExecResult:
        """Kill the command with everything that descends from it. Canceling one that has ended does nothing."""
        return decode_exec(await self._transport.call("POST", self._path("cancel"), repeat=True))

    async def _abandon(self) -> None:
        """Kill the command for a caller who is about to leave and waits for no more than half a minute."""
        await self._transport.call("POST", self._path("cancel"), wait=_CANCEL_WAIT)

    async def signal(self, signal: str | int, *, tree: bool = False) -> None:
        """Send a signal to the command, and with tree to everything that descends from it.

        Args:
            signal: ``"SIGINT"``, ``"INT"``, or a number such as ``signal.SIGINT``.
            tree: also to the command's descendants.
        """
        name = signals.Signals(signal).name if isinstance(signal, int) else signal.upper()
        if not name.startswith("SIG"):
            name = "SIG" + name
        await self._transport.call("POST", self._path("signal"), json={"signal": name, "tree": tree})

    async def resize(self, cols: int, rows: int) -> None:
        """Change the size of the command's terminal."""
        await self._transport.call("POST", self._path("resize"), json={"cols": cols, "rows": rows}, repeat=True)

    async def write_stdin(self, data: bytes | str, *, eof: bool = False) -> None:
        """Write to the command's input, which must have been asked for with ``stdin=True``.

        It waits while the command does not read, and raises WrongStateError once the command has ended.

        Args:
            data: what to write; text is written as UTF-8.
            eof: also close the input afterwards.
        """
        raw = data.encode() if isinstance(data, str) else bytes(data)
        while raw:
            piece = raw[:_INPUT_PIECE]
            raw = raw[await self._write(piece, False) :]
        if eof:
            await self.close_stdin()

    async def close_stdin(self) -> None:
        """Give the command the end of its input. One that has ended does not miss it."""
        try:
            await self._write(b"", True)
        except WrongStateError:
            return

    async def _write(self, piece: bytes, eof: bool) -> int:
        """Write a piece and return how much of it was new.

        A write whose answer was lost is repeated at its offset: what the input has already is left out.
        """
        if self._input is None:
            self._input = await self._post(b"", None, False)
        offset = self._input
        reached = await self._post(piece, offset, eof)
        if not offset <= reached <= offset + len(piece):
            raise malformed("it counts the input differently")
        self._input = reached
        return reached - offset

    async def _post(self, piece: bytes, offset: int | None, eof: bool) -> int:
        backoff = Backoff(self._transport.resume)
        while True:
            try:
                answer = await self._transport.call(
                    "POST",
                    self._path("stdin"),
                    params=query(offset=offset, eof=eof),
                    headers={"Content-Type": "application/octet-stream"},
                    content=piece,
                    wait=_INPUT_WAIT,
                )
            except CubbyError as e:
                # A timeout means that the command does not read, which is its own affair.
                pause = 0.0 if isinstance(e, RequestTimeoutError) else backoff.wait(e)
                if pause is None:
                    raise
            else:
                reached = answer.get("offset") if isinstance(answer, dict) else None
                if not isinstance(reached, int):
                    raise malformed("it has no offset")
                return reached
            await sleep(pause)
