"""Commands, in real sandboxes."""

from __future__ import annotations

import asyncio
import signal

import pytest

from conftest import TOKEN, Daemon
from cubby import (
    AsyncClient,
    Client,
    ExecFailedError,
    Exit,
    InvalidRequestError,
    Output,
    RequestTimeoutError,
    Sandbox,
    WindowSize,
    WrongStateError,
)


def test_exec_runs_shell_and_argv(box: Sandbox) -> None:
    shell = box.exec("echo out; echo err >&2; exit 3")
    assert (shell.stdout, shell.stderr, shell.exit_code, shell.reason) == ("out\n", "err\n", 3, "exited")
    assert shell.status == "done"
    assert shell.finished
    assert not shell.ok
    argv = box.exec(["printf", "%s", "$HOME; a b"])
    assert argv.stdout == "$HOME; a b"
    assert argv.ok
    assert argv.check() is argv


def test_exec_takes_env_cwd_user_and_stdin(box: Sandbox) -> None:
    result = box.exec("echo $GREETING; pwd; id -un; cat", env={"GREETING": "hé"}, cwd="/tmp", user="root", stdin="in\n")
    assert result.stdout == "hé\n/tmp\nroot\nin\n"


def test_exec_keeps_bytes_that_are_not_text(box: Sandbox) -> None:
    result = box.exec(["printf", r"\377\000a"])
    assert result.stdout_bytes == b"\xff\x00a"
    assert result.stdout == "\ufffd\x00a"


def test_exec_takes_more_input_than_a_command_reads(box: Sandbox) -> None:
    assert box.exec(["head", "-c", "3"], stdin=b"abc" * 400_000).stdout == "abc"
    assert box.exec(["wc", "-c"], stdin=b"x" * 700_000).stdout.strip() == "700000"


def test_exec_check_raises_with_the_result(box: Sandbox) -> None:
    with pytest.raises(ExecFailedError, match="exit code 7") as caught:
        box.exec("echo why >&2; exit 7", check=True)
    assert caught.value.result.stderr == "why\n"


def test_exec_timeout_kills_the_command(box: Sandbox) -> None:
    result = box.exec("sleep 600", timeout=0.5)
    assert (result.reason, result.status) == ("timeout", "error")


def test_exec_of_a_missing_program_says_so(box: Sandbox) -> None:
    result = box.exec(["no-such-program"])
    assert (result.reason, result.exit_code) == ("not_started", 127)
    with pytest.raises(ExecFailedError):
        result.check()


def test_exec_that_is_not_waited_for_goes_on(box: Sandbox) -> None:
    for wait in (False, 0.05):
        left = box.exec("sleep 600", wait=wait, check=True)
        assert not left.finished
        process = box.process(left.seq)
        with pytest.raises(RequestTimeoutError):
            process.wait(0.05)
        process.cancel()
        assert process.wait(60).reason == "killed"
    assert box.exec("echo done", wait=60).stdout == "done\n"


def test_exec_longer_than_the_first_request(box: Sandbox) -> None:
    assert box.exec("sleep 2.5; echo late").stdout == "late\n"


def test_large_output_is_counted(box: Sandbox) -> None:
    result = box.exec("head -c 300000 /dev/zero", max_output_bytes=1000)
    assert len(result.stdout_bytes) == 1000
    assert result.truncated is not None
    assert result.truncated.stdout == 299000
    assert len(box.process(result.seq).output()) == 300000
    assert len(box.process(result.seq).output(299_999)) == 1


def test_interactive_process(box: Sandbox) -> None:
    process = box.start_exec("while read line; do echo got $line; done; echo end", stdin=True)
    process.write_stdin("one\n")
    with process.stream() as stream:
        first = next(stream)
        assert isinstance(first, Output)
        assert (first.stream, first.text, first.offset, first.next) == ("stdout", "got one\n", 0, 8)
        # Another handle finds out how far the input has come.
        box.process(process.seq).write_stdin("two\n", eof=True)
        rest = list(stream)
    assert b"".join(c.data for c in rest if isinstance(c, Output)) == b"got two\nend\n"
    assert isinstance(rest[-1], Exit)
    assert stream.result is not None
    assert stream.result.exit_code == 0
    assert stream.offset == 20
    assert b"".join(c.data for c in process.stream(12) if isinstance(c, Output)) == b"two\nend\n"
    process.close_stdin()  # harmless after the end
    with pytest.raises(WrongStateError):
        process.write_stdin("three\n")


def test_signals(box: Sandbox) -> None:
    for sent in ("INT", "SIGINT", signal.SIGINT):
        process = box.start_exec("trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done")
        with process.stream() as stream:
            next(stream)
            process.signal(sent)
            assert [c.data for c in stream if isinstance(c, Output)] == [b"caught\n"]
        assert process.wait().exit_code == 9


def test_terminal(box: Sandbox) -> None:
    process = box.start_exec("stty size; read x; stty size", stdin=True, pty=WindowSize(100, 30))
    stream = process.stream()
    first = next(stream)
    assert isinstance(first, Output)
    assert first.text == "30 100\r\n"
    process.resize(120, 40)
    process.write_stdin("\n")
    assert b"40 120" in b"".join(c.data for c in stream if isinstance(c, Output))


def test_callbacks_hear_a_command_while_it_runs(box: Sandbox) -> None:
    heard: list[str] = []

    def answer(text: str) -> None:
        heard.append(text)
        box.files.write("heard", text)  # without it the command does not end

    cmd = "echo one; until [ -e heard ]; do sleep 0.05; done; echo two >&2; exit 3"
    result = box.exec(cmd, on_stdout=answer, on_stderr=heard.append)
    assert heard == ["one\n", "two\n"]
    assert (result.stdout, result.stderr, result.exit_code) == ("one\n", "two\n", 3)


def test_a_canceled_call_kills_only_where_that_was_asked(daemon: Daemon, box: Sandbox) -> None:
    async def scenario() -> None:
        async with AsyncClient(daemon.url, TOKEN) as client:
            box_ = await client.sandboxes.get(box.id)
            for kill in (True, False):
                started = asyncio.Event()
                task = asyncio.create_task(
                    box_.exec("echo $$; sleep 600", on_stdout=lambda _, s=started: s.set(), kill_on_cancel=kill)
                )
                await started.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                [left] = [e for e in await box_.execs() if e.cmd == "echo $$; sleep 600" and not e.finished] or [None]
                assert (left is None) == kill
                if left is not None:
                    await box_.process(left.seq).cancel()

    asyncio.run(scenario())


def test_list_of_commands(box: Sandbox) -> None:
    seq = box.exec("echo listed").seq
    assert [e.seq for e in box.execs(after_seq=seq - 1, limit=1)] == [seq]
    assert box.process(seq).get().cmd == "echo listed"


def test_bad_requests_are_told(box: Sandbox) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        box.exec([])
    assert caught.value.status == 400
    assert caught.value.request_id


def test_gvisor(client: Client) -> None:
    with client.sandboxes.create(isolation="gvisor") as box:
        assert "gVisor" in box.exec("dmesg").stdout
        assert box.exec("echo $((6*7))").stdout == "42\n"


def test_async(daemon: Daemon) -> None:
    async def scenario() -> None:
        async with (
            AsyncClient(daemon.url, TOKEN) as client,
            await client.sandboxes.create(isolation="container") as box,
        ):
            results = await asyncio.gather(*(box.exec(f"echo {i}") for i in range(5)))
            assert sorted(r.stdout for r in results) == [f"{i}\n" for i in range(5)]
            process = await box.start_exec("cat", stdin=True)
            await process.write_stdin("hello", eof=True)
            chunks = [c async for c in process.stream()]
            assert b"".join(c.data for c in chunks if isinstance(c, Output)) == b"hello"
            assert (await process.wait()).ok
            # A task that is canceled leaves the command alone, and the client usable.
            task = asyncio.create_task(box.exec("echo started > mark; sleep 600"))
            async with box.files.watch() as changes:
                async for _ in changes:
                    if await box.files.exists("mark"):
                        break
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not (await box.execs())[-1].finished
            names = [b.id async for b in client.sandboxes.list()]
            assert box.id in names
        assert (await _status_after(daemon, box.id)) == "destroyed"

    asyncio.run(scenario())


async def _status_after(daemon: Daemon, box_id: str) -> str:
    async with AsyncClient(daemon.url, TOKEN) as client:
        found = {b.id: b.status async for b in client.sandboxes.list(status="destroyed")}
        return found[box_id]
