"""What differs in more than words between asyncio and blocking calls. Written by hand on both sides."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
)
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, ParamSpec, TypeVar

from .._request import Readable
from ..errors import CubbyError

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

AsyncGen = AsyncGenerator[T, None]

AsyncContent = bytes | str | Readable | Iterable[bytes] | AsyncIterable[bytes]
"""What can be sent: text, bytes, a file that is open for reading bytes, or pieces."""

PIECE = 256 << 10
"""Bytes that are read from a file at a time."""

sleep = asyncio.sleep


async def tell(callback: Callable[[T], object] | None, value: T) -> None:
    """Call back, if there is somebody to call; a coroutine function is awaited."""
    if callback is not None:
        answer = callback(value)
        if inspect.isawaitable(answer):
            await answer


async def owned(
    start: Callable[[], Coroutine[Any, Any, T]],
    follow: Callable[[T], Awaitable[R]],
    kill: Callable[[T], Awaitable[object]],
) -> R:
    """Start something and follow it to its end; kill it when the caller is interrupted meanwhile.

    An interruption of the start waits for its answer, which has the name of what is to be killed. What the daemon says
    is no interruption.
    """
    begun = asyncio.ensure_future(start())
    try:
        return await follow(await asyncio.shield(begun))
    except CubbyError:
        raise
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(_kill(begun, kill)))
        raise


async def _kill(begun: asyncio.Future[T], kill: Callable[[T], Awaitable[object]]) -> None:
    with suppress(Exception):  # the interruption is what is told
        await kill(await begun)


def connect_websocket(url: str, **options: Any) -> AbstractAsyncContextManager[Any]:
    """Open a WebSocket, which is closed at the end of the context."""
    from websockets.asyncio.client import connect

    return connect(url, **options)


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call that blocks."""
    return await asyncio.to_thread(call, *args, **kwargs)


async def pieces(source: Readable | Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Read a source piece by piece; files and generators may block."""
    if isinstance(source, AsyncIterable):
        async for piece in source:
            yield piece
        return
    items = _read(source) if isinstance(source, Readable) else iter(source)
    while piece := await asyncio.to_thread(_next, items):
        yield piece


def _read(file: Readable) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def _next(items: Iterator[bytes]) -> bytes:
    """Return the next piece; an empty one is the end."""
    return next((item for item in items if item), b"")
