"""Session shells in a real sandbox."""

from __future__ import annotations

import asyncio

import pytest

from conftest import TOKEN, Daemon
from cubby import AsyncClient, ConflictError, ExecFailedError, Output, Sandbox, WrongStateError


def test_state_stays(box: Sandbox) -> None:
    shell = box.session("state")
    shell.run("cd /tmp; export A=1; greet() { echo greetings $A; }", check=True)
    assert shell.run("greet; pwd").stdout == "greetings 1\n/tmp\n"
    assert shell.run("echo $B; pwd", env={"B": "2"}, cwd="/").stdout == "2\n/\n"
    assert shell.run("echo .$B.; pwd").stdout == "..\n/tmp\n"
    with pytest.raises(ExecFailedError):
        shell.run("cd /nowhere", check=True)
    assert shell.run("pwd").stdout == "/tmp\n"
    assert shell.run("sleep 600", timeout=0.5).reason == "timeout"
    assert shell.run("greet >&2").stderr == "greetings 1\n"
    assert shell.run("cat", stdin="in").stdout == "in"
    assert box.exec("pwd").stdout == "/workspace\n"
    assert box.session("other").run("echo .$A.").stdout == "..\n"


def test_commands_wait_for_each_other(box: Sandbox) -> None:
    shell = box.session("queue")
    first = shell.start("read line; echo first $line; cd /", stdin=True)
    second = shell.start("echo second in $PWD")
    assert second.get().status == "pending"
    info = next(s for s in box.sessions() if s.name == "queue")
    assert info.pending + (info.running_seq is not None) == 2
    with pytest.raises((ConflictError, WrongStateError)):
        shell.close()
    first.write_stdin("line\n")
    assert b"".join(c.data for c in second.stream() if isinstance(c, Output)) == b"second in /\n"
    assert first.wait().session == "queue"
    assert "queue" in [s.name for s in box.sessions()]
    shell.close()
    assert "queue" not in [s.name for s in box.sessions()]
    assert shell.run("pwd").stdout == "/workspace\n"


def test_async_sessions(daemon: Daemon, box: Sandbox) -> None:
    async def scenario() -> None:
        async with AsyncClient(daemon.url, TOKEN) as client:
            shell = (await client.sandboxes.get(box.id)).session("async")
            await asyncio.gather(*(shell.run(f"N=${{N}}{i}") for i in range(5)))
            assert sorted((await shell.run("echo $N")).stdout.strip()) == list("01234")

    asyncio.run(scenario())
