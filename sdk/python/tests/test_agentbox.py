"""The class of agentbox's SDK against answers of a script: what no daemon says on request."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

import httpx
import pytest

from cubby import CubbyError, InternalError, NotFoundError, UnauthorizedError, UnavailableError
from cubby.compat.agentbox import Sandbox, StreamEvent
from scripting import Broken, Script

SESSION = {"session": {"sessionId": "s", "containerId": "c", "createdAt": 1, "allowedHosts": ["pypi.org"]}}
OUT = {"type": "stdout", "data": "1\n"}
EXIT = {"type": "exit", "exitCode": 0}


def sandbox(*answers: httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]) -> Sandbox:
    made = Sandbox(
        "http://daemon", "t", transport=httpx.MockTransport(Script(httpx.Response(200, json=SESSION), *answers))
    )
    made.create()
    return made


def frame(message: object, flags: int = 0) -> bytes:
    data = json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data)) + data


def stream(*pieces: bytes, error: Exception | None = None) -> httpx.Response:
    headers = {"Content-Type": "application/connect+json"}
    return httpx.Response(200, headers=headers, stream=Broken(*pieces, error=error))


def test_without_a_session() -> None:
    with Sandbox("http://127.0.0.1:9", "t") as nothing:
        calls: list[Callable[[], object]] = [
            lambda: nothing.exec("true"),
            lambda: nothing.exec_stream("true"),
            lambda: nothing.write_file("a", "b"),
            lambda: nothing.read_file("a"),
            lambda: nothing.pip_install(["a"]),
            lambda: nothing.run_python("1"),
        ]
        for call in calls:
            with pytest.raises(RuntimeError, match=r"No active session\. Call create\(\) first\."):
                call()
        assert nothing.destroy() is False
        assert (nothing.session_id, nothing.allowed_hosts, nothing.network_enabled) == (None, [], False)


def test_a_stream_in_any_pieces() -> None:
    whole = frame(OUT) + frame(EXIT) + frame({}, 2)
    for size in (1, 3, len(whole)):
        pieces = [whole[i : i + size] for i in range(0, len(whole), size)]
        events = list(sandbox(stream(*pieces)).exec_stream("x"))
        assert events == [StreamEvent("stdout", "1\n"), StreamEvent("exit", "", 0)]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (stream(frame(OUT)), UnavailableError),
        (stream(frame(OUT), frame(EXIT)[:-1]), UnavailableError),
        (stream(frame(OUT), frame({"error": {"code": "unauthenticated", "message": "no"}}, 2)), UnauthorizedError),
        (stream(frame(OUT, 1)), InternalError),
        (stream(b"<html>nothing</html>"), InternalError),
        (stream(struct.pack(">BI", 0, 1) + b"{"), InternalError),
        (stream(frame([])), InternalError),
        (httpx.Response(404, json={"code": "not_found", "message": "Session not found"}), NotFoundError),
    ],
)
def test_a_stream_that_fails(answer: httpx.Response, error: type[Exception]) -> None:
    with pytest.raises(error):
        list(sandbox(answer).exec_stream("x"))


def test_answers_of_something_else() -> None:
    for answer in (httpx.Response(200, json=[]), httpx.Response(200, json={"session": None})):
        with pytest.raises(InternalError):
            sandbox(answer).create()
    with pytest.raises(RuntimeError, match="Failed to write file: no reason was given"):
        sandbox(httpx.Response(200, json={})).write_file("a", "b")


def test_codes() -> None:
    for status, code, expected in (
        (401, "unauthenticated", "unauthorized"),
        (429, "resource_exhausted", "sandbox_capacity"),
    ):
        with pytest.raises(CubbyError) as caught:
            sandbox(httpx.Response(status, json={"code": code, "message": "m"})).exec("true")
        assert (caught.value.code, caught.value.message, caught.value.status) == (expected, "m", status)
