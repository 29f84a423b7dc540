"""The documented snippets of sandbox-agent, against a real daemon, with the import renamed."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from conftest import TOKEN, Daemon
from cubby import Client
from cubby.compat.sandbox_agent import ContainerDiedError, SandboxManager

Made = Callable[..., SandboxManager]


@pytest.fixture
def managers(daemon: Daemon) -> Iterator[Made]:
    made: list[SandboxManager] = []

    def make(**options: object) -> SandboxManager:
        options = {"isolation": "container", "execution_timeout": 120, **options}
        made.append(SandboxManager(daemon.url, TOKEN, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for manager in made:
        manager.close()


@pytest.fixture(scope="module")
def python(daemon: Daemon) -> Iterator[tuple[SandboxManager, str]]:
    """A manager with a session of Python in gVisor, which tests share."""
    with SandboxManager(daemon.url, TOKEN, isolation="gvisor", execution_timeout=120) as manager:
        yield manager, manager.create_session().session_id


def test_the_readme(managers: Made) -> None:
    manager = managers(isolation="gvisor")
    info = manager.create_session(
        runtime="python",
        dependencies={"pandas": "2.2.3", "matplotlib": ""},
    )
    assert info.status == "running"
    assert len(info.session_id) == 8
    assert (info.runtime, info.dependencies) == ("python", {"pandas": "2.2.3", "matplotlib": ""})
    assert info.session_id in manager.sessions
    sid = info.session_id

    r1 = manager.execute_code(
        sid,
        """
import pandas as pd
df = pd.DataFrame({'x': [1, 2, 3], 'y': [4, 5, 6]})
print(df.describe())
""",
    )
    assert r1.success
    assert "mean" in r1.stdout

    r2 = manager.execute_code(sid, "df.shape")
    assert r2.result == {"text/plain": "(3, 2)"}

    manager.execute_code(sid, "df.to_csv('/workspace/output.csv', index=False)")
    export = manager.export_files(sid, [{"source": "output.csv"}])
    assert export.success
    assert (export.files[0].session_id, export.files[0].path) == (sid, "/workspace/output.csv")
    assert export.files[0].success
    assert b"".join(manager.stream_exported_file(None, sid, "output.csv")) == b"x,y\n1,4\n2,5\n3,6\n"

    assert manager.stop_session(sid) is True
    assert manager.stop_session(sid) is False
    assert manager.stop_session("nonexist") is False
    with pytest.raises(ValueError, match=f"Session '{sid}' not found"):
        manager.execute_code(sid, "1")


def test_exports(python: tuple[SandboxManager, str]) -> None:
    manager, sid = python
    result = manager.export_files(sid, [{"source": "report.pdf"}])
    assert not result.success
    assert result.files[0].error == "File or directory not found in container"

    manager.execute_terminal(
        sid, "mkdir -p results/sub logs; echo a > results/a; echo b > results/sub/b; echo d > data.csv"
    )
    result = manager.export_files(sid, [{"source": "results/"}])
    assert result.success
    assert result.files[0].path == "/workspace/results"

    result = manager.export_files(
        sid, [{"source": "data.csv"}, {"source": "chart.png"}, {"source": "/workspace/logs/"}]
    )
    assert [(f.path, f.success) for f in result.files] == [
        ("/workspace/data.csv", True),
        ("/workspace/chart.png", False),
        ("/workspace/logs", True),
    ]
    result = manager.export_files(sid, [{"source": ""}, {"source": "../etc/passwd"}])
    assert result.files[0].error == "source is required"
    assert result.files[1].error.startswith("Path outside /workspace")

    assert manager.is_file_exported(sid, sid, "/workspace/results/sub/b")
    assert manager.is_exported_path_file(None, sid, "results/sub/b")
    assert not manager.is_exported_path_file(None, sid, "results")
    assert not manager.is_exported_path_file(None, sid, "results/none")
    assert not manager.is_file_exported(sid, sid, "chart.png")
    archive = zipfile.ZipFile(io.BytesIO(b"".join(manager.stream_exported_file(None, sid, "results"))))
    assert {"results/a", "results/sub/b"} <= set(archive.namelist())
    with pytest.raises(ValueError, match="File not exported"):
        next(manager.stream_exported_file(None, sid, "/workspace/secret"))


def test_files_go_from_python_to_r(managers: Made) -> None:
    manager = managers()
    sid_a = manager.create_session(runtime="python", dependencies={"pandas": ""}).session_id
    manager.execute_code(
        sid_a,
        """
import pandas as pd
df = pd.DataFrame({'x': [1,2,3], 'y': [4,5,6]})
df.to_csv('/workspace/data.csv', index=False)
""",
    )
    export = manager.export_files(sid_a, [{"source": "data.csv"}])
    path = export.files[0].path

    sid_b = manager.create_session(runtime="r", dependencies={"readr": ""}).session_id
    imported = manager.import_files(sid_b, [{"session_id": sid_a, "path": path, "destination": "data.csv"}])
    assert imported.success
    assert imported.files[0].destination == "/workspace/data.csv"
    got = manager.execute_code(sid_b, 'df <- readr::read_csv("/workspace/data.csv"); summary(df)')
    assert got.success, got
    assert got.result is not None
    assert "Median" in got.result["text/plain"]

    refused = manager.import_files(
        sid_b, [{"session_id": sid_a, "path": "/workspace/other"}, {"session_id": "abc123", "path": "x"}]
    )
    assert "File not exported from source session" in refused.files[0].error
    assert refused.files[1].error == "Source session 'abc123' not found"


def test_imports_from_this_machine(managers: Made, tmp_path: Path) -> None:
    home = tmp_path / "home/user"
    (home / "project/sub").mkdir(parents=True)
    (home / "data.csv").write_text("a\n1\n")
    (home / "project/sub/file").write_text("hello")
    (home / "project/link").symlink_to("/etc/passwd")
    entries = [
        {"source": f"{home}/data.csv", "destination": "data.csv"},
        {"source": f"{home}/project/", "destination": "project/"},
    ]
    manager = managers(import_allowed_dirs=[home])
    sid = manager.create_session().session_id
    result = manager.import_files(sid, entries)
    assert result.success, result
    assert [(f.destination, f.size) for f in result.files] == [("/workspace/data.csv", 4), ("/workspace/project", 5)]
    got = manager.execute_terminal(sid, "cat data.csv project/sub/file; readlink project/link")
    assert got.stdout == "a\n1\nhello/etc/passwd\n"
    assert manager.import_files(sid, [{"source": str(home / "data.csv")}]).files[0].destination == "/workspace/data.csv"

    inline = manager.import_files(sid, [{"file_content": "aGk=", "encoding": "base64", "destination": "inline"}])
    assert inline.success
    assert manager.execute_terminal(sid, "cat inline").stdout == "hi"

    denied = managers()
    denied.sessions, denied._boxes = manager.sessions, manager._boxes
    result = denied.import_files(sid, entries)
    assert not result.success
    assert all("denied — path is outside allowed directories" in f.error for f in result.files)


def test_node_awaits_promises(managers: Made) -> None:
    manager = managers()
    sid = manager.create_session(runtime="node", dependencies={"axios": ""}).session_id
    got = manager.execute_code(
        sid,
        """
const axios = require('axios');
async function fetchData() {
const resp = await axios.get('https://api.example.com/data');
console.log(resp.data);
}
fetchData(); // Promise is awaited automatically
""",
    )
    assert got.success, got
    assert "data of https://api.example.com/data" in got.stdout
    assert manager.execute_code(sid, "const axios = 1; await Promise.resolve(axios + 1)").result == {"text/plain": "2"}


def test_python_runs_coroutines(managers: Made) -> None:
    manager = managers()
    sid = manager.create_session(dependencies={"aiohttp": ""}).session_id
    got = manager.execute_code(
        sid,
        """
import aiohttp
async def fetch_data():
    async with aiohttp.ClientSession() as session:
        resp = await session.get('https://api.example.com/data')
        print(await resp.text())
fetch_data() # coroutine is detected and executed automatically
""",
    )
    assert got.success, got
    assert got.stdout == "text of https://api.example.com/data\n"


def test_errors_limits_and_plots(python: tuple[SandboxManager, str]) -> None:
    manager, sid = python
    got = manager.execute_code(sid, "kept = 1; 1 / 0")
    assert got.error is not None
    assert got.error["type"] == "ZeroDivisionError"
    assert "Traceback" in got.error["traceback"]

    got = manager.execute_code(sid, "while True: pass", timeout=2)
    assert not got.success
    assert got.error is not None
    assert (got.error["type"], got.error["message"]) == ("TimeoutError", "Execution timed out after 2s")
    assert manager.execute_code(sid, "kept").result == {"text/plain": "1"}

    got = manager.execute_code(sid, "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.title('t')")
    assert [o["type"] for o in got.display_outputs] == ["image/png"]
    assert got.figures[0].startswith("iVBOR")

    got = manager.execute_code(sid, "print('x' * 60000)")
    assert got.stdout.endswith("\n\n... [truncated — 60001 chars total, showing first 50000]")
    assert len(got.stdout) < 50_100


def test_commands(python: tuple[SandboxManager, str]) -> None:
    manager, sid = python
    got = manager.execute_terminal(sid, "echo out; echo err >&2; pwd; exit 3")
    assert (got.exit_code, got.stdout, got.stderr) == (3, "out\n/workspace\n", "err\n")
    got = manager.execute_terminal(sid, "echo begun; sleep 600", timeout=1)
    assert (got.exit_code, got.stdout) == (124, "begun\n")
    assert "timed out after 1s" in got.stderr
    got = manager.execute_terminal(sid, "head -c 60000 /dev/zero | tr '\\0' x")
    assert got.stdout.endswith("[truncated — 60000 chars total, showing first 50000]")


def test_five_sessions_and_three_in_a_conversation(managers: Made) -> None:
    manager = managers()
    made = [manager.create_session().session_id for _ in range(5)]
    with pytest.raises(RuntimeError) as caught:
        manager.create_session()
    assert str(caught.value) == "Maximum number of sessions (5) reached. Stop an existing session first."
    manager.stop_session(made[0])
    manager.create_session()
    manager.cleanup_all()
    assert manager.sessions == {}

    first, second = managers(thread_id="sdk-first"), managers(thread_id="sdk-second")
    for _ in range(3):
        first.create_session()
    with pytest.raises(RuntimeError) as caught:
        first.create_session()
    assert str(caught.value) == "Maximum sessions per conversation (3) reached. Stop an existing session first."
    for _ in range(2):
        second.create_session()
    with pytest.raises(RuntimeError) as caught:
        second.create_session()
    assert str(caught.value) == "Maximum number of sessions (5) reached. Stop an existing session first."


def test_conversations(managers: Made, client: Client, daemon: Daemon) -> None:
    ours, theirs, also_ours = (
        managers(thread_id="sdk-ours"),
        managers(thread_id="sdk-theirs"),
        managers(thread_id="sdk-ours"),
    )
    sid, other = ours.create_session().session_id, theirs.create_session().session_id
    with pytest.raises(PermissionError, match="belongs to another conversation"):
        theirs.execute_code(sid, "1")
    with pytest.raises(PermissionError):
        theirs.stop_session(sid)
    ours.execute_code(sid, "x = 5; open('/workspace/f', 'w').write('f')")
    assert also_ours.execute_code(sid, "x").result == {"text/plain": "5"}

    export = ours.export_files(sid, [{"source": "f"}]).files[0]
    assert export.download_url is not None
    assert f"/threads/sdk-ours/files/download?session_id={sid}" in export.download_url
    assert ours.is_file_exported("sdk-ours", sid, "/workspace/f")
    assert b"".join(ours.stream_exported_file("sdk-ours", sid, "/workspace/f")) == b"f"
    refused = theirs.import_files(other, [{"session_id": sid, "path": "/workspace/f"}])
    assert refused.files[0].error == "Source session belongs to another conversation"

    assert [b.id for b in client.sandboxes.list(thread="sdk-ours")] == [sid]
    assert {"sdk-ours", "sdk-theirs"} <= {t.thread for t in client.threads() if t.running == 1}
    answer = httpx.post(
        f"{daemon.url}/threads/sdk-ours/files/upload",
        files={"files": ("up.txt", b"uploaded")},
        headers={"Authorization": f"Bearer {TOKEN}"},
        trust_env=False,
        timeout=60,
    )
    uploaded = answer.raise_for_status().json()[0]["path"]
    result = ours.import_files(sid, [{"source": uploaded, "destination": "in/"}])
    assert result.success, result
    assert ours.execute_terminal(sid, "cat in/up.txt").stdout == "uploaded"
    assert not theirs.import_files(other, [{"source": uploaded}]).success

    assert ours.cleanup_thread_sessions("sdk-ours") == 1
    assert not Path(uploaded).exists()
    assert ours.sessions == {}
    assert sid not in {b.id for b in client.sandboxes.list()}
    with pytest.raises(ContainerDiedError, match="removed externally"):
        also_ours.execute_code(sid, "1")
    assert theirs.execute_code(other, "1 + 1").success


def test_a_session_without_memory(managers: Made) -> None:
    manager = managers(mem_limit="256m")
    sid = manager.create_session().session_id
    with pytest.raises(ContainerDiedError, match="OOM-killed"):
        manager.execute_code(sid, "x = bytearray(1 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1", timeout=120)


def test_a_session_that_somebody_removed(managers: Made, client: Client) -> None:
    manager = managers()
    sid = manager.create_session().session_id
    client.sandboxes.get(sid).destroy()
    for call in (manager.execute_code, manager.execute_terminal):
        with pytest.raises(ContainerDiedError, match="removed externally"):
            call(sid, "1")
    assert manager.sessions[sid].status == "dead"
    assert manager.stop_session(sid) is True


def test_several_threads_share_a_manager(managers: Made) -> None:
    manager = managers(max_sessions=3)
    failed: list[BaseException] = []

    def use() -> None:
        try:
            sid = manager.create_session().session_id
            assert manager.execute_code(sid, "1 + 1").result == {"text/plain": "2"}
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(e) for e in failed] == [RuntimeError]
    assert len(manager.sessions) == 3


def test_dependencies_that_cannot_be_installed(managers: Made, client: Client) -> None:
    manager = managers()
    before = {b.id for b in client.sandboxes.list()}
    with pytest.raises(RuntimeError, match=r"(?s)Installing missing-package failed.*missing-package"):
        manager.create_session(dependencies={"missing-package": ""})
    with pytest.raises(ValueError, match="Invalid package name"):
        manager.create_session(dependencies={"foo; rm -rf /": ""})
    with pytest.raises(ValueError, match="version"):
        manager.create_session(dependencies={"demo": "1; rm -rf /"})
    assert {b.id for b in client.sandboxes.list()} == before
    assert manager.sessions == {}
