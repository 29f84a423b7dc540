"""Secrets of tenants, against a real daemon."""

from __future__ import annotations

import asyncio

import pytest

from conftest import TOKEN, Daemon
from cubby import AsyncClient, Client, InvalidRequestError, NotFoundError, TooLargeError


def test_a_secret_is_set_listed_and_removed(client: Client) -> None:
    set_first = client.secrets.set("API_KEY", "hush-5be00d21", tenant_id="sdk-acme")
    assert (set_first.name, set_first.tenant_id) == ("API_KEY", "sdk-acme")
    assert set_first.updated_at is not None
    client.secrets.set("OTHER", "line\nline\n", tenant_id="sdk-acme")
    set_again = client.secrets.set("API_KEY", "hush-77f3a9c0", tenant_id="sdk-acme")
    listed = client.secrets.list(tenant_id="sdk-acme")
    assert [s.name for s in listed] == ["API_KEY", "OTHER"]
    assert listed[0] == set_again
    assert "hush" not in repr(listed)
    assert client.secrets.list(tenant_id="sdk-other") == []
    assert "API_KEY" not in [s.name for s in client.secrets.list()]
    for name in ("API_KEY", "OTHER"):
        client.secrets.remove(name, tenant_id="sdk-acme")
    assert client.secrets.list(tenant_id="sdk-acme") == []
    with pytest.raises(NotFoundError):
        client.secrets.remove("API_KEY", tenant_id="sdk-acme")


def test_secrets_of_no_tenant(client: Client) -> None:
    assert client.secrets.set("SDK_KEY", "v").tenant_id == ""
    assert "SDK_KEY" in [s.name for s in client.secrets.list()]
    client.secrets.remove("SDK_KEY")


def test_what_no_secret_is(client: Client) -> None:
    for name, value, error in (
        ("A-B", "hush", InvalidRequestError),
        ("KEY", "", InvalidRequestError),
        ("KEY", "hush\0", InvalidRequestError),
        ("KEY", "hush" * 8193, TooLargeError),
    ):
        with pytest.raises(error) as caught:
            client.secrets.set(name, value)
        assert "hush" not in str(caught.value)


def test_asyncio(daemon: Daemon) -> None:
    async def run() -> None:
        async with AsyncClient(daemon.url, TOKEN) as client:
            await client.secrets.set("KEY", "v", tenant_id="sdk-async")
            assert [s.name for s in await client.secrets.list(tenant_id="sdk-async")] == ["KEY"]
            await client.secrets.remove("KEY", tenant_id="sdk-async")
            assert await client.secrets.list(tenant_id="sdk-async") == []

    asyncio.run(asyncio.wait_for(run(), 120))
