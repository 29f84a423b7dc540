"""What a sandbox may reach, against a real daemon and a server on this machine."""

from __future__ import annotations

import asyncio

import pytest

from conftest import TOKEN, Daemon
from cubby import AsyncClient, Client, InvalidRequestError, Network, Sandbox
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
