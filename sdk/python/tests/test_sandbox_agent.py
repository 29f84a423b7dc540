"""What the manager of sandbox-agent makes of answers, with a script of them for a daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import cubby
from cubby import Client, Display, Execution
from cubby.compat import sandbox_agent
from cubby.compat.sandbox_agent import ContainerDiedError, SandboxManager, SessionInfo, TerminalResult, answers
from scripting import Answer, Script, problem

DONE = {"seq": 1, "status": "done", "success": True, "reason": "exited", "result": None, "outputs": [], "error": None}


@pytest.fixture
def manager() -> Iterator[SandboxManager]:
    with SandboxManager("http://daemon", "secret", thread_id="t") as m:
        m.client.close()
        yield m
        m.sessions.clear()
        m._boxes.clear()


def answer_with(manager: SandboxManager, *script: Answer) -> Script:
    """Let a script answer, and know of the session s1."""
    told = Script(*script)
    manager.client = Client("http://daemon", transport=httpx.MockTransport(told), retries=0, resume=0)
    manager.sessions["s1"] = SessionInfo("s1", "s1", "sandbox-s1", "python", "running", "t")
    manager._boxes["s1"] = cubby.Sandbox(manager.client._transport, cubby.SandboxInfo("s1", "running", thread="t"))
    return told


def test_results_have_the_documented_form() -> None:
    got = answers.execution_result(
        Execution(
            1,
            "done",
            True,
            stdout="out",
            result={"text/plain": "   x", "text/html": "<table>"},
            outputs=[
                Display({"text/plain": "<Figure>", "image/png": "aGk="}),
                Display({"text/plain": "shown"}),
                Display({"application/json": {"a": 1}, "text/plain": "x"}),
                Display({}),
            ],
        )
    )
    assert (got.success, got.stdout, got.result, got.error) == (True, "out", {"text/plain": "   x"}, None)
    assert got.display_outputs == [
        {"type": "image/png", "data": "aGk="},
        {"type": "text/plain", "data": "shown"},
        {"type": "application/json", "data": {"a": 1}},
        {"type": "text/html", "data": "<table>"},
    ]
    assert got.figures == ["aGk="]


def test_errors_of_code_have_the_documented_form() -> None:
    error = cubby.CodeError("ValueError", "no", "Traceback")
    got = answers.execution_result(Execution(1, "done", error=error))
    assert (got.success, got.result) == (False, None)
    assert got.error == {"type": "ValueError", "message": "no", "traceback": "Traceback"}
    got = answers.execution_result(Execution(1, "error", reason="lost"))
    assert got.error == {"type": "RuntimeError", "message": "cell 1: lost"}


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"status": "done", "exit_code": 3, "reason": "exited"}, TerminalResult(3)),
        ({"status": "error", "reason": "timeout"}, TerminalResult(124, "", "Command timed out after 5s")),
        ({"status": "error", "reason": "lost", "message": "gone"}, TerminalResult(-1, "", "gone")),
    ],
)
def test_ends_of_commands(fields: dict[str, Any], want: TerminalResult, manager: SandboxManager) -> None:
    script = answer_with(manager, httpx.Response(200, json={"seq": 1, **fields}))
    assert manager.execute_terminal("s1", "x", timeout=5) == want
    assert json.loads(script.requests[0].content)["timeout_seconds"] == 5


def test_long_texts_are_cut() -> None:
    assert answers.truncated("abc", 3) == answers.truncated("abc", 0) == "abc"
    assert answers.truncated("abcd", 3) == "abc\n\n... [truncated — 4 chars total, showing first 3]"
    assert answers.truncated("abc", 3, 5) == "abc\n\n... [truncated — 8 chars total, showing first 3]"


def test_limits_of_memory() -> None:
    assert [answers.memory_bytes(m) for m in ("2048m", "2g", "512MB", "64k", "7", 9)] == [
        2 << 30, 2 << 30, 512 << 20, 64 << 10, 7, 9,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="memory limit"):
        answers.memory_bytes("much")


@pytest.mark.parametrize(
    ("reason", "want", "code"),
    [
        ("CONTAINER_DIED: OOM-killed: out of memory: the host killed it", "OOM-killed — the code exhausted", 137),
        ("CONTAINER_DIED: it was killed by SIGKILL", "signal 9 (SIGKILL)", 137),
        ("CONTAINER_DIED: it was killed by SIGSEGV", "segmentation fault (SIGSEGV)", 139),
        ("CONTAINER_DIED: it was killed by SIGTERM", "terminated by SIGTERM", 143),
        ("CONTAINER_DIED: its init process exited with code 3", "exited with status 3 (container status", 3),
        ("CONTAINER_DIED: it was removed from the host behind it", "container no longer exists (removed", None),
        ("CONTAINER_DIED: it was stopped; its files are kept", "it was stopped", None),
        ("", "container status: stopped", None),
    ],
)
def test_a_session_that_died_says_why(reason: str, want: str, code: int | None, manager: SandboxManager) -> None:
    stopped = httpx.Response(200, json={"id": "s1", "status": "stopped", "reason": reason})
    answer_with(manager, problem(409, "wrong_state"), stopped)
    with pytest.raises(ContainerDiedError) as caught:
        manager.execute_code("s1", "1")
    assert want in caught.value.reason
    assert (caught.value.session_id, caught.value.exit_code) == ("s1", code)
    assert str(caught.value).startswith("Container for session 's1' died: ")
    assert manager.sessions["s1"].status == "dead"


def test_deaths_under_a_call(manager: SandboxManager) -> None:
    running = httpx.Response(200, json={"id": "s1", "status": "running"})
    ended = {**DONE, "status": "error", "success": False}
    answer_with(manager, httpx.Response(200, json={**ended, "reason": "container_died"}), problem(404, "not_found"))
    with pytest.raises(ContainerDiedError, match="removed externally"):
        manager.execute_code("s1", "1")
    answer_with(manager, httpx.Response(200, json={**ended, "reason": "oom"}), running)
    with pytest.raises(ContainerDiedError, match="OOM-killed"):
        manager.execute_code("s1", "1")
    assert manager.sessions["s1"].status == "running"
    answer_with(manager, httpx.Response(200, json={**ended, "reason": "oom", "exit_code": 137}), running)
    assert manager.execute_terminal("s1", "x").exit_code == 137
    answer_with(manager, problem(404, "not_found"), running)
    with pytest.raises(RuntimeError, match="this is not_found"):
        manager.export_files("s1", [{"source": "a"}])


def test_sessions_that_may_not_be_used(manager: SandboxManager) -> None:
    answer_with(
        manager,
        httpx.Response(200, json={"id": "x", "status": "running", "thread": "other"}),
        httpx.Response(200, json={"id": "x", "status": "running"}),
        problem(404, "not_found"),
        problem(400, "invalid_request"),
        problem(404, "not_found"),
    )
    with pytest.raises(PermissionError, match="belongs to another conversation"):
        manager.execute_code("x", "1")
    for unknown in ("x", "y", "../y"):
        with pytest.raises(ValueError, match=f"Session '{unknown}' not found"):
            manager.execute_terminal(unknown, "true")
    assert manager.stop_session("y") is False


def test_a_session_of_the_same_conversation_is_found(manager: SandboxManager) -> None:
    found = {"id": "x", "status": "running", "thread": "t", "runtime": "r", "created_at": "2026-01-02T03:04:05Z"}
    script = answer_with(
        manager, httpx.Response(200, json=found), httpx.Response(200, json={**DONE, "result": {"text/plain": "2"}})
    )
    assert manager.execute_code("x", "1 + 1").result == {"text/plain": "2"}
    assert json.loads(script.requests[1].content)["language"] == "r"
    assert manager.sessions["x"].created_at.year == 2026
    manager.cleanup_all()  # it is another manager's


def test_creates_that_fail_leave_nothing(manager: SandboxManager) -> None:
    with pytest.raises(ValueError, match=r"Runtime 'ruby' not supported. Use: \['python', 'node', 'r'\]"):
        manager.create_session("ruby")
    with pytest.raises(ValueError, match="Invalid package name: 'foo; rm -rf /'"):
        manager.create_session(dependencies={"foo; rm -rf /": ""})
    made = httpx.Response(201, json={"id": "n", "status": "running"})
    cap = "Maximum sessions per conversation (3) reached. Stop an existing session first."
    script = answer_with(
        manager,
        problem(409, "conflict"),  # the id was taken
        made,
        problem(504, "timeout", message="it did not come up"),
        httpx.Response(204),
        made,
        httpx.Response(202, json={"seq": 1, "status": "running"}),
        httpx.Response(200, json={"seq": 1, "status": "done", "exit_code": 1, "reason": "exited", "stderr": "no a"}),
        httpx.Response(204),
        problem(503, "sandbox_capacity", message=cap, hint="wait"),
    )
    with pytest.raises(TimeoutError, match="it did not come up"):
        manager.create_session(mem_limit="1g", cpu_quota=50_000, network=False)
    body = json.loads(script.requests[1].content)
    assert body["limits"] == {"memory_bytes": 1 << 30, "cpus": 0.5}
    assert (body["network"]["mode"], body["thread"], body["runtime"]) == ("none", "t", "python")
    assert "idle_timeout_seconds" not in body
    with pytest.raises(RuntimeError, match=r"(?s)Installing a failed.*no a"):
        manager.create_session(dependencies={"a": ""})
    with pytest.raises(RuntimeError) as caught:
        manager.create_session()
    assert str(caught.value) == cap
    assert list(manager.sessions) == ["s1"]
    assert script.answers == []


def test_sessions_of_one_manager_are_bounded() -> None:
    with SandboxManager("http://daemon", max_sessions=1) as manager:
        script = answer_with(
            manager,
            httpx.Response(201, json={"id": "n", "status": "running"}),
            httpx.Response(201, json={"name": "python"}),
            httpx.Response(204),
        )
        with pytest.raises(RuntimeError, match=r"Maximum number of sessions \(1\) reached. Stop an existing"):
            manager.create_session()
        manager.sessions["s1"].status = "dead"
        info = manager.create_session()
        assert (info.session_id, info.container_name, info.status, info.thread_id) == (
            "n", "sandbox-n", "running", None,
        )  # fmt: skip
        body = json.loads(script.requests[0].content)
        assert (body["idle_policy"], body["idle_timeout_seconds"], body["max_lifetime_seconds"]) == (
            "destroy", 1800, 7200,
        )  # fmt: skip
        assert len(body["id"]) == 8


def test_local_files_are_only_read_where_that_is_allowed(tmp_path: Path, manager: SandboxManager) -> None:
    allowed, secret = tmp_path / "allowed", tmp_path / "secret"
    allowed.mkdir()
    secret.write_text("s")
    (allowed / "link").symlink_to(secret)
    denied = {"source": "x", "destination": "", "success": False, "error": "Import from 'x' denied: configure it"}
    script = answer_with(manager, *(httpx.Response(200, json={"files": [denied]}) for _ in range(3)))
    manager._allowed = [allowed]
    sources = [str(secret), str(allowed / "link"), f"{allowed}/../secret", "", str(allowed / "missing")]
    result = manager.import_files("s1", [{"source": s} for s in sources])
    assert not result.success
    assert [f.success for f in result.files] == [False] * 5
    assert all("denied — path is outside allowed directories" in f.error for f in result.files[:3])
    assert result.files[3].error == "source or (session_id, path) is required"
    assert result.files[4].error == f"File or directory not found: {allowed}/missing"
    # The daemon may have them, as uploads of the conversation: it is asked, and gets names only.
    assert [json.loads(r.content)["files"] for r in script.requests] == [[{"source": s}] for s in sources[:3]]


def test_what_the_daemon_imports(manager: SandboxManager) -> None:
    done = {"source": "inline", "destination": "/workspace/a", "success": True, "size": 2}
    script = answer_with(manager, *(httpx.Response(200, json={"success": True, "files": [done]}) for _ in range(3)))
    result = manager.import_files(
        "s1",
        [
            {"file_content": "hi", "destination": "a"},
            {"file_content": "aGk=", "encoding": "base64", "destination": "a"},
            {"file_content": "?", "encoding": "base64", "destination": "a"},
            {"session_id": "s2", "path": "/workspace/b"},
        ],
    )
    assert [f.success for f in result.files] == [True, True, False, True]
    sent = [json.loads(r.content)["files"] for r in script.requests]
    assert sent == [
        [{"destination": "a", "file_content": "hi", "encoding": "text"}],
        [{"destination": "a", "file_content": "aGk=", "encoding": "base64"}],
        [{"session_id": "s2", "path": "/workspace/b"}],
    ]


def test_exports_are_asked_for(manager: SandboxManager) -> None:
    listed = {"files": [{"session_id": "s1", "path": "/workspace/d", "success": True}]}
    answer_with(manager, *(httpx.Response(200, json=listed) for _ in range(3)))
    assert manager.is_file_exported("t", "s1", "d/below")
    assert not manager.is_file_exported("t", "s1", "d/../other")
    assert not manager.is_file_exported("another", "s1", "d")
    with pytest.raises(ValueError, match="File not exported: s1:x"):
        list(manager.stream_exported_file("t", "s1", "x"))


def test_everything_public_is_documented() -> None:
    for name in sandbox_agent.__all__:
        value = getattr(sandbox_agent, name)
        assert value.__doc__
        for member in vars(value) if isinstance(value, type) else ():
            if not member.startswith("_") and callable(getattr(value, member)):
                assert getattr(value, member).__doc__, f"{name}.{member}"
