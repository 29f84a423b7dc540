"""What the client makes of cells, kernels, packages and exports, with a script of answers for a daemon."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import cubby
from cubby import AsyncClient, CodeEnd, CodeError, Display, Execution, FileToImport, Output, Package, RichOutput
from scripting import PING, events, output, problem

PNG = base64.b64encode(b"\x89PNG").decode() + "\n"
DONE: dict[str, Any] = {
    "seq": 3,
    "status": "done",
    "success": True,
    "kernel": "python",
    "language": "python",
    "stdout": "abc",
    "stderr": "",
    "execution_count": 2,
    "result": {"text/plain": "<Figure>", "text/html": "<b>x</b>"},
    "outputs": [
        {"data": {"text/plain": "<Axes>", "image/png": PNG, "application/json": {"a": [1]}}, "metadata": {"k": 1}},
        {"data": {"image/svg+xml": "<svg/>"}, "display_id": "d"},
    ],
    "error": None,
    "reason": "exited",
    "message": "",
    "truncated": {"stdout": 60001},
    "duration_ms": 1.5,
    "created_at": "2026-01-02T03:04:05Z",
}
RAISED = {
    **DONE,
    "success": False,
    "result": None,
    "outputs": [],
    "error": {"type": "ValueError", "message": "no", "traceback": "Traceback …"},
}


def rich(number: int, **content: object) -> str:
    return f"id: {number}\nevent: rich\ndata: {json.dumps(content)}\n\n"


def ended(number: int) -> str:
    return f'id: {number}\nevent: exit\ndata: {{"seq":3,"status":"done","exit_code":0,"reason":"exited"}}\n\n'


def test_an_execution_gives_its_formats(scripted: Any) -> None:
    _, box = scripted(httpx.Response(200, json=DONE))
    got = box.run_code("fig")
    assert (got.seq, got.success, got.finished, got.stdout, got.execution_count) == (3, True, True, "abc", 2)
    assert (got.text, got.html, got.svg, got.png) == ("<Figure>", "<b>x</b>", "<svg/>", b"\x89PNG")
    assert (got.json, got.jpeg, got.markdown, got.latex) == ({"a": [1]}, None, None, None)
    assert got.truncated == {"stdout": 60001}
    assert got.raise_for_error() is got
    assert repr(got) == "<Execution 3 done: '<Figure>', 2 outputs>"
    first, second = got.outputs
    assert (first.text, first.png, first.html, second.display_id) == ("<Axes>", b"\x89PNG", None, "d")
    assert repr(first) == "<Display text/plain, image/png, application/json>"
    assert first.get_bytes("audio/wav") is None


def test_notebooks_show_what_was_shown(scripted: Any) -> None:
    _, box = scripted(httpx.Response(200, json=DONE))
    got = box.run_code("fig")
    assert got._repr_mimebundle_() == {"text/plain": "<Figure>", "text/html": "<b>x</b>"}
    assert got._repr_mimebundle_(include=["text/html"]) == {"text/html": "<b>x</b>"}
    data, metadata = got.outputs[0]._repr_mimebundle_(exclude=["image/png"])
    assert (list(data), metadata) == (["text/plain", "application/json"], {"k": 1})
    assert Execution(1, "done", stdout="printed")._repr_mimebundle_() == {"text/plain": "printed"}
    failed = Execution(1, "done", error=CodeError("E", "m"))
    assert failed._repr_mimebundle_() == {"text/plain": "E: m"}


def test_an_image_that_is_none_is_an_error() -> None:
    for bad in ("a", "é"):
        with pytest.raises(cubby.InternalError, match="base64"):
            _ = Display({"image/png": bad}).png


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (RAISED, "cell 3: ValueError: no"),
        ({**RAISED, "error": {"type": "E"}}, "cell 3: E"),
        ({**RAISED, "status": "error", "reason": "timeout", "message": "its time was up"}, "cell 3: its time was up"),
        ({**RAISED, "status": "error", "error": None, "reason": "oom"}, "cell 3: oom"),
    ],
)
def test_code_that_fails_raises_where_that_is_asked_for(answer: dict[str, Any], message: str, scripted: Any) -> None:
    _, box = scripted(httpx.Response(200, json=answer), httpx.Response(200, json=answer))
    execution = box.run_code("x")
    assert not execution.success
    with pytest.raises(cubby.CodeFailedError) as caught:
        execution.raise_for_error()
    assert str(caught.value) == message
    assert caught.value.execution is execution
    with pytest.raises(cubby.CodeFailedError):
        box.run_code("x", check=True)
    with pytest.raises(cubby.CodeFailedError, match="cell 3 is running"):
        Execution(3, "running").raise_for_error()


def test_what_is_sent(scripted: Any) -> None:
    script, box = scripted(
        httpx.Response(200, json=DONE),
        httpx.Response(202, json={"seq": 3, "status": "running"}),
        httpx.Response(202, json={"seq": 3, "status": "pending"}),
    )
    box.run_code("1", "r", kernel="k", timeout=5, cwd="/tmp", env={"A": "1"})
    assert not box.run_code("1", wait=False, check=True).finished
    assert box.start_code("1", stdin=True).seq == 3
    assert [r.url.path for r in script.requests] == ["/prefix/v1/sandboxes/b/code"] * 3
    first, second, third = (json.loads(r.content) for r in script.requests)
    assert first == {
        "code": "1", "language": "r", "kernel": "k", "timeout_seconds": 5, "cwd": "/tmp", "env": {"A": "1"},
        "wait": True, "wait_seconds": 2.0,
    }  # fmt: skip
    assert second == {"code": "1", "wait": False}
    assert third == {"code": "1", "wait": False, "stdin": True}


def test_a_long_cell_is_waited_for_over_restarts(scripted: Any) -> None:
    running = httpx.Response(202, json={"seq": 3, "status": "running"})
    script, box = scripted(running, httpx.ConnectError("refused"), running, httpx.Response(200, json=DONE))
    assert box.run_code("x").text == "<Figure>"
    assert {r.url.path for r in script.requests[1:]} == {"/prefix/v1/sandboxes/b/code/3"}
    script, box = scripted(running, running)
    with pytest.raises(cubby.RequestTimeoutError):
        box.cell(3).wait(0)


def test_a_stream_gives_what_is_shown_as_it_comes(scripted: Any) -> None:
    script, box = scripted(
        events(output("abc", 0), rich(10, display={"data": {"text/plain": "x"}}), error=httpx.ReadError("reset")),
        events(
            PING,
            rich(10, display={"data": {"text/plain": "x"}}),
            rich(20, display={"data": {}, "display_id": "d", "update": True}),
            rich(30, result={"execution_count": 2, "data": {"text/plain": "5"}}),
            rich(40, error={"ename": "E", "evalue": "m", "traceback": ["\x1b[31ma\x1b[0m", "b"]}),
            rich(50, clear={"wait": False}),
            rich(60, input={"prompt": "? ", "password": True}),
            rich(70, kernel={"restarted": True, "reason": "it had died"}),
            rich(80, invented={"a": 1}),
            ended(80),
        ),
        httpx.Response(200, json=DONE),
    )
    with box.cell(3).stream() as stream:
        chunks = list(stream)
    assert chunks[:-1] == [
        Output("stdout", b"abc", 0, 3),
        RichOutput("display", display=Display({"text/plain": "x"}), next=10),
        RichOutput("display", display=Display(display_id="d"), update=True, next=20),
        RichOutput("result", display=Display({"text/plain": "5"}), next=30),
        RichOutput("error", error=CodeError("E", "m", "a\nb"), next=40),
        RichOutput("clear", next=50),
        RichOutput("input", prompt="? ", password=True, next=60),
        RichOutput("kernel", message="it had died", next=70),
    ]
    assert isinstance(chunks[-1], CodeEnd)
    assert stream.execution == chunks[-1].execution
    assert stream.offset == 70
    assert [r.headers.get("last-event-id") for r in script.requests] == [None, "10", None]


@pytest.mark.parametrize(
    "event",
    [
        "event: rich\ndata: {}\n\n",
        "id: 1\nevent: rich\ndata: []\n\n",
        "id: 1\nevent: rich\ndata: {}\n\n",
        'id: 1\nevent: rich\ndata: {"display":7}\n\n',
        'id: 1\nevent: rich\ndata: {"display":{"data":[]}}\n\n',
    ],
)
def test_shown_things_that_cannot_be_read_are_an_error(event: str, scripted: Any) -> None:
    _, box = scripted(events(event))
    with pytest.raises(cubby.InternalError):
        list(box.cell(3).stream())


def test_callbacks_get_whole_characters(scripted: Any) -> None:
    half = json.dumps({"data": base64.b64encode(b"\xc3").decode(), "encoding": "base64", "offset": 1})
    rest = json.dumps({"data": base64.b64encode(b"\xa9\xff").decode(), "encoding": "base64", "offset": 2})
    cut = json.dumps({"data": base64.b64encode(b"\xe2").decode(), "encoding": "base64", "offset": 4})
    _, box = scripted(
        httpx.Response(202, json={"seq": 3, "status": "running"}),
        events(
            output("h", 0),
            f"id: 2\nevent: stdout\ndata: {half}\n\n",
            f"id: 4\nevent: stdout\ndata: {rest}\n\n",
            f"id: 5\nevent: stderr\ndata: {cut}\n\n",
            rich(6, result={"data": {"text/plain": "5"}}),
            ended(6),
        ),
        httpx.Response(200, json=DONE),
    )
    out: list[str] = []
    err: list[str] = []
    shown: list[RichOutput] = []
    got = box.run_code("x", on_stdout=out.append, on_stderr=err.append, on_output=shown.append)
    assert (out, err, [s.kind for s in shown], got.seq) == (["h", "é\ufffd"], ["\ufffd"], ["result"], 3)


def test_callbacks_of_the_asynchronous_client_may_be_coroutines() -> None:
    answers = [
        httpx.Response(200, json={"id": "b", "status": "running"}),
        httpx.Response(202, json={"seq": 3, "status": "running"}),
        httpx.Response(
            200, headers={"Content-Type": "text/event-stream"}, text=output("abc", 0) + output("d", 3) + ended(4)
        ),
        httpx.Response(200, json=DONE),
    ]
    heard: list[str] = []

    async def hear(text: str) -> None:
        await asyncio.sleep(0)
        heard.append(text)

    async def scenario() -> Execution:
        transport = httpx.MockTransport(lambda request: answers.pop(0))
        async with AsyncClient("http://daemon", transport=transport) as client:
            box = await client.sandboxes.get("b")
            return await box.run_code("x", on_stdout=hear)

    assert asyncio.run(scenario()).seq == 3
    assert heard == ["abc", "d"]


def test_kernels(scripted: Any) -> None:
    info = {"name": "k", "language": "python", "status": "idle", "pid": 7, "created_at": "2026-01-02T03:04:05Z"}
    listing = {"kernels": [info], "available": [{"spec": "python3", "language": "python", "display_name": "Python 3"}]}
    script, box = scripted(
        httpx.Response(201, json=info),
        httpx.Response(200, json={**info, "status": "busy"}),
        httpx.Response(200, json={**info, "status": "idle"}),
        httpx.Response(200, json={**info, "restarts": 1}),
        httpx.Response(200, json=DONE),
        httpx.Response(204),
        httpx.Response(200, json=listing),
        httpx.Response(200, json=listing),
        problem(404, "not_found"),
    )
    kernel = box.kernels.create("python", "k", env={"A": "1"})
    assert (kernel.name, kernel.info.pid) == ("k", 7)
    assert kernel.refresh().status == "busy"
    assert kernel.interrupt().status == "idle"
    assert kernel.restart().restarts == 1
    assert kernel.run("1", timeout=3).success
    kernel.delete()
    assert [k.name for k in box.kernels.list()] == ["k"]
    assert [k.spec for k in box.kernels.available()] == ["python3"]
    with pytest.raises(cubby.NotFoundError):
        box.kernels.get("k")
    asked = [(r.method, r.url.path.removeprefix("/prefix/v1/sandboxes/b/")) for r in script.requests]
    assert asked == [
        ("POST", "kernels"), ("GET", "kernels/k"), ("POST", "kernels/k/interrupt"), ("POST", "kernels/k/restart"),
        ("POST", "code"), ("DELETE", "kernels/k"), ("GET", "kernels"), ("GET", "kernels"), ("GET", "kernels/k"),
    ]  # fmt: skip
    assert json.loads(script.requests[4].content)["kernel"] == "k"


def test_packages(scripted: Any) -> None:
    started = httpx.Response(202, json={"seq": 5, "status": "running", "kind": "packages.install"})
    installed = {"installed": [{"name": "a", "version": "1.0"}]}
    script, box = scripted(
        started,
        httpx.Response(200, json={"seq": 5, "status": "done", "exit_code": 0, "reason": "exited", "result": installed}),
        started,
        httpx.Response(200, json={"seq": 5, "status": "done", "exit_code": 1, "reason": "exited", "stderr": "why\n"}),
    )
    assert box.install(["a"], runtime="python") == [Package("a", "1.0")]
    assert json.loads(script.requests[0].content) == {"runtime": "python", "dependencies": {"a": ""}, "wait": False}
    with pytest.raises(cubby.InstallFailedError, match=r"exit code 1\nwhy") as caught:
        box.install({"a": "2"})
    assert caught.value.result.stderr == "why\n"


def test_a_create_with_dependencies(scripted: Any) -> None:
    info = {"id": "b", "status": "running", "runtime": "python", "dependencies": {"a": "1"}}
    script, box = scripted(httpx.Response(201, json=info))
    made = cubby.Sandboxes(box._transport).create(runtime="python", dependencies={"a": "1"})
    assert (made.info.runtime, made.info.dependencies) == ("python", {"a": "1"})
    assert json.loads(script.requests[0].content) == {"runtime": "python", "dependencies": {"a": "1"}}


def test_exports_and_imports(tmp_path: Path, scripted: Any) -> None:
    exported = {"session_id": "b", "path": "/workspace/a", "success": True, "size": 2, "download_url": None}
    taken = {"source": "x:/workspace/a", "destination": "/workspace/a", "success": False, "error": "no"}
    script, box = scripted(
        httpx.Response(200, json={"success": True, "files": [exported]}),
        httpx.Response(200, json={"success": True, "files": [exported]}),
        httpx.Response(200, json={"success": False, "files": [taken]}),
        httpx.Response(200, content=b"hi"),
        httpx.Response(200, content=b"PK"),
        problem(403, "forbidden"),
    )
    assert [(f.path, f.success) for f in box.export_files("a")] == [("/workspace/a", True)]
    assert [f.size for f in box.exports()] == [2]
    entries = [
        FileToImport("t", "text"),
        FileToImport("b", b"\xff"),
        FileToImport(sandbox="x", path="a"),
        FileToImport(source="/host/f"),
    ]
    assert [f.error for f in box.import_files(*entries)] == ["no"]
    assert json.loads(script.requests[2].content) == {
        "files": [
            {"destination": "t", "file_content": "text", "encoding": "text"},
            {"destination": "b", "file_content": "/w==", "encoding": "base64"},
            {"session_id": "x", "path": "a"},
            {"source": "/host/f"},
        ]
    }
    box.download_export("a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"hi"
    with box.open_export("d", format="zip") as pieces:
        assert b"".join(pieces) == b"PK"
    assert script.requests[-1].url.params["format"] == "zip"
    with pytest.raises(cubby.ForbiddenError):
        box.download_export("a", tmp_path / "other")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    for bad in (FileToImport(), FileToImport("a", "b", sandbox="x"), FileToImport(path="a", source="b")):
        with pytest.raises(cubby.InvalidRequestError):
            box.import_files(bad)


def test_threads(scripted: Any) -> None:
    listing = {"threads": [{"thread": "a/b", "sandboxes": 2, "running": 1, "created_at": "2026-01-02T03:04:05Z"}]}
    answers = (
        httpx.Response(200, json=listing),
        httpx.Response(200, json={"destroyed": 2}),
        httpx.Response(200, json=[]),
    )
    script, _ = scripted(*answers)
    client = cubby.Client("http://daemon", transport=httpx.MockTransport(script))
    assert [(t.thread, t.sandboxes, t.running) for t in client.threads()] == [("a/b", 2, 1)]
    assert client.destroy_thread("a/b") == 2
    assert script.requests[1].url.raw_path == b"/v1/threads/a%2Fb"
    with pytest.raises(cubby.InternalError):
        client.destroy_thread("a")
    client.close()
