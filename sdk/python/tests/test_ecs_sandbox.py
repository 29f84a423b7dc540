"""What the client of ecs-sandbox sends, and what it makes of answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import httpx
import pytest

from cubby.compat import ecs_sandbox
from cubby.compat.ecs_sandbox import SandboxClient, SandboxError


def scripted(answers: list[httpx.Response], call: Callable[[SandboxClient], Awaitable[object]]) -> list[httpx.Request]:
    """Make a call to a server that gives these answers; returns what it was asked."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return answers.pop(0)

    async def scenario() -> None:
        async with SandboxClient("http://server", "s3") as client:
            await client._http.aclose()
            client._http = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://server")
            await call(client)

    asyncio.run(scenario())
    return asked


def test_what_is_sent() -> None:
    accepted = httpx.Response(202, json={"seq": 1, "status": "pending"})
    [request] = scripted([accepted], lambda c: c.exec("a/b", "ls", "/tmp", 5, {"A": "1"}, True))
    assert request.url.raw_path == b"/sandbox/a%2Fb/exec"
    assert json.loads(request.content) == {
        "cmd": "ls", "cwd": "/tmp", "timeout_seconds": 5, "env": {"A": "1"}, "sync": True,
    }  # fmt: skip
    created = httpx.Response(201, json={"id": "x", "status": "active"})
    [request] = scripted([created], lambda c: c.create_session("x"))
    assert json.loads(request.content) == {"id": "x", "ttl_seconds": 1800}


@pytest.mark.parametrize(
    ("answer", "error", "detail"),
    [
        (httpx.Response(408, json={"error": "timeout", "detail": "it goes on"}), "timeout", "it goes on"),
        (httpx.Response(502, text="<html>"), "", "Bad Gateway"),
        (httpx.Response(500, json=[]), "", "Internal Server Error"),
    ],
)
def test_failures(answer: httpx.Response, error: str, detail: str) -> None:
    with pytest.raises(httpx.HTTPStatusError) as caught:
        scripted([answer], lambda c: c.get_event("x", 1))
    assert isinstance(caught.value, SandboxError)
    assert (caught.value.error, caught.value.detail) == (error, detail)


def test_the_client_is_the_documented_one() -> None:
    for name in ecs_sandbox.__all__:
        assert getattr(ecs_sandbox, name).__doc__
    for method in (
        "create_session", "exec", "get_event", "get_history", "wait_for_event", "destroy_session",
        "read_file", "write_file", "list_files",
    ):  # fmt: skip
        assert getattr(SandboxClient, method).__doc__
