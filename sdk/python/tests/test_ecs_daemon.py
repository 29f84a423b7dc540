"""The client of ecs-sandbox, against a real daemon."""

from __future__ import annotations

import asyncio
import base64

import pytest

from conftest import TOKEN, Daemon
from cubby.compat.ecs_sandbox import Event, SandboxClient, SandboxError, Session


def test_a_session_from_create_to_destroy(daemon: Daemon) -> None:
    async def scenario() -> None:
        async with SandboxClient(daemon.url, TOKEN, timeout=60.0) as client:
            session = await client.create_session("sdk-ecs", ttl_seconds=900, metadata={"who": "test"})
            assert isinstance(session, Session)
            assert (session.id, session.status) == ("sdk-ecs", "active")
            assert session.expires_at is not None
            assert session.expires_at - session.created_at == 900_000
            try:
                await use(client)
            finally:
                assert await client.destroy_session("sdk-ecs") == {"status": "destroyed"}
            with pytest.raises(SandboxError) as caught:
                await client.destroy_session("sdk-ecs")
            assert (caught.value.status_code, caught.value.error) == (404, "session_not_found")

    asyncio.run(scenario())


async def use(client: SandboxClient) -> None:
    with pytest.raises(SandboxError) as caught:
        await client.create_session("sdk-ecs")
    assert caught.value.status_code == 409

    first = await client.exec("sdk-ecs", "sleep 0.3; echo $MY_VAR; cd /tmp", env={"MY_VAR": "value"})
    assert first.status == "pending"
    second = await client.exec("sdk-ecs", "pwd; exit 3")
    event = await client.wait_for_event("sdk-ecs", second.seq, poll_interval=0.05, timeout=60)
    assert event.result is not None
    assert (event.result["stdout"], event.result["exit_code"]) == ("/tmp\n", 3)
    before = await client.get_event("sdk-ecs", first.seq)
    assert isinstance(before, Event)
    assert (before.status, before.kind, before.payload["cmd"]) == (
        "done",
        "exec_submit",
        "sleep 0.3; echo $MY_VAR; cd /tmp",
    )
    assert before.result is not None
    assert before.result["stdout"] == "value\n"
    assert before.completed_at is not None
    assert event.completed_at is not None
    assert before.completed_at <= event.completed_at

    done = await client.exec("sdk-ecs", "echo hello world", sync=True)
    assert done.status == "done"
    assert done.result is not None
    assert (done.result["stdout"], done.result["stderr"], done.result["exit_code"]) == ("hello world\n", "", 0)
    assert [e.seq for e in await client.get_history("sdk-ecs")] == [first.seq, second.seq, done.seq]
    assert [e.seq for e in await client.get_history("sdk-ecs", limit=1, after_seq=first.seq)] == [second.seq]

    slow = await client.exec("sdk-ecs", "sleep 600")
    with pytest.raises(TimeoutError):
        await client.wait_for_event("sdk-ecs", slow.seq, poll_interval=0.01, timeout=0.05)

    text = base64.b64encode(b'print("hello")').decode()
    await client.write_file("sdk-ecs", "/workspace/a/script.py", text)
    read = await client.read_file("sdk-ecs", "/workspace/a/script.py")
    assert (read["content_b64"], read["size_bytes"]) == (text, 14)
    listed = await client.list_files("sdk-ecs", "/workspace/a")
    assert listed["entries"] == [{"name": "script.py", "type": "file", "size_bytes": 14}]
    with pytest.raises(SandboxError) as caught:
        await client.read_file("sdk-ecs", "/workspace/missing")
    assert caught.value.status_code == 404


def test_a_wrong_secret(daemon: Daemon) -> None:
    async def scenario() -> None:
        async with SandboxClient(daemon.url, "wrong") as client:
            with pytest.raises(SandboxError) as caught:
                await client.create_session("sdk-ecs-nobody")
            assert caught.value.status_code == 401

    asyncio.run(scenario())
