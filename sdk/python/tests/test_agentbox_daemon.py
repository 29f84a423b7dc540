"""The documented snippets of agentbox, in Python, against a real daemon."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from conftest import TOKEN, Daemon
from cubby import Client, UnauthorizedError
from cubby.compat.agentbox import AsyncSandbox, Sandbox, StreamEvent

DEFAULTS = [
    "pypi.org",
    "files.pythonhosted.org",
    "registry.npmjs.org",
    "github.com",
    "raw.githubusercontent.com",
    "objects.githubusercontent.com",
    "crates.io",
    "static.crates.io",
    "index.crates.io",
]


@pytest.fixture(scope="module")
def sandbox(daemon: Daemon) -> Iterator[Sandbox]:
    """A session that tests share."""
    with Sandbox(daemon.url, TOKEN) as made:
        made.create()
        yield made


def test_the_readme(daemon: Daemon, client: Client) -> None:
    sandbox = Sandbox(daemon.url, TOKEN)
    session = sandbox.create()
    assert session.session_id == sandbox.session_id
    assert session.container_id
    assert session.status == "running"
    assert 0 < session.created_at <= session.last_activity
    assert session.allowed_hosts == sandbox.allowed_hosts == DEFAULTS
    assert sandbox.network_enabled

    assert sandbox.exec("python3 -c 'print(1+1)'", timeout=60).stdout == "2\n"
    version = sandbox.exec("python3 --version", timeout=60)
    assert (version.exit_code, version.timed_out) == (0, False)
    assert version.stdout.startswith("Python 3.")
    sandbox.write_file("test.py", "print('Hello from gRPC!')")
    assert sandbox.read_file("test.py") == "print('Hello from gRPC!')"
    assert sandbox.exec("python3 test.py", timeout=60).stdout == "Hello from gRPC!\n"
    assert sandbox.exec("uname -r").exit_code == 0
    assert sandbox.run_python("print(1 + 1)", timeout=60).stdout == "2\n"
    assert sandbox.exec("ls").stdout == "test.py\n"  # the program of run_python is gone
    labeled = [b.id for b in client.sandboxes.list(labels={"agentbox": "true"})]
    assert session.session_id in labeled

    assert sandbox.destroy() is True
    assert sandbox.destroy() is False
    assert sandbox.session_id is None
    sandbox.close()


def test_pip_install(sandbox: Sandbox, daemon: Daemon) -> None:
    done = sandbox.pip_install(["demo==1.0"])
    assert done.exit_code == 0, done.stderr
    assert sandbox.run_python("import demo; print(demo.x)", timeout=60).stdout == "1\n"
    assert sandbox.pip_install(["no-such-package"]).exit_code == 1
    refused = sandbox.pip_install(["a; rm -rf /"])
    assert (refused.exit_code, refused.stderr) == (-1, "Invalid package specifier: a; rm -rf /")
    with Sandbox(daemon.url, TOKEN) as other:
        other.create(allowed_hosts=["example.com", "pypi.org"])
        with pytest.raises(RuntimeError, match=r"files\.pythonhosted\.org"):
            other.pip_install(["demo"])


def test_hosts(daemon: Daemon) -> None:
    for hosts, expected, enabled in (
        (["example.com"], ["example.com"], True),
        ([], DEFAULTS, True),
        (["localhost"], ["localhost"], False),
    ):
        with Sandbox(daemon.url, TOKEN) as sandbox:
            assert sandbox.create(allowed_hosts=hosts).allowed_hosts == expected
            assert sandbox.network_enabled is enabled
            if not enabled:
                asked = sandbox.exec("curl -sS -o /dev/null -w '%{http_connect}' https://pypi.org", timeout=60)
                assert asked.stdout == "403", asked


def test_exec(sandbox: Sandbox) -> None:
    assert sandbox.exec("echo hello").stdout == "hello\n"
    failing = sandbox.exec("echo error >&2")
    assert (failing.exit_code, failing.stdout, failing.stderr) == (0, "", "error\n")
    assert sandbox.exec("exit 42").exit_code == 42
    assert sandbox.exec("pwd", workdir="/tmp").stdout == "/tmp\n"
    assert sandbox.exec("touch /workspace/test && echo ok").stdout == "ok\n"
    late = sandbox.exec("echo begun; sleep 1000", timeout=1)
    assert (late.exit_code, late.stdout, late.timed_out) == (-1, "begun\n", True)


def test_files(sandbox: Sandbox) -> None:
    sandbox.write_file("lines", "line1\n")
    sandbox.write_file("lines", "line2\n", "a")
    assert sandbox.read_file("lines") == "line1\nline2\n"
    sandbox.write_file("empty", "")
    assert sandbox.read_file("empty") == ""
    with pytest.raises(RuntimeError, match="Failed to read file: "):
        sandbox.read_file("none")
    for outside in ("/etc/passwd", "/workspace-evil/a", "../etc/passwd"):
        with pytest.raises(RuntimeError, match="Failed to write file: "):
            sandbox.write_file(outside, "x")


# Ends by itself when nobody lets it go on.
WAITING = "echo one; for i in $(seq 300); do [ -e {0} ] && echo two && exit 3; sleep 0.1; done; echo nobody came"


def test_a_stream_is_live(sandbox: Sandbox) -> None:
    name = uuid.uuid4().hex
    with sandbox.exec_stream(WAITING.format(name)) as events:
        assert next(events) == StreamEvent("stdout", "one\n")
        sandbox.write_file(name, "")
        assert list(events) == [StreamEvent("stdout", "two\n"), StreamEvent("exit", "", 3)]


def test_streams(sandbox: Sandbox) -> None:
    events = list(sandbox.exec_stream("printf é; echo bad >&2; pwd", "/tmp"))
    texts = {name: "".join(e.data for e in events if e.type == name) for name in ("stdout", "stderr")}
    assert texts == {"stdout": "é/tmp\n", "stderr": "bad\n"}
    assert events[-1] == StreamEvent("exit", "", 0)


def test_leaving_a_stream_ends_the_command(sandbox: Sandbox, client: Client) -> None:
    with sandbox.exec_stream("echo left; sleep 1000") as events:
        assert next(events).data == "left\n"
    assert sandbox.session_id is not None
    box = client.sandboxes.get(sandbox.session_id)
    seq = next(e.seq for e in box.execs(limit=1000) if e.cmd == "echo left; sleep 1000")
    assert box.process(seq).wait(120).reason == "killed"


def test_unknown_sessions(daemon: Daemon, client: Client) -> None:
    with Sandbox(daemon.url, TOKEN) as sandbox:
        session = sandbox.create(str(uuid.uuid4()))
        with Sandbox(daemon.url, TOKEN) as same:
            assert same.create(session.session_id).container_id == session.container_id
        # The other one has destroyed it.
        gone = sandbox.exec("true")
        assert gone.exit_code == -1
        assert gone.stderr.startswith("Session not found: destroyed ")
        (event,) = sandbox.exec_stream("true")
        assert event.type == "error"
        assert event.data.startswith("Session not found: destroyed ")
        for call in (lambda: sandbox.write_file("a", "b"), lambda: sandbox.read_file("a")):
            with pytest.raises(RuntimeError, match="Session not found"):
                call()
        assert sandbox.destroy() is False


def test_a_wrong_token(daemon: Daemon) -> None:
    with Sandbox(daemon.url, "wrong") as sandbox, pytest.raises(UnauthorizedError):
        sandbox.create()


def test_asyncio(daemon: Daemon) -> None:
    async def run() -> None:
        async with AsyncSandbox(daemon.url, TOKEN) as sandbox:
            await sandbox.create()
            results = await asyncio.gather(*(sandbox.run_python(f"print({i})", timeout=60) for i in range(3)))
            assert [r.stdout for r in results] == ["0\n", "1\n", "2\n"]
            await sandbox.write_file("a", "text")
            assert await sandbox.read_file("a") == "text"
            name = uuid.uuid4().hex
            async with sandbox.exec_stream(WAITING.format(name)) as events:
                assert (await anext(events)).data == "one\n"
                await sandbox.write_file(name, "")
                assert [e async for e in events][-1] == StreamEvent("exit", "", 3)
            assert await sandbox.destroy() is True

    asyncio.run(asyncio.wait_for(run(), 300))
