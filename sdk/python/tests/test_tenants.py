"""Tenants, against a real daemon."""

from __future__ import annotations

import asyncio

import pytest

from conftest import TOKEN, Daemon
from cubby import AsyncClient, Client, ConflictError, InvalidRequestError, NotFoundError
from cubby.compat.agentbox import Sandbox


def test_sandboxes_of_a_tenant_share_files(daemon: Daemon, client: Client) -> None:
    written = client.tenants.write_upload("sdk-acme", "in/data.csv", "x,y\n")
    assert written.size == 4
    with (
        client.sandboxes.create(isolation="container", tenant_id="sdk-acme") as one,
        client.sandboxes.create(isolation="container", tenant_id="sdk-acme") as other,
    ):
        assert one.info.tenant_id == "sdk-acme"
        assert one.exec("cp /mnt/user-data/uploads/in/data.csv shared.csv", check=True).ok
        assert other.files.read_text("shared.csv") == "x,y\n"
        assert not other.exec("touch /mnt/user-data/uploads/new").ok
        assert {b.id for b in client.sandboxes.list(tenant_id="sdk-acme")} == {one.id, other.id}
        tenant = client.tenants.get("sdk-acme")
        assert (tenant.tenant_id, tenant.sandboxes, tenant.running) == ("sdk-acme", 2, 2)
        assert tenant.disk.bytes > 0
        with pytest.raises(ConflictError):
            client.tenants.remove("sdk-acme")
    with Sandbox(daemon.url, TOKEN) as session:  # what they wrote outlives them
        assert session.create(tenant_id="sdk-acme").tenant_id == "sdk-acme"
        assert session.read_file("shared.csv") == "x,y\n"

    assert "sdk-acme" in [t.tenant_id for t in client.tenants.list(page_size=1)]
    assert client.tenants.read_upload("sdk-acme", "in/data.csv") == b"x,y\n"
    assert [f.name for f in client.tenants.uploads("sdk-acme", recursive=True)] == ["in", "data.csv"]
    client.tenants.remove_upload("sdk-acme", "in", recursive=True)
    assert client.tenants.uploads("sdk-acme") == []
    client.tenants.remove("sdk-acme")
    with pytest.raises(NotFoundError):
        client.tenants.get("sdk-acme")


def test_names(client: Client) -> None:
    for bad in ("a..b", "-a", "a/b", "a" * 65):
        with pytest.raises(InvalidRequestError):
            client.sandboxes.create(isolation="container", tenant_id=bad)


def test_asyncio(daemon: Daemon) -> None:
    async def run() -> None:
        async with AsyncClient(daemon.url, TOKEN) as client:
            await client.tenants.write_upload("sdk-async", "a", b"1")
            assert [f.name for f in await client.tenants.uploads("sdk-async")] == ["a"]
            assert "sdk-async" in [t.tenant_id async for t in client.tenants.list()]
            await client.tenants.remove("sdk-async")

    asyncio.run(asyncio.wait_for(run(), 120))
