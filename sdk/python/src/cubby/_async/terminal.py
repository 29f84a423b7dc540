"""Terminals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from .._decode import decode, malformed
from .._request import Backoff, is_loopback, path, query
from ..errors import CubbyError, UnavailableError, UnsupportedError
from ..models import TerminalExit, WindowSize
from ._backend import connect_websocket, sleep
from .transport import AsyncTransport

_PIECE = 64 << 10
_LONGEST = 1 << 20


class AsyncTerminal:
    """A look at a terminal of a sandbox. Iterating over it gives what it shows as bytes, first the end of what it
    showed before, until its program ends.

    A broken connection and a restart of the daemon are bridged by reading, which goes on where it was. Leaving, by
    :meth:`close` or the end of a ``with``, leaves the program alone.

    Attributes:
        name: the terminal's name.
        seq: the number of the command that runs in it.
        new: whether it was made just now.
        offset: of the next byte, counted over all that the program has shown.
        exit: how the program ended; None before that.
    """

    def __init__(self, transport: AsyncTransport, box_id: str, size: WindowSize | None) -> None:
        self._transport = transport
        self._box_id = box_id
        self._size = size
        self._connection: Any = None
        self._stack = AsyncExitStack()
        self._left = False
        self.name = ""
        self.seq = 0
        self.new = False
        self.offset = 0
        self.exit: TerminalExit | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._box_id}>"

    async def _connect(self, params: Mapping[str, str]) -> None:
        """Connect and read the first message."""
        try:
            from .._websocket import Telling
        except ImportError as e:
            raise UnsupportedError(
                "terminals need the package websockets", hint="pip install 'cubby-sdk[terminal]'"
            ) from e
        size = query(cols=self._size.cols, rows=self._size.rows) if self._size else {}
        base = self._transport.url
        url = base.replace("http", "ws", 1) + path("sandboxes", self._box_id, "terminal")
        self._telling = Telling()
        with self._telling:
            self._connection = await self._stack.enter_async_context(
                connect_websocket(
                    f"{url}?{urlencode({**params, **size})}",
                    subprotocols=["cubby.terminal.v1"],
                    compression=None,
                    additional_headers=self._transport.authorization,
                    proxy=None if is_loopback(base) else True,
                    max_size=_LONGEST,
                )
            )
            first = _message(await self._connection.recv())
        if first.get("type") != "attached":
            raise malformed("it is not a terminal")
        self.name, self.new = str(first.get("name") or ""), first.get("new") is True
        self.seq, self.offset = _number(first, "seq"), _number(first, "offset")

    async def read(self) -> bytes:
        """Return what comes next; nothing when the program has ended, and :attr:`exit` says how, or after a close."""
        backoff = Backoff(self._transport.resume)
        while self.exit is None and not self._is_left():
            try:
                if self._connection is None:
                    await self._connect(query(seq=self.seq, after=self.offset))
                    backoff.reset()
                with self._telling:
                    message = await self._connection.recv()
            except CubbyError as e:
                await self._drop()
                if self._is_left():
                    return b""
                pause = backoff.wait(e)
                if pause is None:
                    raise
                await sleep(pause)
                continue
            if isinstance(message, bytes):
                self.offset += len(message)
                return message
            told = _message(message)
            if told.get("type") == "skipped":
                self.offset = _number(told, "offset")
            elif told.get("type") == "exit":
                self.exit = decode(TerminalExit, told)
        return b""

    async def write(self, data: bytes | str) -> None:
        """Type. It raises an UnavailableError while the connection is broken; nobody knows then how much arrived.

        Args:
            data: keys; text is written as UTF-8.
        """
        raw = data.encode() if isinstance(data, str) else bytes(data)
        for start in range(0, len(raw), _PIECE):
            await self._send(raw[start : start + _PIECE])

    async def resize(self, cols: int, rows: int) -> None:
        """Change the terminal's size, for all who look at it."""
        self._size = WindowSize(cols, rows)
        await self._send(json.dumps({"type": "resize", "cols": cols, "rows": rows}))

    async def _send(self, message: bytes | str) -> None:
        if self._connection is None:
            raise UnavailableError("the connection to the terminal broke", retryable=True)
        with self._telling:
            await self._connection.send(message)

    def _is_left(self) -> bool:
        return self._left

    async def _drop(self) -> None:
        self._connection = None
        await self._stack.aclose()

    async def aclose(self) -> None:
        """Leave the terminal. Its program goes on."""
        self._left = True
        await self._drop()

    def __aiter__(self) -> AsyncTerminal:
        return self

    async def __anext__(self) -> bytes:
        if data := await self.read():
            return data
        raise StopAsyncIteration

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def open_terminal(
    transport: AsyncTransport, box_id: str, size: WindowSize | None, params: Mapping[str, str]
) -> AsyncTerminal:
    """Attach to a terminal; the parameters are the API's."""
    terminal = AsyncTerminal(transport, box_id, size)
    try:
        await terminal._connect(params)
    except BaseException:
        await terminal.aclose()
        raise
    return terminal


def _message(data: str | bytes) -> dict[str, Any]:
    try:
        message = json.loads(data) if isinstance(data, str) else None
    except ValueError as e:
        raise malformed(f"a message of the terminal: {e}") from e
    if not isinstance(message, dict):
        raise malformed("a message of the terminal")
    return message


def _number(message: Mapping[str, Any], name: str) -> int:
    value = message.get(name)
    if not isinstance(value, int):
        raise malformed(f"{name} of the terminal is not a number")
    return value
