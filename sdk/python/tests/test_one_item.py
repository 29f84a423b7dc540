"""A bare string where a list is meant is one item, in every place: its letters are names of something."""

from __future__ import annotations

import collections.abc
import inspect
import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

import cubby
from cubby.compat import agentbox, ecs_sandbox, sandbox_agent

LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection, set, frozenset, tuple)
# A program with its arguments, of which a string is a line of shell, and pieces of content, of which it is the text.
OTHER_MEANING = {
    "Sandbox.exec(cmd)",
    "Sandbox.start_exec(cmd)",
    "Files.write(content)",
    "Files.extract(archive)",
    "Tenants.write_upload(content)",
}


def _names(hint: Any) -> Iterator[Any]:
    """Give the members of a union."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        for member in typing.get_args(hint):
            yield from _names(member)
    else:
        yield hint


def takes_lists() -> dict[str, tuple[list[Any], list[Any]]]:
    """Find every argument of the package that may be a list: the kinds of items, and what else it may be."""
    found: dict[str, tuple[list[Any], list[Any]]] = {}
    modules = (cubby, agentbox, ecs_sandbox, sandbox_agent)
    classes = {value for m in modules for name, value in vars(m).items() if name[0] != "_" and inspect.isclass(value)}
    for cls in classes:
        # What answers hold is made of answers; only Network is asked for too.
        if not cls.__module__.startswith("cubby.") or (
            hasattr(cls, "__dataclass_fields__") and cls is not cubby.Network
        ):
            continue
        for name, function in inspect.getmembers(cls, callable):
            if (name.startswith("_") and name != "__init__") or not hasattr(function, "__annotations__"):
                continue
            function = inspect.unwrap(function)
            if not getattr(function, "__module__", "").startswith("cubby."):
                continue
            hints = typing.get_type_hints(
                function, localns={"Unpack": typing.Optional, "CreateOptions": dict, **vars(cubby)}
            )
            for parameter in inspect.signature(function).parameters.values():
                if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                    continue
                members = list(_names(hints.get(parameter.name, str)))
                of = [typing.get_args(m)[0] for m in members if typing.get_origin(m) in LISTS]
                where = f"{cls.__qualname__}.{name}({parameter.name})".replace("SandboxManager", "Sessions")
                if cls.__module__ in ("cubby._async.agentbox", "cubby._sync.agentbox"):
                    where = "agentbox." + where
                if of:
                    found[where] = (of, members)
    return found


def test_every_list_may_be_its_one_item() -> None:
    found = takes_lists()
    assert len(found) > 20  # the search finds something
    wrong = [
        where
        for where, (of, members) in found.items()
        if not any(item in members or set(_names(item)) <= set(members) for item in of)
    ]
    assert wrong == []


class Noting:
    """Answers everything with an example, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        self.asked.append((dict(request.url.params), body))
        return httpx.Response(200, json=self.answer(request))

    def answer(self, request: httpx.Request) -> Mapping[str, Any]:
        if request.url.path.endswith("/events"):
            return {"events": [], "next": 0}
        done = {"seq": 1, "status": "done", "exit_code": 0}
        result = {"installed": [], "commits": [], "files": [], "commit": "c", "branch": "b", "path": "p"}
        if request.url.path.startswith("/sandbox.v1"):
            session = {"sessionId": "s", "allowedHosts": ["pypi.org", "files.pythonhosted.org"]}
            return {"session": session, "exitCode": 0, "success": True}
        if request.url.path.endswith("/images"):
            return {"name": "n", "digest": "d", "size": 1, "created_at": "2026-01-02T03:04:05Z"}
        if request.url.path.endswith("/fork"):
            return {"sandboxes": [], "paused_ms": 0, "warnings": []}
        return {"id": "b", "name": "n", **done, "result": result}


@pytest.fixture
def noting() -> Iterator[tuple[Noting, cubby.Client]]:
    note = Noting()
    with cubby.Client("http://daemon", transport=httpx.MockTransport(note)) as client:
        yield note, client


WORD = "abc"
SERVICE = cubby.ServiceSpec("s", WORD)
CALLS: dict[str, tuple[Callable[[cubby.Client, cubby.Sandbox], object], Any]] = {
    "Sandboxes.create(dependencies)": (lambda c, _: c.sandboxes.create(dependencies=WORD), {WORD: ""}),
    "Sandboxes.create(ports)": (lambda c, _: c.sandboxes.create(ports=80), [80]),
    "Sandboxes.create(services)": (lambda c, _: c.sandboxes.create(services=SERVICE), [{"name": "s", "command": WORD}]),
    "Sandbox.update(services)": (lambda _, b: b.update(services=SERVICE), [{"name": "s", "command": WORD}]),
    "Sandbox.install(dependencies)": (lambda _, b: b.install(WORD), {WORD: ""}),
    "Sandbox.start_install(dependencies)": (lambda _, b: b.start_install(WORD), {WORD: ""}),
    "Sandbox.fork(ids)": (lambda _, b: b.fork(ids=WORD), [WORD]),
    "Sandbox.update(ports)": (lambda _, b: b.update(ports=80), [80]),
    "NetworkAccess.update(allow)": (lambda _, b: b.network.update(allow=WORD), [WORD]),
    "NetworkAccess.update(deny)": (lambda _, b: b.network.update(deny=WORD), [WORD]),
    "Network.__init__(allow)": (lambda _, b: b.update(network=cubby.Network("allowlist", WORD)), [WORD]),
    "Network.__init__(deny)": (lambda _, b: b.update(network=cubby.Network("open", deny=WORD)), [WORD]),
    "Events.list(kinds)": (lambda _, b: b.events.list(kinds=WORD), WORD),
    "Git.diff(files)": (lambda _, b: b.git.diff(files=WORD), [WORD]),
    "Git.add(files)": (lambda _, b: b.git.add(WORD), [WORD]),
    "Git.commit(files)": (lambda _, b: b.git.commit("m", files=WORD), [WORD]),
    "Client.create_image(apt)": (lambda c, _: c.create_image("n", from_image="base", apt=WORD), [WORD]),
    "Client.create_image(npm)": (lambda c, _: c.create_image("n", from_image="base", npm=WORD), [WORD]),
    "Client.create_image(pip)": (lambda c, _: c.create_image("n", from_image="base", pip=WORD), [WORD]),
    "Client.create_image(run)": (lambda c, _: c.create_image("n", from_image="base", run=WORD), [WORD]),
    "Client.create_image(allow)": (lambda c, _: c.create_image("n", from_image="base", allow=WORD), [WORD]),
    "Tasks.start(command)": (lambda _, b: b.tasks.start("p", command=WORD), [WORD]),
    "Tasks.run(command)": (lambda _, b: b.tasks.run("p", command=WORD), [WORD]),
    "Tasks.start(secrets)": (lambda _, b: b.tasks.start("p", secrets=WORD), [WORD]),
    "Git.log(files)": (lambda _, b: b.git.log(files=WORD), [WORD]),
}
# Those that are called below, or are the same function.
CALLED_OTHERWISE = {
    "Tasks.run(secrets)",
    "Events.follow(kinds)",
    "agentbox.Sandbox.create(allowed_hosts)",
    "agentbox.Sandbox.pip_install(packages)",
    "Sessions.__init__(import_allowed_dirs)",
    "Sessions.create_session(dependencies)",
    "Sessions.import_files(files)",
    "Sessions.export_files(files)",
}


def test_every_list_is_called_with_its_one_item() -> None:
    blocking = {w for w in takes_lists() if "Async" not in w}
    assert blocking == set(CALLS) | CALLED_OTHERWISE | OTHER_MEANING


def _values(data: Any) -> Iterator[Any]:
    yield data
    for inner in data.values() if isinstance(data, dict) else data if isinstance(data, (list, tuple)) else ():
        yield from _values(inner)


@pytest.mark.parametrize("where", CALLS)
def test_one_item_is_sent_as_one(noting: tuple[Noting, cubby.Client], where: str) -> None:
    note, client = noting
    call, sent = CALLS[where]
    call(client, cubby.Sandbox(client._transport, cubby.SandboxInfo("b", "running")))
    assert sent in list(_values(note.asked))
    assert list(WORD) not in list(_values(note.asked))


def test_follow_of_one_kind() -> None:
    note = Noting()
    with cubby.Client("http://daemon", resume=0, transport=httpx.MockTransport(note)) as client:
        box = cubby.Sandbox(client._transport, cubby.SandboxInfo("b", "running"))
        with pytest.raises(cubby.CubbyError):  # the answer is no stream
            next(box.events.follow(kinds=WORD))
    assert note.asked[0][0]["kinds"] == WORD


def test_agentbox_takes_one_host_and_one_package() -> None:
    note = Noting()
    with agentbox.Sandbox("http://daemon", transport=httpx.MockTransport(note)) as box:
        box.create(allowed_hosts=WORD)
        box.pip_install("six")
    assert note.asked[0][1]["allowedHosts"] == [WORD]
    assert note.asked[1][1]["packages"] == ["six"]


def test_one_directory_of_imports_is_not_the_root(tmp_path: Path) -> None:
    # The letters of "/tmp/x" are directories of which the first is /.
    manager = sandbox_agent.SandboxManager("http://daemon", import_allowed_dirs=str(tmp_path))
    assert manager._allowed == [tmp_path.resolve()]
    assert sandbox_agent.SandboxManager("http://daemon", import_allowed_dirs=tmp_path)._allowed == [tmp_path.resolve()]


def test_sessions_take_one_package_and_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    note = Noting()
    manager = sandbox_agent.SandboxManager("http://daemon")
    manager.client = cubby.Client("http://daemon", transport=httpx.MockTransport(note))
    sid = manager.create_session(dependencies=WORD).session_id
    assert {WORD: ""} in list(_values(note.asked))
    monkeypatch.setattr(cubby.Sandbox, "export_files", lambda _, *paths: [cubby.ExportedFile(sid, p) for p in paths])
    assert [f.path for f in manager.export_files(sid, {"source": WORD}).files] == [WORD]
    monkeypatch.setattr(cubby.Sandbox, "import_files", lambda _, file: [cubby.ImportedFile(file.path, success=True)])
    assert [f.source for f in manager.import_files(sid, {"session_id": "o", "path": WORD}).files] == [WORD]
