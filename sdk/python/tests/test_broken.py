"""A real daemon whose connections break, and that is killed and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import TOKEN, Daemon
from cubby import AsyncClient, Client, Event, EventStream, Output, RichOutput, Sandbox


class CuttingProxy:
    """Forwards connections to the daemon and cuts each after some bytes of its answer."""

    def __init__(self, port: int, most: int) -> None:
        self._port, self._most = port, most
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(near,))
            thread.start()
            self._threads.append(thread)

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self._port)) as far:
            forward = threading.Thread(target=self._copy, args=(near, far, 1 << 60))
            forward.start()
            self._copy(far, near, self._most)
            forward.join()

    def _copy(self, source: socket.socket, target: socket.socket, left: int) -> None:
        with contextlib.suppress(OSError):
            while left > 0 and (data := source.recv(min(4096, left))):
                target.sendall(data)
                left -= len(data)
        for s in (source, target):  # one end is gone: so is the other
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        # A thread that waits for a connection does not notice that its socket is closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def proxy(daemon: Daemon) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(daemon.port, most=150_000)  # more than the largest event
    yield proxy
    proxy.close()


LINES = "".join(f"{i}\n" for i in range(1, 100_001)).encode()
PRINT = ["seq", "100000"]


def test_streams_over_connections_that_break(proxy: CuttingProxy, box: Sandbox) -> None:
    seq = box.start_exec(PRINT).seq
    with Client(proxy.url, TOKEN) as client:
        cut = client.sandboxes.get(box.id)
        chunks = list(cut.process(seq).stream())
        assert b"".join(c.data for c in chunks if isinstance(c, Output)) == LINES
        last = cut.events.list(limit=1).next
        cut.files.write("cut", "x" * 100_000)
    assert proxy.connections > 3
    assert last > 0


def test_async_streams_over_connections_that_break(proxy: CuttingProxy, box: Sandbox) -> None:
    async def scenario() -> None:
        async with AsyncClient(proxy.url, TOKEN) as client:
            cut = await client.sandboxes.get(box.id)
            process = await cut.start_exec(PRINT)
            data = b"".join([c.data async for c in process.stream() if isinstance(c, Output)])
            assert data == LINES

    asyncio.run(scenario())


def test_cells_over_connections_that_break(proxy: CuttingProxy, box: Sandbox) -> None:
    # The whole answer has the last of them, and fits.
    shows = "display({'text/html': str(i) * 30_000}, raw=True, display_id='d', update=i > 0)"
    seq = box.start_code(f"for i in range(20): print(i); {shows}").seq
    with Client(proxy.url, TOKEN) as client:
        chunks = list(client.sandboxes.get(box.id).cell(seq).stream())
    assert b"".join(c.data for c in chunks if isinstance(c, Output)) == "".join(f"{i}\n" for i in range(20)).encode()
    shown = [c.display.html for c in chunks if isinstance(c, RichOutput) and c.display is not None]
    assert shown == [str(i) * 30_000 for i in range(20)]
    assert proxy.connections > 3


def test_a_cell_goes_on_when_the_daemon_is_killed(daemon: Daemon, box: Sandbox) -> None:
    box.run_code("kept = 1", check=True)
    cell = box.start_code(
        "print('one'); print(input('more? ')); display({'text/html': 'x'}, raw=True); kept", stdin=True
    )
    with ThreadPoolExecutor() as threads, cell.stream() as stream:
        waiting = threads.submit(cell.wait)
        chunks = [next(stream), next(stream)]  # what it printed and what it asks, in either order
        daemon.kill()
        daemon.start()
        cell.write_stdin("two\n")
        chunks += list(stream)
        assert b"".join(c.data for c in chunks if isinstance(c, Output)) == b"one\ntwo\n"
        assert [c.kind for c in chunks if isinstance(c, RichOutput)] == ["input", "display", "result"]
        assert waiting.result().text == "1"
    assert box.run_code("kept").text == "1"


def test_everything_goes_on_when_the_daemon_is_killed(daemon: Daemon, box: Sandbox) -> None:
    cat = box.start_exec("cat", stdin=True)
    waited = box.start_exec("read line; echo got $line", stdin=True)
    with ThreadPoolExecutor() as threads, cat.stream() as stream, box.events.follow() as events:
        waiting = threads.submit(waited.wait)
        cat.write_stdin("one\n")
        assert next(stream) == Output("stdout", b"one\n", 0, 4)
        first = next(events)
        daemon.kill()
        daemon.start()
        cat.write_stdin("two\n", eof=True)
        assert b"".join(c.data for c in stream if isinstance(c, Output)) == b"two\n"
        waited.write_stdin("it\n")
        assert waiting.result().stdout == "got it\n"
        ends = [e for e in events_up_to(events, waited.seq) if e.kind == "exec.finished"]
        assert {cat.seq, waited.seq} <= {e.seq for e in ends}
        assert first.cursor < ends[0].cursor


def events_up_to(events: EventStream, seq: int) -> Iterator[Event]:
    """Give entries up to the end of an operation."""
    for event in events:
        yield event
        if (event.kind, event.seq) == ("exec.finished", seq):
            return
