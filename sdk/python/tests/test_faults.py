"""What the client does when connections break and answers are not what they should be.

A script of answers stands in for the daemon. The blocking client is tested: the other is the same source.
"""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import httpx
import pytest

import cubby
from cubby import Client, CubbyError, Exit, Output, _request, errors
from scripting import BOX, END, EXIT, PING, Answer, events, output, problem


@pytest.mark.parametrize("code", sorted(errors._CLASSES))
def test_every_code_has_its_class(code: str, scripted: Any) -> None:
    _, box = scripted(problem(418, code, "7", hint="do this", retryable=False))
    with pytest.raises(errors._CLASSES[code]) as caught:
        box.exec("true")
    e = caught.value
    assert (e.code, e.message, e.hint, e.request_id, e.retryable, e.retry_after, e.status) == (
        code,
        f"this is {code}",
        "do this",
        "r1",
        False,
        7,
        418,
    )
    assert str(e) == f"this is {code} (do this)"


def test_an_unknown_code_is_a_cubby_error(scripted: Any) -> None:
    _, box = scripted(problem(400, "brand_new"))
    with pytest.raises(CubbyError) as caught:
        box.exec("true")
    assert type(caught.value) is CubbyError
    assert caught.value.code == "brand_new"


def test_errors_can_be_pickled() -> None:
    for error in (
        cubby.NotFoundError("m", hint="h", status=404),
        cubby.ExecFailedError(cubby.ExecResult(3, "done", exit_code=1)),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert copy.__dict__ == error.__dict__


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, cubby.InvalidRequestError),
        (401, cubby.UnauthorizedError),
        (403, cubby.ForbiddenError),
        (404, cubby.NotFoundError),
        (409, cubby.ConflictError),
        (413, cubby.TooLargeError),
        (429, cubby.UnavailableError),
        (500, cubby.InternalError),
        (502, cubby.UnavailableError),
        (503, cubby.UnavailableError),
        (504, cubby.RequestTimeoutError),
        (302, cubby.InvalidRequestError),
    ],
)
def test_an_answer_of_something_else_is_an_error_by_its_status(
    status: int, kind: type[CubbyError], scripted: Any
) -> None:
    _, box = scripted(httpx.Response(status, text="<html>"))
    with pytest.raises(kind, match=str(status)) as caught:
        box.exec("true")
    assert "CUBBY_URL" in caught.value.hint


@pytest.mark.parametrize("status", [429, 502, 503])
def test_harmless_requests_are_repeated_when_the_daemon_is_busy(status: int, scripted: Any) -> None:
    busy = httpx.Response(status, headers={"Retry-After": "3"})
    script, box = scripted(busy, httpx.ReadError("cut"), httpx.Response(200, json=BOX))
    assert box.refresh().status == "running"
    assert script.pauses == [3.0, 0.2]
    assert {str(r.url) for r in script.requests} == {"http://daemon/prefix/v1/sandboxes/b"}
    assert {r.headers["authorization"] for r in script.requests} == {"Bearer secret"}


def test_repetitions_are_bounded(scripted: Any) -> None:
    script, box = scripted(*[httpx.ConnectError("refused")] * 3)
    with pytest.raises(cubby.UnreachableError):
        box.refresh()
    assert len(script.requests) == 3
    script, box = scripted(httpx.Response(503, headers={"Retry-After": "31"}))
    with pytest.raises(cubby.UnavailableError) as caught:
        box.refresh()
    assert caught.value.retry_after == 31
    script, box = scripted(httpx.ConnectError("refused"), retries=0)
    with pytest.raises(cubby.UnreachableError):
        box.refresh()


@pytest.mark.parametrize("bad", ["soon", "-1", "nan", "inf", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_retry_after_that_is_no_number_is_none(bad: str, scripted: Any) -> None:
    script, box = scripted(httpx.Response(503, headers={"Retry-After": bad}), httpx.Response(200, json=BOX))
    box.refresh()
    assert script.pauses == [0.1]


def test_what_is_not_harmless_is_not_repeated(scripted: Any) -> None:
    for act in (
        lambda b: b.exec("true"),
        lambda b: b.start_exec("true"),
        lambda b: b.process(1).signal("INT"),
        lambda b: b.files.write("f", "x", append=True),
        lambda b: b.files.write("f", iter([b"x"])),
        lambda b: b.files.move("a", "b"),
        lambda b: b.files.mkdir("a", parents=False),
        lambda b: b.git.commit("m"),
        lambda b: b.run_code("1"),
        lambda b: b.install(["a"]),
        lambda b: b.import_files(cubby.FileToImport("a", "b")),
    ):
        script, box = scripted(httpx.ReadError("cut"))
        with pytest.raises(cubby.UnreachableError):
            act(box)
        assert len(script.requests) == 1


def test_a_full_host_is_told_at_once(scripted: Any) -> None:
    script, box = scripted(problem(503, "sandbox_capacity", "5", retryable=True))
    with pytest.raises(cubby.CapacityError) as caught:
        box.start()
    assert caught.value.retry_after == 5
    assert script.pauses == []


def test_a_create_whose_answer_was_lost_is_repeated_with_its_key(scripted: Any) -> None:
    created = httpx.Response(201, json=BOX)
    running = [problem(409, "conflict", "1") for _ in range(5)]
    script, box = scripted(httpx.ReadError("cut"), *running, created)
    sandboxes = cubby.Sandboxes(box._transport)
    assert sandboxes.create().id == "b"
    keys = {r.headers["idempotency-key"] for r in script.requests}
    assert len(keys) == 1
    script, box = scripted(problem(409, "conflict"))
    with pytest.raises(cubby.ConflictError):
        cubby.Sandboxes(box._transport).create("taken", idempotency_key="mine")
    assert script.requests[0].headers["idempotency-key"] == "mine"
    assert script.requests[0].headers["idempotency-key"] not in keys


def test_a_destroy_whose_answer_was_lost_is_done(scripted: Any) -> None:
    _, box = scripted(httpx.ReadError("cut"), problem(404, "not_found"))
    box.destroy()
    _, box = scripted(problem(404, "not_found"))
    with pytest.raises(cubby.NotFoundError):
        box.destroy()


def test_a_context_tells_the_error_inside_rather_than_its_own(scripted: Any) -> None:
    _, box = scripted(problem(500, "internal"))
    with pytest.raises(KeyError), box:
        raise KeyError
    _, box = scripted(problem(500, "internal"))
    with pytest.raises(cubby.InternalError), box:
        pass
    _, box = scripted(problem(404, "not_found"))
    with box:
        pass


def test_a_stream_goes_on_where_its_connection_broke(scripted: Any) -> None:
    whole = output("abc", 0) + output("def", 3, "stderr") + EXIT
    cuts: list[Answer] = [
        events(output("abc", 0)[:-1]),  # an event that was cut is dropped
        events(output("abc", 0), PING, error=httpx.ReadError("reset")),
        httpx.ConnectError("refused"),
        problem(502, "sandbox_unavailable", retryable=True),
        events(output("abc", 0), output("abcdef"[2:], 2, "stderr"), error=httpx.ReadTimeout("silence")),
        events(EXIT),
    ]
    script, box = scripted(*cuts)
    with box.process(1).stream() as stream:
        chunks = list(stream)
    assert chunks[:2] == [Output("stdout", b"abc", 0, 3), Output("stderr", b"def", 3, 6)]
    assert isinstance(chunks[2], Exit)
    assert len(chunks) == 3
    assert [r.headers.get("last-event-id") for r in script.requests] == [None, None, "3", "3", "3", "6"]
    assert len(script.pauses) == 5
    for size in range(1, 40):  # pieces of any size
        pieces = [whole[i : i + size] for i in range(0, len(whole), size)]
        _, box = scripted(events(*pieces))
        assert [c.data for c in box.process(1).stream() if isinstance(c, Output)] == [b"abc", b"def"]


def test_a_stream_that_never_comes_back_ends_with_the_error(scripted: Any) -> None:
    _, box = scripted(events(output("abc", 0)), *[httpx.ConnectError("refused")] * 3, resume=0)
    stream = box.process(1).stream()
    assert next(stream) == Output("stdout", b"abc", 0, 3)
    with pytest.raises(CubbyError):
        next(stream)
    assert stream.offset == 3
    assert stream.result is None


@pytest.mark.parametrize(
    "body",
    [
        "event: stdout\ndata: {\n\n",
        'event: stdout\ndata: {"data":"a"}\n\n',
        'event: stdout\ndata: {"data":1,"offset":0}\n\n',
        'event: stdout\ndata: {"data":"?","encoding":"base64","offset":0}\n\n',
        "event: stdout\ndata: []\n\n",
        "event: exit\ndata: 7\n\n",
        "event: error\ndata: {}\n\n",
    ],
)
def test_events_that_cannot_be_read_are_an_error(body: str, scripted: Any) -> None:
    _, box = scripted(events(body))
    with pytest.raises(cubby.InternalError):
        list(box.process(1).stream())


def test_an_error_event_is_raised(scripted: Any) -> None:
    text = json.dumps({"error": {"code": "not_found", "message": "pruned"}})
    _, box = scripted(events(f"event: error\ndata: {text}\n\n"))
    with pytest.raises(cubby.NotFoundError, match="pruned"):
        list(box.process(1).stream())


def test_something_that_is_no_stream_is_an_error(scripted: Any) -> None:
    _, box = scripted(httpx.Response(200, text="<html>"))
    with pytest.raises(cubby.InternalError):
        next(box.process(1).stream())


def test_the_history_is_followed_over_broken_connections(scripted: Any) -> None:
    def entry(cursor: int, kind: str) -> str:
        data = json.dumps({"cursor": cursor, "kind": kind, "time": "2026-01-02T03:04:05.123456789Z", "new": 1})
        return f"id: {cursor}\nevent: {kind}\ndata: {data}\n\n"

    script, box = scripted(
        events(entry(4, "exec.started"), error=httpx.RemoteProtocolError("cut")),
        events(entry(4, "exec.started"), PING, entry(9, "error"), entry(12, "sandbox.destroyed"), END),
    )
    stream = box.events.follow(after=3, kinds=["exec.*", "sandbox.destroyed"])
    assert [e.cursor for e in stream] == [4, 9, 12]
    assert stream.cursor == 12
    assert [r.headers["last-event-id"] for r in script.requests] == ["3", "4"]
    assert script.requests[0].url.params["kinds"] == "exec.*,sandbox.destroyed"


def test_waiting_outlives_the_daemon(scripted: Any) -> None:
    running = httpx.Response(200, json={"seq": 1, "status": "running", "exit_code": None})
    done = httpx.Response(200, json={"seq": 1, "status": "done", "exit_code": 0, "stdout": "x"})
    script, box = scripted(
        httpx.Response(202, json={"seq": 1, "status": "running"}),
        running,
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("silence"),
        running,
        done,
    )
    assert box.exec("make", check=True).stdout == "x"
    asked = [r.url.params.get("wait_seconds") for r in script.requests[1:]]
    assert asked == ["50.0"] * 5
    assert json.loads(script.requests[0].content)["wait_seconds"] == 2


def test_an_input_whose_answer_was_lost_is_written_again_at_its_offset(scripted: Any) -> None:
    started = httpx.Response(202, json={"seq": 1, "status": "running"})
    script, box = scripted(
        started,
        httpx.Response(200, json={"offset": 2}),  # a part of it was taken
        httpx.ReadError("cut"),
        httpx.ReadTimeout("it does not read"),
        httpx.Response(200, json={"offset": 5}),
        httpx.Response(200, json={"offset": 5}),
    )
    box.start_exec("cat", stdin=True).write_stdin("hello", eof=True)
    sent = [(r.url.params.get("offset"), r.url.params.get("eof"), r.content) for r in script.requests[1:]]
    assert sent == [
        ("0", None, b"hello"),
        ("2", None, b"llo"),
        ("2", None, b"llo"),
        ("2", None, b"llo"),
        ("5", "true", b""),
    ]
    for count in (9, -1, "5", None):
        _, box = scripted(started, httpx.Response(200, json={"offset": count}))
        with pytest.raises(cubby.InternalError):
            box.start_exec("cat", stdin=True).write_stdin("hello")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "<html>",
        "[]",
        "null",
        '"x"',
        "{}",
        '{"id":"b"}',
        '{"id":7,"status":"running"}',
        '{"id":"b","status":"running","created_at":"yesterday"}',
        '{"id":"b","status":"running","ports":[true]}',
        '{"id":"b","status":"running","labels":[]}',
        '{"id":"b","status":"running","limits":{"pids":"many"}}',
    ],
)
def test_malformed_answers_are_an_error(body: str, scripted: Any) -> None:
    _, box = scripted(httpx.Response(200, text=body))
    with pytest.raises(cubby.InternalError, match="cannot be read"):
        box.refresh()


def test_answers_of_a_newer_daemon_are_read(scripted: Any) -> None:
    newer = {
        "id": "b",
        "status": "hibernating",
        "limits": {"memory_bytes": 1e9, "gpus": 2},
        "labels": None,
        "reason": None,
        "created_at": "2026-01-02T03:04:05+01:30",
        "invented": {"a": [1]},
    }
    _, box = scripted(httpx.Response(200, json=newer))
    info = box.refresh()
    assert info.status == "hibernating"
    assert info.limits.memory_bytes == 1_000_000_000
    assert info.labels == {}
    assert info.created_at is not None
    assert info.created_at.isoformat() == "2026-01-02T03:04:05+01:30"


def test_git_failures(scripted: Any) -> None:
    failed = {
        "seq": 4,
        "status": "done",
        "exit_code": 128,
        "reason": "exited",
        "kind": "git.pull",
        "result": {"error": {"code": "conflict", "message": "CONFLICT in a", "hint": "merge", "files": ["a"]}},
    }
    _, box = scripted(httpx.Response(200, json=failed))
    with pytest.raises(cubby.GitError, match="CONFLICT") as caught:
        box.git.pull()
    assert (caught.value.code, caught.value.hint, caught.value.files) == ("conflict", "merge", ["a"])
    assert caught.value.result.seq == 4
    ended = {"seq": 4, "status": "error", "exit_code": None, "reason": "timeout", "message": "its time was up"}
    _, box = scripted(httpx.Response(200, json=ended))
    with pytest.raises(cubby.GitError, match="time was up") as caught:
        box.git.pull()
    assert caught.value.code == "timeout"


def test_archives(scripted: Any) -> None:
    kept = httpx.Response(200, json={"name": "a1", "id": "b", "bytes": 5, "created_at": "2026-01-02T03:04:05Z"})
    script, box = scripted(kept, httpx.Response(204))
    archive = box.destroy(archive=True)
    assert archive is not None
    assert (archive.name, archive.id, archive.bytes) == ("a1", "b", 5)
    assert script.requests[0].url.params["archive"] == "true"
    assert box.destroy() is None
    script, box = scripted(httpx.ReadError("cut"))
    with pytest.raises(cubby.UnreachableError):
        box.destroy(archive=True)


@pytest.mark.parametrize("url", ["", "daemon:80", "ftp://daemon", "http://", "http://h:99999", "http://[::1"])
def test_bad_urls_are_told_at_once(url: str) -> None:
    with pytest.raises(cubby.InvalidRequestError, match="URL"):
        _request.base_url(url)


def test_a_token_that_cannot_be_sent_is_told_at_once() -> None:
    with pytest.raises(cubby.InvalidRequestError, match="token"):
        Client("http://daemon", "sécret")


def test_pauses_grow_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 1)
    monkeypatch.setattr(_request.time, "monotonic", lambda: next(clock))
    backoff = _request.Backoff(9)
    cut = cubby.UnreachableError("cut", retryable=True)
    assert [backoff.wait(cut) for _ in range(10)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, None]
    backoff.reset()
    assert backoff.wait(cut) == 0.05
    assert backoff.wait(cubby.NotFoundError("gone")) is None
    assert backoff.wait(cubby.UnavailableError("busy", retryable=True, retry_after=20)) == 20
