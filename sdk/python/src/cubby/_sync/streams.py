# Made from ../_async/streams.py by tools/unasync.py; change that one.
"""Iterators over what comes as it happens."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, TypeVar

from ..coderesults import CodeChunk, CodeEnd, Execution
from ..models import Chunk, Event, ExecResult, Exit
from ..taskresults import TaskEvent
from ._backend import Gen

T = TypeVar("T")
S = TypeVar("S", bound="Stream[Any]")


class Stream(Generic[T]):
    """Items that come as they happen. Use it in a ``for``, and close it (or use it in a ``with``) to leave early."""

    def __init__(self, items: Gen[T]) -> None:
        self._items = items

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> T:
        return self._items.__next__()

    def close(self) -> None:
        """Give up the connection. What is followed does not notice."""
        self._items.close()

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OutputStream(Stream[Chunk]):
    """What a command prints, as :class:`cubby.Output`, and as the last chunk how it ended, as :class:`cubby.Exit`.

    A broken connection, a restarted proxy or daemon is bridged: the stream goes on where it was, without a gap or a
    repetition.

    Attributes:
        offset: where another stream can go on, counted over both streams of the output.
        result: how the command ended, without its output; None before the end.
    """

    def __init__(self, items: Gen[Chunk], after: int) -> None:
        super().__init__(items)
        self.offset = after
        self.result: ExecResult | None = None

    def __next__(self) -> Chunk:
        chunk = super().__next__()
        if isinstance(chunk, Exit):
            self.result = chunk.result
        else:
            self.offset = chunk.next
        return chunk


class CodeStream(Stream[CodeChunk]):
    """What a cell prints, as :class:`cubby.Output`, and what it shows beside text, as :class:`cubby.RichOutput`; as the
    last chunk how it ended, as :class:`cubby.CodeEnd`.

    A broken connection, a restarted proxy or daemon is bridged: the stream goes on where it was.

    Attributes:
        offset: where another stream can go on, counted over everything that the cell prints and shows.
        execution: how the cell ended; None before the end.
    """

    def __init__(self, items: Gen[CodeChunk], after: int) -> None:
        super().__init__(items)
        self.offset = after
        self.execution: Execution | None = None

    def __next__(self) -> CodeChunk:
        chunk = super().__next__()
        if isinstance(chunk, CodeEnd):
            self.execution = chunk.execution
        else:
            self.offset = chunk.next
        return chunk


class EventStream(Stream[Event]):
    """Entries of a history as they are written. Connections that break are bridged.

    Attributes:
        cursor: where another stream can go on.
    """

    def __init__(self, items: Gen[Event], after: int) -> None:
        super().__init__(items)
        self.cursor = after

    def __next__(self) -> Event:
        event = super().__next__()
        self.cursor = event.cursor
        return event


class TaskStream(Stream[TaskEvent]):
    """The events of a task as they happen, to ``done``. Connections that break are bridged.

    Attributes:
        next_id: where another stream can go on, as ``since``.
    """

    def __init__(self, items: Gen[TaskEvent], since: int) -> None:
        super().__init__(items)
        self.next_id = since

    def __next__(self) -> TaskEvent:
        event = super().__next__()
        self.next_id = event.id + 1
        return event
