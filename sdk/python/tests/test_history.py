"""The history of real sandboxes, and operations as entries of it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone

import pytest

from conftest import TOKEN, Daemon
from cubby import AsyncClient, Client, InvalidRequestError, NotFoundError, RequestTimeoutError, Sandbox


def test_entries_and_pages(box: Sandbox) -> None:
    seq = box.exec("echo in the history", env={"SECRET_OF_THE_TEST": "hunter2"}).seq
    entries, after = [], 0
    while page := box.events.list(after=after, limit=3).events:
        entries += page
        after = page[-1].cursor
    assert [e.cursor for e in entries] == sorted({e.cursor for e in entries})
    assert entries[0].kind == "sandbox.created"
    mine = [e for e in entries if e.seq == seq]
    assert [(e.kind, e.status) for e in mine] == [("exec.started", "running"), ("exec.finished", "done")]
    assert mine[0].actor == "sdk"
    assert mine[0].time.utcoffset() == timedelta()
    assert "hunter2" not in repr(entries)
    assert all(e.kind.startswith("sandbox.") for e in box.events.list(kinds=["sandbox.*"]).events)
    with pytest.raises(InvalidRequestError):
        box.events.list(limit=-1)


def test_waiting_for_an_operation(box: Sandbox) -> None:
    process = box.start_exec("read line; echo got $line", stdin=True)
    with pytest.raises(RequestTimeoutError):
        box.events.wait(process.seq, timeout=0.1)
    process.write_stdin("it", eof=True)
    assert box.events.wait(process.seq, timeout=60).stdout == "got it\n"
    with pytest.raises(NotFoundError):
        box.events.wait(1_000_000)


def test_following_up_to_the_end(client: Client) -> None:
    with client.sandboxes.create(isolation="container") as box:
        with box.events.follow(kinds=["exec.finished", "sandbox.destroyed"]) as follow:
            for i in range(3):
                seq = box.exec(f"exit {i}").seq
                assert next(follow).seq == seq
            cursor = follow.cursor
        box.exec("true")
        with box.events.follow(after=cursor) as follow:
            assert next(follow).cursor > cursor
            box.destroy()
            rest = list(follow)
    assert rest[-1].kind == "sandbox.destroyed"
    assert list(box.events.follow(after=rest[-2].cursor)) == rest[-1:]


def test_following_async(daemon: Daemon, box: Sandbox) -> None:
    async def scenario() -> None:
        async with AsyncClient(daemon.url, TOKEN) as client:
            there = await client.sandboxes.get(box.id)
            last = (await there.events.list(limit=1000)).next
            async with there.events.follow(after=last) as follow:
                process = await there.start_exec("echo followed")
                kinds = [(await anext(follow)).kind, (await anext(follow)).kind]
            assert kinds == ["exec.started", "exec.finished"]
            assert (await there.events.wait(process.seq)).stdout == "followed\n"

    asyncio.run(scenario())


def test_keepalive_and_lifetime(client: Client) -> None:
    with client.sandboxes.create(
        isolation="container", idle_timeout=600, max_lifetime=timedelta(hours=2), thread="sdk-thread"
    ) as box:
        info = box.info
        assert (info.max_lifetime_seconds, info.thread, info.idle_timeout_seconds) == (7200, "sdk-thread", 600)
        assert info.created_at is not None
        assert info.expires_at is not None
        assert abs(info.expires_at - info.created_at - timedelta(hours=2)) < timedelta(minutes=1)
        until = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(hours=1)
        assert box.keepalive(until=until).kept_until == until
        kept = box.keepalive(duration=timedelta(minutes=90)).kept_until
        assert kept is not None
        assert kept > until
        assert box.keepalive().idle_timeout_seconds == 600
        assert box.update(max_lifetime=3600).max_lifetime_seconds == 3600
        with pytest.raises(InvalidRequestError, match="zone"):
            box.keepalive(until=datetime(2030, 1, 1))
