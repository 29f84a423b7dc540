# Made from ../_async/waiting.py by tools/unasync.py; change that one.
"""Waits for the end of an operation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from .._request import WAIT_SLICE, Backoff, query
from ..errors import CubbyError, RequestTimeoutError
from ..execresults import decode_exec
from ..models import ExecResult
from ._backend import sleep
from .transport import Transport


class Operation(Protocol):
    """What can be waited for."""

    @property
    def seq(self) -> int:
        """Its number."""
        ...

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        ...


T = TypeVar("T", bound=Operation)


def poll(
    transport: Transport,
    path: str,
    timeout: float | None,
    read: Callable[[object], T],
    max_output_bytes: int | None = None,
) -> T:
    """Return the operation at path, as read makes it of the answer, when it has ended, or as it is when the time is up.

    It goes on over broken connections and restarts of the daemon.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    backoff = Backoff(transport.resume)
    while True:
        asked = time.monotonic()
        left = WAIT_SLICE if deadline is None else max(0.0, min(WAIT_SLICE, deadline - asked))
        try:
            answer = transport.call(
                "GET", path, params=query(wait_seconds=left or None, max_output_bytes=max_output_bytes), wait=left
            )
        except CubbyError as e:
            pause = backoff.wait(e)
            if pause is None or (deadline is not None and time.monotonic() + pause > deadline):
                raise
        else:
            result, now = read(answer), time.monotonic()
            if result.finished or (deadline is not None and now >= deadline):
                return result
            backoff.reset()
            pause = 0.1 if now - asked < 1 else 0.0  # a server that does not wait must not be hammered
        sleep(pause)


def poll_finished(
    transport: Transport,
    path: str,
    timeout: float | None,
    read: Callable[[object], T],
    max_output_bytes: int | None = None,
) -> T:
    """Return the operation at path when it has ended; raise RequestTimeoutError when the time is up."""
    result = poll(transport, path, timeout, read, max_output_bytes)
    if not result.finished:
        raise RequestTimeoutError(f"operation {result.seq} still runs after {timeout:g} seconds", retryable=True)
    return result


def wait_up_to(
    transport: Transport, path: str, timeout: float | None, max_output_bytes: int | None = None
) -> ExecResult:
    """Poll a command."""
    return poll(transport, path, timeout, decode_exec, max_output_bytes)


def wait_finished(
    transport: Transport, path: str, timeout: float | None, max_output_bytes: int | None = None
) -> ExecResult:
    """Poll a command to its end."""
    return poll_finished(transport, path, timeout, decode_exec, max_output_bytes)
