"""What differs in more than words between asyncio and blocking calls. Written by hand on both sides."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from typing import Any, ParamSpec, TypeVar

from .._request import Readable
from ..errors import CubbyError

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

Gen = Generator[T, None, None]

Content = bytes | str | Readable | Iterable[bytes]
"""What can be sent: text, bytes, a file that is open for reading bytes, or pieces."""

PIECE = 256 << 10
"""Bytes that are read from a file at a time."""

sleep = time.sleep


def tell(callback: Callable[[T], object] | None, value: T) -> None:
    """Call back, if there is somebody to call."""
    if callback is not None:
        callback(value)


def owned(start: Callable[[], T], follow: Callable[[T], R], kill: Callable[[T], object]) -> R:
    """Start something and follow it to its end; kill it when the caller is interrupted meanwhile.

    It starts in a thread, which no KeyboardInterrupt reaches: the answer has the name of what is to be killed. What the
    daemon says is no interruption.
    """
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(start)
        try:
            return follow(begun.result())
        except CubbyError:
            raise
        except BaseException:
            with suppress(Exception):  # the interruption is what is told
                kill(begun.result())
            raise


def connect_websocket(url: str, **options: Any) -> AbstractContextManager[Any]:
    """Open a WebSocket, which is closed at the end of the context."""
    from websockets.sync.client import connect

    context: AbstractContextManager[Any] = connect(url, **options)
    return context


def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call that blocks, here."""
    return call(*args, **kwargs)


def pieces(source: Readable | Iterable[bytes]) -> Iterator[bytes]:
    """Read a source piece by piece."""
    if not isinstance(source, Readable):
        yield from source
        return
    while piece := source.read(PIECE):
        yield piece
