"""Requests, their repetition, and streams that outlive their connections."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from .._decode import malformed
from .._request import (
    SILENCE,
    Backoff,
    EventDecoder,
    ServerEvent,
    base_url,
    is_loopback,
    repeat_after,
    stream_cut,
)
from .._version import __version__
from ..errors import CubbyError, InvalidRequestError, NotFoundError, RequestTimeoutError, UnreachableError, from_answer
from ._backend import AsyncContent, AsyncGen, pieces, sleep

T = TypeVar("T")

Params = Mapping[str, str] | list[tuple[str, str | int | float | bool | None]]
"""Query parameters; as a list one of them may come more than once."""


class AsyncTransport:
    """Speaks HTTP with one daemon."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float | None,
        retries: int,
        resume: float,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self.url = base_url(url)
        self.resume = resume
        self._retries = retries
        self._timeout = timeout
        headers = {"User-Agent": f"cubby-sdk-python/{__version__}", "Accept-Encoding": "identity"}
        if token.strip():
            headers["Authorization"] = "Bearer " + token.strip()
        # A proxy of the environment cannot reach this machine's loopback.
        mounts: dict[str, httpx.AsyncBaseTransport | None] | None = None
        if is_loopback(self.url) and transport is None:
            mounts = {f"all://{urlsplit(self.url).hostname}": None}
        try:
            self._http = httpx.AsyncClient(
                transport=transport,
                mounts=mounts,
                headers=headers,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=60),
            )
        except UnicodeError as e:
            raise InvalidRequestError("the token is not plain text") from e

    @property
    def authorization(self) -> dict[str, str]:
        """The header that authenticates; none without a token."""
        value = self._http.headers.get("Authorization")
        return {} if value is None else {"Authorization": value}

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        wait: float = 0,
        repeat: bool = False,
    ) -> Any:
        """Send a request and return its JSON answer, None when it has none.

        A request that is harmless to repeat is repeated when the daemon could not be reached or said that it is busy.
        wait is how long the daemon was asked to wait before it answers.
        """
        response = await self.fetch(
            method, path, params=params, json=json, headers=headers, content=content, wait=wait, repeat=repeat
        )
        if response is None or not response.content:
            return None
        try:
            return response.json()
        except ValueError as e:
            raise malformed("it is not JSON") from e

    async def fetch(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        wait: float = 0,
        repeat: bool = False,
    ) -> httpx.Response | None:
        """Send a request and return its whole answer; None when a repeated DELETE found nothing left to do."""
        keyed = bool(headers) and "Idempotency-Key" in (headers or {})
        begun, attempt = time.monotonic(), 0
        while True:
            try:
                return await self._once(method, path, params, json, headers, content, wait)
            except NotFoundError:
                if method == "DELETE" and attempt > 0:
                    return None  # an attempt before this one was carried out, and its answer was lost
                raise
            except CubbyError as e:
                pause = repeat_after(e, attempt, keyed) if repeat else None
                if pause is None:
                    raise
                if e.code == "conflict":
                    if time.monotonic() - begun > self.resume:
                        raise
                elif attempt >= self._retries:
                    raise
                else:
                    attempt += 1
            await sleep(pause)

    async def send(
        self,
        method: str,
        path: str,
        body: AsyncContent,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool = False,
    ) -> Any:
        """Send raw content. Only text and bytes can be sent again."""
        headers = {"Content-Type": "application/octet-stream", **(headers or {})}
        if isinstance(body, str):
            body = body.encode()
        if isinstance(body, (bytes, bytearray, memoryview)):
            return await self.call(method, path, params=params, headers=headers, content=bytes(body), repeat=repeat)
        with self._telling():
            response = await self._http.request(
                method,
                self.url + path,
                params=params,
                headers=headers,
                content=pieces(body),
                timeout=httpx.Timeout(self._timeout, connect=10),
            )
        self._check(response)
        return response.json() if response.content else None

    async def probe(self, path: str) -> Any:
        """Return the JSON by which a probe says 503, None when it is content."""
        with self._telling():
            response = await self._http.get(self.url + path, timeout=httpx.Timeout(self._timeout, connect=10))
        if response.status_code == 503:
            with contextlib.suppress(ValueError):
                return response.json()
        self._check(response)
        return None

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        method: str = "GET",
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        silence: float | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """Get an answer piece by piece. silence bounds the time between two pieces."""
        timeout = httpx.Timeout(silence if silence is not None else self._timeout, connect=10)
        with self._telling():
            async with self._http.stream(
                method, self.url + path, params=params, headers=headers, content=content, timeout=timeout
            ) as response:
                if response.status_code >= 300:
                    await response.aread()
                self._check(response)
                yield response

    async def events(self, path: str, params: Mapping[str, str], last_id: str = "") -> AsyncGen[ServerEvent]:
        """Read the Server-Sent Events of one connection."""
        headers = {"Accept": "text/event-stream"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        decoder = EventDecoder()
        async with self.stream(path, params=params, headers=headers, silence=SILENCE) as response:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise malformed("it is not a stream of events")
            async for data in response.aiter_bytes():
                for event in decoder.feed(data):
                    yield event

    async def follow(
        self,
        path: str,
        params: Mapping[str, str],
        position: int,
        read: Callable[[ServerEvent, int], tuple[T | None, int, bool]],
        *,
        counted: bool = False,
    ) -> AsyncGen[T]:
        """Read events from a position to the last one, over as many connections as it takes.

        read makes an item of an event, if there is one in it, with the position after it and whether it is the last.
        The id of the last event is the position, or one less where events are counted from 0.
        """
        backoff = Backoff(self.resume)
        while True:
            begun, before = time.monotonic(), position
            try:
                async with aclosing(self.events(path, params, str(position - counted) if position else "")) as events:
                    async for event in events:
                        item, position, last = read(event, position)
                        if item is not None:
                            yield item
                        if last:
                            return
                raise stream_cut()
            except CubbyError as e:
                if position > before or time.monotonic() - begun > 5:
                    backoff.reset()
                pause = backoff.wait(e)
                if pause is None:
                    raise
            await sleep(pause)

    async def _once(
        self,
        method: str,
        path: str,
        params: Params | None,
        json: Any,
        headers: Mapping[str, str] | None,
        content: bytes | None,
        wait: float,
    ) -> httpx.Response:
        timeout = self._timeout if self._timeout is None or not wait else wait + 30
        with self._telling():
            response = await self._http.request(
                method,
                self.url + path,
                params=params,
                json=json,
                headers=headers,
                content=content,
                timeout=httpx.Timeout(timeout, connect=10),
            )
        self._check(response)
        return response

    def _check(self, response: httpx.Response) -> None:
        if response.status_code >= 300:
            raise from_answer(response.status_code, response.reason_phrase, response.headers, response.content)

    def _telling(self) -> Telling:
        return Telling(self.url)


class Telling:
    """Turns the errors of httpx into the package's."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (httpx.ReadTimeout, httpx.WriteTimeout)):
            raise RequestTimeoutError(f"no answer of {self._url} in time", retryable=True) from error
        if isinstance(error, httpx.ConnectError):
            raise UnreachableError(
                f"no daemon answers at {self._url}: {error}",
                hint="start one with `cubby serve`, or set CUBBY_URL",
                retryable=True,
            ) from error
        if isinstance(error, httpx.TransportError):
            text = str(error) or type(error).__name__
            raise UnreachableError(f"talking to {self._url}: {text}", retryable=True) from error
        if isinstance(error, (httpx.InvalidURL, httpx.DecodingError)):
            raise InvalidRequestError(str(error)) from error
