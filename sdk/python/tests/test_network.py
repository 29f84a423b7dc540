"""What a sandbox may reach, against a real daemon and a server on this machine."""

from __future__ import annotations

import asyncio

import pytest

from conftest import TOKEN, Daemon
from cubby import AsyncClient, Client, InvalidRequestError, Network, Output, Sandbox
from registries import ELSEWHERE

ASK = "curl -sS -o /dev/null -w '%{{http_code}}' {0}"


def status(box: Sandbox, url: str) -> str:
    """What a request in the sandbox gets."""
    return box.exec(ASK.format(url), timeout=60).stdout


def test_policy(daemon: Daemon, client: Client) -> None:
    index = f"{daemon.registries.url}/simple/demo/"
    target = daemon.registries.url.removeprefix("http://")
    with client.sandboxes.create(isolation="container") as box:
        # The operator of the test's daemon allows this address to every sandbox that has a network.
        assert box.network.get().mode == "allowlist"
        assert box.network.connections() == []
        assert status(box, index) == "200"
        decided = box.network.explain(target)
        assert (decided.allow, decided.host, decided.rule) == (True, ELSEWHERE, "operator")
        assert decided.port == int(target.split(":")[1])

        assert box.network.update(deny=[ELSEWHERE]) == Network("allowlist", deny=[ELSEWHERE])
        assert status(box, index) == "403"
        decided = box.network.explain(target)
        assert (decided.allow, decided.rule) == (False, "deny")
        assert decided.reason

        assert box.network.update(allow=["*.example.com"]) == Network("allowlist", ["*.example.com"], [ELSEWHERE])
        assert box.network.update(deny=[]).deny == []
        assert status(box, index) == "200"
        assert box.network.update(mode="none").mode == box.info.network.mode == "none"
        assert status(box, index) == "403"
        refused = box.network.explain("pypi.org")
        assert (refused.allow, refused.port, refused.rule) == (False, 443, "none")
        assert refused.hint

        for bad in ("", "host:port"):
            with pytest.raises(InvalidRequestError):
                box.network.explain(bad)
        with pytest.raises(InvalidRequestError):
            box.network.update(mode="sometimes")
        with pytest.raises(InvalidRequestError):
            box.network.update(allow=["not a host"])


HOLD = """
import socket, sys
with socket.create_connection(("127.0.0.1", 3128)) as s:
    s.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\nHost: {sys.argv[1]}\\r\\n\\r\\n".encode())
    print(s.recv(4096).split()[1].decode(), flush=True)
    try:
        more = s.recv(1)
    except ConnectionError:
        more = b""
    print("more" if more else "ended")
"""


def test_open_connections_are_cut_on_request(daemon: Daemon, client: Client) -> None:
    target = daemon.registries.url.removeprefix("http://")
    with client.sandboxes.create(isolation="container") as box:
        holding = box.start_exec(["python3", "-c", HOLD, target], timeout=120)
        with holding.stream() as stream:
            first = next(stream)
            assert isinstance(first, Output)
            assert first.text == "200\n"
            box.network.update(deny=[ELSEWHERE])
            assert holding.get().status == "running"
            box.network.update(cut=True)
        assert holding.wait(120).stdout == "200\nended\n"


def test_asyncio(daemon: Daemon) -> None:
    async def run() -> None:
        async with (
            AsyncClient(daemon.url, TOKEN) as client,
            await client.sandboxes.create(isolation="container") as box,
        ):
            for url in (f"{daemon.registries.url}/simple/demo/", "http://10.0.0.1/"):
                await box.exec(ASK.format(url), timeout=60)
            hosts: dict[str, object] = {}
            async with box.events.follow(kinds=["egress.*"]) as events:
                async for event in events:
                    hosts[event.kind] = event.payload["host"]
                    if len(hosts) == 2:
                        break
            assert hosts == {"egress.allowed": ELSEWHERE, "egress.denied": "10.0.0.1"}

            assert (await box.network.update(mode="open", deny=["example.com"])).mode == "open"
            assert (await box.network.get()).deny == ["example.com"]
            assert not (await box.network.explain("example.com")).allow

    asyncio.run(asyncio.wait_for(run(), 120))
