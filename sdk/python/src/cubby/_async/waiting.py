"""Waits for the end of an operation."""

from __future__ import annotations

import time

from .._request import WAIT_SLICE, Backoff, query
from ..errors import CubbyError, RequestTimeoutError
from ..models import ExecResult, decode_exec
from ._backend import sleep
from .transport import AsyncTransport


async def wait_up_to(
    transport: AsyncTransport, path: str, timeout: float | None, max_output_bytes: int | None = None
) -> ExecResult:
    """Return the operation at path when it has ended, or as it is when the time is up.

    It goes on over broken connections and restarts of the daemon.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    backoff = Backoff(transport.resume)
    while True:
        asked = time.monotonic()
        left = WAIT_SLICE if deadline is None else max(0.0, min(WAIT_SLICE, deadline - asked))
        try:
            answer = await transport.call(
                "GET", path, params=query(wait_seconds=left or None, max_output_bytes=max_output_bytes), wait=left
            )
        except CubbyError as e:
            pause = backoff.wait(e)
            if pause is None or (deadline is not None and time.monotonic() + pause > deadline):
                raise
        else:
            result, now = decode_exec(answer), time.monotonic()
            if result.finished or (deadline is not None and now >= deadline):
                return result
            backoff.reset()
            pause = 0.1 if now - asked < 1 else 0.0  # a server that does not wait must not be hammered
        await sleep(pause)


async def wait_finished(
    transport: AsyncTransport, path: str, timeout: float | None, max_output_bytes: int | None = None
) -> ExecResult:
    """Return the operation at path when it has ended; raise RequestTimeoutError when the time is up."""
    result = await wait_up_to(transport, path, timeout, max_output_bytes)
    if not result.finished:
        raise RequestTimeoutError(f"operation {result.seq} still runs after {timeout:g} seconds", retryable=True)
    return result
