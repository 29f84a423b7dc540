"""Terminals, against a real daemon."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator

import pytest

from conftest import TOKEN, Daemon, running_daemon
from cubby import (
    AsyncClient,
    Client,
    InvalidRequestError,
    NotFoundError,
    Sandbox,
    Terminal,
    TerminalExit,
    UnauthorizedError,
    UnreachableError,
    UnsupportedError,
    WindowSize,
)


@pytest.fixture
def opened(box: Sandbox) -> Iterator[Terminal]:
    """A shell, which is killed when it does not end by itself in time."""
    terminal = box.open_terminal("sdk", size=WindowSize(80, 24), cmd="bash --norc")

    def end() -> None:
        with contextlib.suppress(NotFoundError):
            box.close_terminal("sdk")

    watchdog = threading.Timer(120, end)
    watchdog.start()
    with terminal:
        yield terminal
    watchdog.cancel()
    watchdog.join()


def until(terminal: Terminal, text: bytes) -> bytes:
    """Read until it shows something."""
    seen = b""
    for data in terminal:
        seen += data
        if text in seen:
            return seen
    raise AssertionError(f"it has ended: {terminal.exit} {seen!r}")


def test_a_shell(box: Sandbox, opened: Terminal) -> None:
    assert (opened.name, opened.new, opened.exit) == ("sdk", True, None)
    opened.write("echo $((6 * 7))\n")
    until(opened, b"42\r\n")
    opened.resize(100, 30)
    opened.write("stty size\n")
    until(opened, b"30 100\r\n")
    [info] = [t for t in box.terminals() if t.name == "sdk"]
    assert (info.seq, info.cmd, info.cols, info.rows, info.viewers) == (opened.seq, "bash --norc", 100, 30, 1)

    with box.open_terminal("sdk") as second:  # another look sees what was, and what comes
        assert not second.new
        assert b"42\r\n" in until(second, b"30 100\r\n")
        opened.write("exit 3\n")
        assert b"".join(second).endswith(b"exit\r\n")
        assert second.exit == TerminalExit(3, "exited")
    while opened.read():
        pass
    assert opened.exit == TerminalExit(3, "exited")
    assert opened.read() == b""
    again = box.open_terminal(seq=opened.seq, after=opened.offset)
    with again:
        assert again.read() == b""
        assert again.exit == TerminalExit(3, "exited")


def test_leaving(box: Sandbox) -> None:
    left = box.open_terminal("sdk-left", cmd="sleep 1000")
    left.close()
    assert left.read() == b""
    assert [t.viewers for t in box.terminals() if t.name == "sdk-left"] != []
    box.close_terminal("sdk-left")
    with box.open_terminal(seq=left.seq) as ended:
        assert list(ended) == []
        assert ended.exit is not None
        assert ended.exit.reason == "killed"


def test_refusals(daemon: Daemon, box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequestError):
        box.open_terminal("not a name!")
    with pytest.raises(NotFoundError):
        box.open_terminal(seq=1 << 40)
    with pytest.raises(NotFoundError):
        box.close_terminal("none")
    with Client(daemon.url, "wrong") as nobody, pytest.raises(UnauthorizedError):
        Sandbox(nobody._transport, box.info).open_terminal()
    with Client("http://127.0.0.1:9", "t") as nobody, pytest.raises(UnreachableError):
        Sandbox(nobody._transport, box.info).open_terminal()
    monkeypatch.delitem(sys.modules, "cubby._websocket", raising=False)
    monkeypatch.setitem(sys.modules, "websockets.exceptions", None)
    with pytest.raises(UnsupportedError) as caught:
        box.open_terminal()
    assert "cubby-sdk[terminal]" in caught.value.hint


def test_a_restarted_daemon() -> None:
    async def run(daemon: Daemon) -> None:
        async with (
            AsyncClient(daemon.url, TOKEN) as client,
            await client.sandboxes.create(isolation="container") as box,
            await box.open_terminal(cmd="bash --norc") as terminal,
        ):
            await terminal.write("echo $((1000 + 1))\n")
            seen = b""
            while b"1001" not in seen:
                data = await terminal.read()
                assert data, terminal.exit
                seen += data
            await asyncio.to_thread(daemon.kill)
            await asyncio.to_thread(daemon.start)
            # What is typed from elsewhere shows here, after what was there before, once.
            async with await box.open_terminal() as other:
                await other.write("echo $((1000 + 2)); exit\n")
                while data := await terminal.read():
                    seen += data
            assert seen.count(b"1001\r\n") == 1
            assert seen.count(b"1002\r\n") == 1
            assert terminal.exit == TerminalExit(0, "exited")

    with running_daemon() as daemon:
        asyncio.run(asyncio.wait_for(run(daemon), 300))
