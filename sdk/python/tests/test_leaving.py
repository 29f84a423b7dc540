"""What the end of a call does to what it started, and callbacks while it runs. With a script instead of a daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest

import cubby
from cubby import AsyncClient, AsyncSandbox, ExecFailedError, Sandbox, SandboxInfo
from scripting import EXIT, Script, events, output

STARTED = {"seq": 1, "status": "running"}
DONE = {"seq": 1, "status": "done", "exit_code": 0, "reason": "exited", "stdout": "héllo"}
Scripted = Callable[..., tuple[Script, Sandbox]]


def interrupted(_: httpx.Request) -> httpx.Response:
    raise KeyboardInterrupt


def asked(script: Script) -> list[str]:
    return [f"{r.method} {r.url.path.removeprefix('/prefix/v1/sandboxes/b/')}" for r in script.requests]


def ok(data: object) -> httpx.Response:
    return httpx.Response(200, json=data)


def test_exec_calls_back_with_whole_characters(scripted: Scripted) -> None:
    pieces = ["h\u00e9llo"[:1], "\u00e9"]
    raw = "é".encode()
    stream = events(
        output("h", 0),
        'id: 2\nevent: stdout\ndata: {"data":"w6k=","encoding":"base64","offset":1}\n\n'.replace("w6k=", "ww=="),
        'id: 3\nevent: stdout\ndata: {"data":"qQ==","encoding":"base64","offset":2}\n\n',
        output("oh", 3, "stderr"),
        EXIT,
    )
    script, box = scripted(ok(STARTED), stream, ok(DONE))
    out: list[str] = []
    err: list[str] = []
    result = box.exec("c", on_stdout=out.append, on_stderr=err.append)
    assert (out, err, result.stdout) == (pieces, ["oh"], "héllo")
    assert raw == b"\xc3\xa9"
    assert asked(script) == ["POST exec", "GET execs/1/stream", "GET execs/1"]


def test_ctrl_c_leaves_the_command_alone(scripted: Scripted) -> None:
    script, box = scripted(ok(STARTED), interrupted)
    with pytest.raises(KeyboardInterrupt):
        box.exec("c")
    assert asked(script) == ["POST exec", "GET execs/1"]


@pytest.mark.parametrize("what", ["exec", "run_code"])
def test_ctrl_c_kills_what_was_asked_to_be_killed(scripted: Scripted, what: str) -> None:
    script, box = scripted(ok(STARTED), interrupted, ok(DONE))
    with pytest.raises(KeyboardInterrupt):
        getattr(box, what)("c", kill_on_cancel=True)
    begin, wait = ("POST exec", "GET execs/1") if what == "exec" else ("POST code", "GET code/1")
    assert asked(script) == [begin, wait, "POST execs/1/cancel"]


def test_a_callback_that_raises_kills_too(scripted: Scripted) -> None:
    def refuse(_: str) -> None:
        raise ValueError("enough")

    script, box = scripted(ok(STARTED), events(output("x", 0), EXIT), ok(DONE))
    with pytest.raises(ValueError, match="enough"):
        box.session("s").run("c", on_stdout=refuse, kill_on_cancel=True)
    assert asked(script)[-1] == "POST execs/1/cancel"


def test_the_interruption_is_told_though_the_kill_fails(scripted: Scripted) -> None:
    script, box = scripted(ok(STARTED), interrupted, httpx.ConnectError("refused"))
    with pytest.raises(KeyboardInterrupt):
        box.exec("c", kill_on_cancel=True)
    assert len(script.requests) == 3


def test_what_the_daemon_says_does_not_kill(scripted: Scripted) -> None:
    refused = httpx.Response(404, json={"error": {"code": "not_found", "message": "gone"}})
    script, box = scripted(ok(STARTED), refused)
    with pytest.raises(cubby.NotFoundError):
        box.exec("c", kill_on_cancel=True)
    assert asked(script)[-1] == "GET execs/1"


@pytest.mark.parametrize("when", ["exec", "execs/1"])
def test_a_canceled_task_kills_the_command(when: str) -> None:
    """Also when the start was asked for and its answer has not come."""
    asked: list[str] = []

    async def scenario() -> None:
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def answer(request: httpx.Request) -> httpx.Response:
            path = request.url.path.removeprefix("/v1/sandboxes/b/")
            asked.append(f"{request.method} {path}")
            if path == when:
                reached.set()
                await go_on.wait()
            return ok(STARTED)

        async with AsyncClient("http://daemon", transport=httpx.MockTransport(answer)) as client:
            box = AsyncSandbox(client._transport, SandboxInfo("b", "running"))
            task = asyncio.create_task(box.exec("c", kill_on_cancel=True))
            await reached.wait()
            task.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(scenario())
    assert asked[-1] == "POST execs/1/cancel"


def test_a_failed_command_says_which_and_why() -> None:
    lines = "".join(f"line {n}\n" for n in range(100))
    result = cubby.ExecResult(7, "done", ["make", "a b"], exit_code=2, reason="exited", stderr_bytes=lines.encode())
    with pytest.raises(ExecFailedError) as caught:
        result.check()
    text = str(caught.value)
    assert text.startswith("command 7: exit code 2\n$ make 'a b'\n…line 80\n")
    assert text.endswith("line 99")
    long = ExecFailedError(cubby.ExecResult(1, "done", "echo a\n" * 5000, exit_code=1, stderr_bytes=b"e" * 10**6))
    assert len(str(long)) < 2300
    assert str(ExecFailedError(cubby.ExecResult(1, "done", exit_code=1))) == "command 1: exit code 1"


def test_quota_and_an_unready_daemon_have_classes(scripted: Scripted) -> None:
    for code, kind in {"quota_exceeded": cubby.QuotaExceededError, "unavailable": cubby.UnavailableError}.items():
        _, box = scripted(httpx.Response(429, json={"error": {"code": code, "message": "m"}}), retries=0)
        with pytest.raises(kind) as caught:
            box.exec("c")
        assert caught.value.code == code


def test_one_line_without_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(*[ok({"id": "b", "status": "running"})] * 2, ok(DONE), httpx.Response(204), ok({}))
    made: list[cubby.Client] = []

    class Client(cubby.Client):
        def __init__(self, url: str | None, token: str | None) -> None:
            super().__init__(url, token, transport=httpx.MockTransport(script))
            made.append(self)

    monkeypatch.setattr("cubby._sync.client.Client", Client)
    monkeypatch.setenv("CUBBY_URL", "http://daemon")
    with cubby.Sandbox.create("b", isolation="container", token="t") as box:
        assert box.refresh().status == "running"
        assert box.exec("c").ok
    assert [r.method for r in script.requests] == ["POST", "GET", "POST", "DELETE"]
    assert script.requests[0].headers["Authorization"] == "Bearer t"
    assert made[0]._transport._http.is_closed


def test_a_sandbox_that_is_not_made_leaves_no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(cubby.Client, "close", lambda _: closed.append(True))
    with pytest.raises(cubby.UnreachableError):
        cubby.Sandbox.create(url="http://127.0.0.1:9")
    assert closed == [True]


def test_the_options_of_create_are_those_of_sandboxes_create() -> None:
    import inspect

    parameters = list(inspect.signature(cubby.Sandboxes.create).parameters)
    assert list(cubby.CreateOptions.__annotations__) == [p for p in parameters if p not in ("self", "id")]
