"""A script of answers that stands in for the daemon."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

import cubby
from cubby import Client, Sandbox
from cubby._sync import process, transport, waiting

BOX = {"id": "b", "status": "running"}
Answer = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]


class Script:
    """Gives one answer after the other, and notes what was asked and how long the client paused."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        if not self.answers:
            raise AssertionError(f"nobody expected {request.method} {request.url}")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Script, Sandbox]]]:
    clients: list[Client] = []

    def make(*answers: Answer, **options: Any) -> tuple[Script, Sandbox]:
        script = Script(*answers)
        for module in (transport, waiting, process):
            monkeypatch.setattr(module, "sleep", script.pauses.append)
        client = Client("http://daemon/prefix", "secret", transport=httpx.MockTransport(script), **options)
        clients.append(client)
        return script, Sandbox(client._transport, cubby.SandboxInfo("b", "running"))

    yield make
    for client in clients:
        client.close()


def problem(status: int, code: str, retry_after: str | None = None, **fields: Any) -> httpx.Response:
    detail = {"code": code, "message": f"this is {code}", "hint": "", "retryable": False, "request_id": "r1", **fields}
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return httpx.Response(status, json={"error": detail}, headers=headers)


class Broken(httpx.SyncByteStream):
    """A body that breaks off."""

    def __init__(self, *pieces: bytes, error: Exception | None = None) -> None:
        self.pieces, self.error = pieces, error

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces
        if self.error is not None:
            raise self.error


def events(*pieces: str, error: Exception | None = None) -> httpx.Response:
    stream = Broken(*(p.encode() for p in pieces), error=error)
    return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=stream)


def output(text: str, offset: int, stream: str = "stdout") -> str:
    data = json.dumps({"data": text, "encoding": "utf-8", "offset": offset})
    return f"id: {offset + len(text)}\nevent: {stream}\ndata: {data}\n\n"


EXIT = 'id: 6\nevent: exit\ndata: {"seq":1,"status":"done","exit_code":0,"reason":"exited"}\n\n'
END = "event: end\ndata: {}\n\n"
PING = "event: ping\ndata: {}\n\n"
