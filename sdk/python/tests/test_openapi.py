"""The package compared with api/openapi.json: what the API gains has to be called, or left out here for a reason."""

from __future__ import annotations

import dataclasses
import inspect
import io
import threading
import typing
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import httpx
import pytest
from websockets.sync.server import ServerConnection, serve

import cubby
from cubby import Client, FileToImport, Limits, Network, Sandbox, ServiceSpec, WindowSize
from documented import OPERATIONS, SCHEMAS, Documented, words_of

OMITTED = {
    "health-json": "health says the same",
    "guide": "it is a page for language models",
    "guide-sandboxed": "it is a page for language models",
    "metrics": "it is for Prometheus",
    "connect-port": "cubby port-forward has it; HTTP of a port has its preview",
    **dict.fromkeys(
        ("get-settings", "change-settings", "replace-settings", "clear-settings", "list-models", "test-settings"),
        "cubby settings has it; a program that runs sandboxes sets no models",
    ),
    **dict.fromkeys(
        ("list-webhook-messages", "renew-webhook-secret"),
        "webhooks are for runs of the agent, which the clients of LangGraph begin",
    ),
    **{
        o.id: "it is the interface of another system, whose clients call it"
        for o in OPERATIONS
        if o.id.startswith(("sandboxed-", "ecs-", "sandbox-agent-", "langgraph-"))
    },
}

SHORT = "limits has it"
FOLLOWED = "the output is followed by its own request, which can go on"
# What is not sent, by operation.
UNSENT: dict[str, dict[str, str]] = {
    "create-sandbox": dict.fromkeys(("memory_bytes", "cpus", "pids", "disk_bytes", "open_files"), SHORT)
    | {"stream": "the answer is waited for", "from_snapshot": "snapshot has it"},
    "create-image": {"stream": "the answer is waited for"},
    "exec": {"stream": FOLLOWED},
    "run-code": {"stream": FOLLOWED},
    "install-packages": {"stream": FOLLOWED, "wait_seconds": "start_install and wait"},
    "exec-output": {"follow": "stream does"},
    "stream-exec": {"after": "the header Last-Event-ID says it"},
    "get-operation": {"max_output_bytes": "process has it for commands"},
    "list-task-events": {"since": "the header Last-Event-ID says it", "limit": "they are followed"},
    "write-file": {"content": "the body is the content", "encoding": "as content"},
}

LOGIN = {"username": "u", "password": "p", "token": "t", "timeout": 1.0}
POLICY: dict[str, Any] = {
    "labels": {"l": "v"},
    "metadata": {"m": "v"},
    "ports": [80],
    "services": [ServiceSpec("s", "c", 1, "/", {"a": "b"}, "never", "/r")],
    "network": Network("allowlist", ["a"], ["b"], proxy_env=False),
    "visibility": "private",
    "host_header": "preserve",
    "idle_policy": "stop",
    "auto_wake": "never",
    "idle_timeout": 1,
    "exec_timeout": 1,
    "max_lifetime": 1,
    "git_remote_url": "u",
}
CREATE: dict[str, Any] = {
    **dict.fromkeys(("image", "runtime", "user", "thread", "tenant_id", "restore", "snapshot"), "x"),
    **POLICY,
    "shared_files": True,
    "isolation": "container",
    "limits": Limits(1, 1, 1, 1, 1),
    "dependencies": {"d": "1"},
    "env": {"a": "b"},
}
COMMAND: dict[str, Any] = {"timeout": 1, "env": {"a": "b"}, "cwd": "/", "user": "u", "session": "s"}
TASK: dict[str, Any] = {
    **dict.fromkeys(("agent", "model", "cwd", "resume"), "x"),
    "env": {"a": "b"},
    "secrets": ["s"],
    "timeout": 1,
    "permissions": "ask",
    "command": ["c"],
    "protocol": "acp",
}
CODE: dict[str, Any] = {"kernel": "k", "timeout": 1, "cwd": "/", "env": {"a": "b"}}


def _exec(_: Client, box: Sandbox) -> None:
    box.exec("c", **COMMAND, max_output_bytes=1)
    box.start_exec(["c"], **COMMAND, stdin=True, pty=WindowSize(1, 1))


def _run_code(_: Client, box: Sandbox) -> None:
    box.run_code("c", "python", **CODE)
    box.start_code("c", "python", **CODE, stdin=True)


def _keep(_: Client, box: Sandbox) -> None:
    box.keepalive(duration=1)
    box.keepalive(until=datetime.now(timezone.utc))


def _update(_: Client, box: Sandbox) -> None:
    box.update(**POLICY)
    box.network.update(mode="none", cut=True)


def _events(_: Client, box: Sandbox) -> None:
    box.events.list(after=1, limit=1, kinds=["k"])
    list(box.events.follow(after=1))


def _archive(_: Client, box: Sandbox) -> None:
    with box.files.archive("p", format="zip") as pieces:
        list(pieces)


def _export(_: Client, box: Sandbox) -> None:
    with box.open_export("p", format="zip") as pieces:
        list(pieces)


def _import(_: Client, box: Sandbox) -> None:
    box.import_files(FileToImport("d", b"x"), FileToImport(sandbox="s", path="p"), FileToImport(source="/p"))


def _terminal(_: Client, box: Sandbox) -> None:
    box.open_terminal("n", size=WindowSize(1, 1), cmd="c", user="u", cwd="/", seq=1, after=1).close()


# A call, or several, of everything that an operation takes.
CALLS: dict[str, Callable[[Client, Sandbox], object]] = {
    "health": lambda c, _: c.health(),
    "ready": lambda c, _: c.ready(),
    "list-images": lambda c, _: c.images(),
    "create-image": lambda c, _: c.create_image(
        "n", from_image="i", pull="p", apt=["a"], npm=["n"], pip=["p"], run=["r"], allow=["h"]
    ),
    "remove-image": lambda c, _: c.remove_image("n"),
    "get-archive": lambda c, _: c.archive("a", tenant_id="t"),
    "remove-archive": lambda c, _: c.remove_archive("a", tenant_id="t"),
    "list-threads": lambda c, _: c.threads(),
    "destroy-thread": lambda c, _: c.destroy_thread("t"),
    "create-snapshot": lambda c, _: c.snapshots.create("a", "n", memory=True),
    "list-snapshots": lambda c, _: list(c.snapshots.list(sandbox_id="a", tenant_id="t", page_size=1)),
    "get-snapshot": lambda c, _: c.snapshots.get("n"),
    "remove-snapshot": lambda c, _: c.snapshots.remove("n"),
    "fork-sandbox": lambda _, b: b.fork(2, ids=["x"]),
    "rollback-sandbox": lambda _, b: b.rollback("n"),
    "list-tenants": lambda c, _: list(c.tenants.list(page_size=1)),
    "get-tenant": lambda c, _: c.tenants.get("t"),
    "remove-tenant": lambda c, _: c.tenants.remove("t"),
    "list-uploads": lambda c, _: c.tenants.uploads("t", "p", recursive=True),
    "write-upload": lambda c, _: c.tenants.write_upload("t", "p", "x"),
    "read-upload": lambda c, _: c.tenants.read_upload("t", "p"),
    "remove-upload": lambda c, _: c.tenants.remove_upload("t", "p", recursive=True),
    "list-secrets": lambda c, _: c.secrets.list(tenant_id="t"),
    "set-secret": lambda c, _: c.secrets.set("K", "v", tenant_id="t"),
    "remove-secret": lambda c, _: c.secrets.remove("K", tenant_id="t"),
    "list-sandboxes": lambda c, _: list(
        c.sandboxes.list(labels={"l": "v"}, status="running", thread="t", tenant_id="t", page_size=1)
    ),
    "create-sandbox": lambda c, _: c.sandboxes.create("b", **CREATE),
    "get-sandbox": lambda _, b: b.refresh(),
    "update-sandbox": _update,
    "destroy-sandbox": lambda _, b: b.destroy(keep_disk=True, archive=True),
    "purge-sandbox": lambda _, b: b.purge(),
    "start-sandbox": lambda _, b: b.start(),
    "stop-sandbox": lambda _, b: b.stop(grace=1, force=True),
    "sleep-sandbox": lambda _, b: b.sleep(force=True),
    "wake-sandbox": lambda _, b: b.wake(),
    "keep-sandbox": _keep,
    "get-stats": lambda _, b: b.stats(),
    "list-egress-connections": lambda _, b: b.network.connections(),
    "explain-egress": lambda _, b: b.network.explain("h"),
    "exec": _exec,
    "list-execs": lambda _, b: (b.execs(after_seq=1, limit=1), b.services.runs("s", after_seq=1, limit=1)),
    "list-services": lambda _, b: b.services.list(),
    "get-service": lambda _, b: b.services.get("s"),
    "start-service": lambda _, b: b.services.start("s"),
    "stop-service": lambda _, b: b.services.stop("s"),
    "restart-service": lambda _, b: b.services.restart("s"),
    "get-exec": lambda _, b: b.process(1).wait(max_output_bytes=1),
    "cancel-exec": lambda _, b: b.process(1).cancel(),
    "exec-output": lambda _, b: b.process(1).output(1, stream="stdout"),
    "resize-exec": lambda _, b: b.process(1).resize(1, 1),
    "signal-exec": lambda _, b: b.process(1).signal("INT", tree=True),
    "write-stdin": lambda _, b: b.process(1).close_stdin(),
    "stream-exec": lambda _, b: list(b.process(1).stream(1)),
    "list-sessions": lambda _, b: b.sessions(),
    "forget-session": lambda _, b: b.session("s").close(),
    "run-code": _run_code,
    "get-code": lambda _, b: b.cell(1).wait(),
    "list-kernels": lambda _, b: b.kernels.list(),
    "create-kernel": lambda _, b: b.kernels.create("l", "n", cwd="/", env={"a": "b"}, user="u"),
    "get-kernel": lambda _, b: b.kernels.get("k"),
    "delete-kernel": lambda _, b: b.kernels.get("k").delete(),
    "interrupt-kernel": lambda _, b: b.kernels.get("k").interrupt(),
    "restart-kernel": lambda _, b: b.kernels.get("k").restart(),
    "complete-code": lambda _, b: b.kernels.get("k").complete("c", 1),
    "inspect-code": lambda _, b: b.kernels.get("k").inspect("c", 1, detail=1),
    "check-code": lambda _, b: b.kernels.get("k").is_complete("c"),
    "install-packages": lambda _, b: b.install(["p"], runtime="python"),
    "list-events": _events,
    "get-operation": lambda _, b: b.events.wait(1, 1),
    "list-files": lambda _, b: b.files.list("p", recursive=True),
    "read-file": lambda _, b: b.files.read("p", offset=1),
    "write-file": lambda _, b: b.files.write("p", "x", append=True, mode=0o600, parents=True),
    "remove-file": lambda _, b: b.files.remove("p", recursive=True),
    "stat-file": lambda _, b: b.files.stat("p"),
    "make-dir": lambda _, b: b.files.mkdir("p", mode=0o700),
    "move-file": lambda _, b: b.files.move("p", "q", replace=True),
    "download-archive": _archive,
    "upload-archive": lambda _, b: b.files.extract("p", io.BytesIO(b"x")),
    "watch-files": lambda _, b: next(b.files.watch("p", recursive=True)),
    "export-files": lambda _, b: b.export_files("p"),
    "list-exports": lambda _, b: b.exports(),
    "download-export": _export,
    "import-files": _import,
    "git-clone": lambda _, b: b.git.clone("u", "d", branch="b", depth=1, path="r", **LOGIN),
    "git-status": lambda _, b: b.git.status("r", timeout=1),
    "git-diff": lambda _, b: b.git.diff("r", staged=True, files=["f"], timeout=1),
    "git-add": lambda _, b: b.git.add(["f"], all=True, path="r", timeout=1),
    "git-commit": lambda _, b: b.git.commit(
        "m", files=["f"], all=True, path="r", author_name="a", author_email="e", timeout=1
    ),
    "git-branch": lambda _, b: b.git.branch("n", path="r", timeout=1),
    "git-checkout": lambda _, b: b.git.checkout("n", create=True, path="r", timeout=1),
    "git-log": lambda _, b: b.git.log("r", branch="b", limit=1, files=["f"], timeout=1),
    "git-pull": lambda _, b: b.git.pull("r", remote="o", branch="b", **LOGIN),
    "git-push": lambda _, b: b.git.push("r", remote="o", branch="b", force=True, **LOGIN),
    "open-terminal": _terminal,
    "list-ports": lambda _, b: b.ports(),
    "get-port": lambda _, b: b.port(80),
    "create-port-link": lambda _, b: b.link(80, expires_in=1),
    "end-port-links": lambda _, b: b.end_links(),
    "start-task": lambda _, b: b.tasks.start("p", **TASK),
    "list-tasks": lambda _, b: list(b.tasks.list(page_size=1)),
    "get-task": lambda _, b: b.tasks.wait("t"),
    "cancel-task": lambda _, b: b.tasks.cancel("t"),
    "answer-task": lambda _, b: b.tasks.answer("t", "q", "o"),
    "restore-task": lambda _, b: b.tasks.restore("t"),
    "list-task-events": lambda _, b: list(b.tasks.events("t", since=1)),
    "list-terminals": lambda _, b: b.terminals(),
    "close-terminal": lambda _, b: b.close_terminal("t"),
}

# The classes of what answers hold.
KINDS: dict[str, type] = {
    "Archive": cubby.Archive,
    "CodeCompleteness": cubby.CodeCompleteness,
    "CodeCompletion": cubby.CodeCompletion,
    "CodeInspection": cubby.CodeInspection,
    "EgressConnection": cubby.EgressConnection,
    "EgressDecision": cubby.EgressDecision,
    "Event": cubby.Event,
    "Exec": cubby.ExecResult,
    "ExportEntry": cubby.ExportedFile,
    "Exported": cubby.ExportedFile,
    "File": cubby.FileInfo,
    "Image": cubby.Image,
    "ImageDefinition": cubby.ImageDefinition,
    "ImageSteps": cubby.ImageSteps,
    "Imported": cubby.ImportedFile,
    "Kernel": cubby.KernelInfo,
    "KernelKind": cubby.KernelKind,
    "Limits": cubby.Limits,
    "Link": cubby.Link,
    "Network": cubby.Network,
    "Port": cubby.Port,
    "Sandbox": cubby.SandboxInfo,
    "Secret": cubby.SecretInfo,
    "Service": cubby.Service,
    "ServiceSpec": cubby.ServiceSpec,
    "Session": cubby.SessionInfo,
    "Stats": cubby.Stats,
    "Task": cubby.Task,
    "TaskPush": cubby.TaskPush,
    "TaskTokens": cubby.TaskTokens,
    "Tenant": cubby.TenantInfo,
    "TenantDisk": cubby.TenantDisk,
    "Terminal": cubby.TerminalInfo,
    "Thread": cubby.ThreadInfo,
}
# What takes what can be asked with one of some words, by operation and name; None: this package sends it by itself.
ASKED: dict[str, tuple[Any, str] | None] = {
    **{
        f"create-sandbox.{name}": (cubby.CreateOptions, name)
        for name in ("isolation", "runtime", "visibility", "host_header", "idle_policy", "auto_wake")
    },
    **{
        f"update-sandbox.{name}": (cubby.Sandbox.update, name)
        for name in ("visibility", "host_header", "idle_policy", "auto_wake")
    },
    "create-sandbox.services.restart": (cubby.ServiceSpec.__init__, "restart"),
    "update-sandbox.services.restart": (cubby.ServiceSpec.__init__, "restart"),
    "create-sandbox.network.mode": (cubby.Network.__init__, "mode"),
    "update-sandbox.network.mode": (cubby.Network.__init__, "mode"),
    "list-sandboxes.status": (cubby.Sandboxes.list, "status"),
    "start-task.protocol": (cubby.Tasks.start, "protocol"),
    "start-task.permissions": (cubby.Tasks.start, "permissions"),
    "install-packages.runtime": (cubby.Sandbox.install, "runtime"),
    "exec-output.stream": (cubby.Process.output, "stream"),
    "download-archive.format": (cubby.Files.archive, "format"),
    "download-export.format": (cubby.Sandbox.open_export, "format"),
    "import-files.files.encoding": None,
    "write-file.encoding": None,
}
# Fields of answers that have another shape here: output is bytes.
SHAPED = {f"Exec.{stream}{what}" for stream in ("stdout", "stderr") for what in ("", "_encoding")}


@pytest.fixture(scope="module")
def daemon() -> Iterator[tuple[Documented, Client]]:
    """A daemon of the document, and a client of it. Terminals have a connection of their own."""
    documented = Documented()

    def view(connection: ServerConnection) -> None:
        assert connection.request is not None
        documented.note("GET", connection.request.path, set(), {})
        connection.send('{"type":"attached","name":"n","seq":1,"offset":0,"new":true}')
        for _ in connection:
            pass

    with serve(view, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        with Client(url, "t", retries=0, resume=0, transport=httpx.MockTransport(documented)) as client:
            yield documented, client
        server.shutdown()
        thread.join()


def test_every_operation_is_called_or_left_out_for_a_reason() -> None:
    assert sorted([*CALLS, *OMITTED]) == sorted(o.id for o in OPERATIONS)


@pytest.mark.parametrize("id", CALLS)
def test_everything_that_it_takes_can_be_sent(daemon: tuple[Documented, Client], id: str) -> None:
    documented, client = daemon
    CALLS[id](client, client.sandboxes.get("b"))
    [operation] = [o for o in OPERATIONS if o.id == id]
    assert documented.got[id] | set(UNSENT.get(id, {})) == operation.takes


def test_every_field_of_an_answer_is_there() -> None:
    missing = [
        f"{schema}.{name}"
        for schema, kind in KINDS.items()
        for name in SCHEMAS[schema]["properties"].keys()
        - {f.metadata.get("json", f.name) for f in dataclasses.fields(kind)}
        - {"$schema"}
    ]
    assert set(missing) - SHAPED == set()


def _literals(hint: Any) -> set[str]:
    """The words that a type hint allows; "" and None, for what is not there, are not among them."""
    if typing.get_origin(hint) is typing.Literal:
        return set(typing.get_args(hint)) - {""}
    return {word for arg in typing.get_args(hint) if arg is not type(None) for word in _literals(arg)} or {repr(hint)}


def _hint(of: Any, name: str) -> Any:
    if inspect.isfunction(of):  # a generator function that became a context manager too
        of = inspect.unwrap(of)
    return typing.get_type_hints(of)[name]


def test_what_has_to_be_one_of_some_words_is_a_literal() -> None:
    answers = KINDS | {"Execution": cubby.Execution}
    want = {
        f"{schema}.{name}": words
        for schema, kind in answers.items()
        for name, words in words_of(SCHEMAS[schema])
        if f"{schema}.{name}" not in SHAPED and name in SCHEMAS[schema]["properties"]
    }
    got = {key: _literals(_hint(answers[key.split(".")[0]], key.split(".")[1])) for key in want}
    for operation in OPERATIONS:
        if operation.id in OMITTED:
            continue
        for name, words in operation.words:
            key = f"{operation.id}.{name}"
            assert key in ASKED, f"{key} is one of {words}"
            if (through := ASKED[key]) is not None:
                want[key] = words
                got[key] = _literals(_hint(*through))
    assert got == want
    assert len(want) > 25
