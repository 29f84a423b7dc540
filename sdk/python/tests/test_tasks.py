"""Tasks of coding agents: what is asked and read, and a real one of an agent that is a line of shell."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

import cubby
from conftest import TOKEN, Daemon
from cubby import AsyncClient, Client, Sandbox, TaskEvent
from scripting import PING, events, problem

TASK = {"id": "t1", "status": "running", "seq": 1}
ENDED = {
    **TASK,
    "status": "failed",
    "failure_reason": "agent_error",
    "error_message": "no key\n",
    "files_changed": ["a"],
}


def event(number: int, kind: str, **data: Any) -> str:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"


def test_events_go_on_over_broken_connections(scripted: Any) -> None:
    script, box = scripted(
        events(event(0, "status", phase="starting") + PING + event(1, "error", x=1) + "id: 2\nevent: mess"),
        httpx.ConnectError("refused"),
        events(event(1, "error", x=1) + event(2, "message", text="hi")),
        events(event(3, "done", id="t1", status="succeeded", files_changed=["f"]) + event(4, "message")),
    )
    stream = box.tasks.events("t1")
    got = list(stream)
    assert [(e.id, e.type) for e in got] == [(0, "status"), (1, "error"), (2, "message"), (3, "done")]
    assert [r.headers.get("last-event-id") for r in script.requests] == [None, "1", "1", "2"]
    assert stream.next_id == 4
    assert got[2].data["text"] == "hi"
    assert got[0].result is None
    assert got[3].result is not None
    assert got[3].result.files_changed == ["f"]


def test_events_begin_where_they_are_wanted(scripted: Any) -> None:
    script, box = scripted(events(event(6, "usage") + event(7, "done", id="t1", status="cancelled")))
    assert [e.id for e in box.tasks.events("t1", since=7)] == [7]
    assert script.requests[0].headers["last-event-id"] == "6"


@pytest.mark.parametrize(
    "text", ["id: 0\nevent: status\ndata: {\n\n", "id: x\nevent: a\ndata: {}\n\n", "id: 0\nevent: a\ndata: 7\n\n"]
)
def test_an_event_that_cannot_be_read_is_an_error(scripted: Any, text: str) -> None:
    _, box = scripted(events(text))
    with pytest.raises(cubby.InternalError):
        list(box.tasks.events("t1"))


def test_a_task_that_fails_is_an_error_when_that_is_asked_for(scripted: Any) -> None:
    script, box = scripted(*[httpx.Response(202, json=TASK), httpx.Response(200, json=ENDED)] * 2)
    task = box.tasks.run("p", agent="claude", timeout=0)
    assert (task.ok, task.finished, task.files_changed) == (False, True, ["a"])
    assert json.loads(script.requests[0].content) == {"prompt": "p", "agent": "claude", "timeout_seconds": 0}
    with pytest.raises(cubby.TaskFailedError, match="no key") as caught:
        box.tasks.run("p", check=True)
    assert (caught.value.code, caught.value.task.id) == ("agent_error", "t1")


def test_a_second_task_is_refused(scripted: Any) -> None:
    _, box = scripted(problem(409, "task_in_progress"))
    with pytest.raises(cubby.TaskInProgressError):
        box.tasks.start("p")


def test_a_callback_that_raises_cancels_the_task(scripted: Any) -> None:
    script, box = scripted(
        httpx.Response(202, json=TASK), events(event(0, "status")), httpx.Response(200, json={"task_status": "running"})
    )

    def leave(_: TaskEvent) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError):
        box.tasks.run("p", on_event=leave, kill_on_cancel=True)
    assert script.requests[-1].url.path.endswith("/v1/sandboxes/b/tasks/t1/cancel")


AGENT = {"command": ["sh", "-c", "echo hello; echo x > made.txt"], "protocol": "json-lines"}


def test_a_task_is_done_and_undone(box: Sandbox) -> None:
    heard: list[TaskEvent] = []
    box.exec("mkdir -p sdk-task && echo old > sdk-task/kept.txt")
    task = box.tasks.run("make a file", cwd="sdk-task", check=True, on_event=heard.append, **AGENT)
    assert (task.files_changed, task.checkpoint_message) == (["made.txt"], "")
    assert task.agent_message_final == "hello"
    assert [e.id for e in heard] == list(range(len(heard)))
    assert heard[-1].type == "done"
    assert {"status", "message", "diff"} <= {e.type for e in heard}
    assert [e.type for e in box.tasks.events(task.id, since=len(heard) - 1)] == ["done"]
    assert box.tasks.get(task.id).prompt == "make a file"
    assert next(iter(box.tasks.list(page_size=1))).id == task.id
    assert list(box.tasks.restore(task.id)) == ["made.txt"]
    assert box.exec("ls sdk-task").stdout == "kept.txt\n"


def test_a_task_is_cancelled(box: Sandbox) -> None:
    command = ["sh", "-c", "echo begun; exec sleep 600"]
    task = box.tasks.start("wait", cwd="sdk-slow", command=command, protocol="json-lines")
    with box.tasks.events(task.id) as stream:
        while next(stream).type != "message":
            pass
    assert box.refresh().active_task_id == task.id
    with pytest.raises(cubby.TaskInProgressError):
        box.tasks.start("again", cwd="sdk-slow", command=command, protocol="json-lines")
    with pytest.raises(cubby.TaskInProgressError):
        box.stop()
    assert box.tasks.cancel(task.id) == "running"
    ended = box.tasks.wait(task.id)
    assert (ended.status, ended.failure_reason) == ("cancelled", "cancelled")
    assert box.tasks.cancel(task.id) == "cancelled"


def test_where_tasks_are_pushed_to(client: Client) -> None:
    with client.sandboxes.create(isolation="container", git_remote_url="https://example.com/a") as box:
        assert box.info.git_remote_url == "https://example.com/a"
        assert box.update(git_remote_url="").git_remote_url == ""


def test_asyncio(daemon: Daemon, box: Sandbox) -> None:
    async def run() -> None:
        async with AsyncClient(daemon.url, TOKEN) as client:
            tasks = (await client.sandboxes.get(box.id)).tasks
            task = await tasks.start("x", cwd="sdk-async", **AGENT)
            kinds = [e.type async for e in tasks.events(task.id)]
            assert kinds[-1] == "done"
            assert (await tasks.wait(task.id, 60)).ok
            assert task.id in [t.id async for t in tasks.list()]

    asyncio.run(asyncio.wait_for(run(), 120))
