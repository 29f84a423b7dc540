"""Iterators over what comes as it happens."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, TypeVar

from ..coderesults import CodeChunk, CodeEnd, Execution
from ..models import Chunk, Event, ExecResult, Exit
from ..taskresults import TaskEvent
from ._backend import AsyncGen

T = TypeVar("T")
S = TypeVar("S", bound="AsyncStream[Any]")


class AsyncStream(Generic[T]):
    """Items that come as they happen. Use it in a ``for``, and close it (or use it in a ``with``) to leave early."""

    def __init__(self, items: AsyncGen[T]) -> None:
        self._items = items

    def __aiter__(self) -> AsyncStream[T]:
        return self

    async def __anext__(self) -> T:
        return await self._items.__anext__()

    async def aclose(self) -> None:
        """Give up the connection. What is followed does not notice."""
        await self._items.aclose()

    async def __aenter__(self: S) -> S:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncOutputStream(AsyncStream[Chunk]):
    """What a command prints, as :class:`cubby.Output`, and as the last chunk how it ended, as :class:`cubby.Exit`.

    A broken connection, a restarted proxy or daemon is bridged: the stream goes on where it was, without a gap or a
    repetition.

    Attributes:
        offset: where another stream can go on, counted over both streams of the output.
        result: how the command ended, without its output; None before the end.
    """

    def __init__(self, items: AsyncGen[Chunk], after: int) -> None:
        super().__init__(items)
        self.offset = after
        self.result: ExecResult | None = None

    async def __anext__(self) -> Chunk:
        chunk = await super().__anext__()
        if isinstance(chunk, Exit):
            self.result = chunk.result
        else:
            self.offset = chunk.next
        return chunk


class AsyncCodeStream(AsyncStream[CodeChunk]):
    """What a cell prints, as :class:`cubby.Output`, and what it shows beside text, as :class:`cubby.RichOutput`; as the
    last chunk how it ended, as :class:`cubby.CodeEnd`.

    A broken connection, a restarted proxy or daemon is bridged: the stream goes on where it was.

    Attributes:
        offset: where another stream can go on, counted over everything that the cell prints and shows.
        execution: how the cell ended; None before the end.
    """

    def __init__(self, items: AsyncGen[CodeChunk], after: int) -> None:
        super().__init__(items)
        self.offset = after
        self.execution: Execution | None = None

    async def __anext__(self) -> CodeChunk:
        chunk = await super().__anext__()
        if isinstance(chunk, CodeEnd):
            self.execution = chunk.execution
        else:
            self.offset = chunk.next
        return chunk


class AsyncEventStream(AsyncStream[Event]):
    """Entries of a history as they are written. Connections that break are bridged.

    Attributes:
        cursor: where another stream can go on.
    """

    def __init__(self, items: AsyncGen[Event], after: int) -> None:
        super().__init__(items)
        self.cursor = after

    async def __anext__(self) -> Event:
        event = await super().__anext__()
        self.cursor = event.cursor
        return event


class AsyncTaskStream(AsyncStream[TaskEvent]):
    """The events of a task as they happen, to ``done``. Connections that break are bridged.

    Attributes:
        next_id: where another stream can go on, as ``since``.
    """

    def __init__(self, items: AsyncGen[TaskEvent], since: int) -> None:
        super().__init__(items)
        self.next_id = since

    async def __anext__(self) -> TaskEvent:
        event = await super().__anext__()
        self.next_id = event.id + 1
        return event
