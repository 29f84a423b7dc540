"""The secrets of a daemon's tenants."""

from __future__ import annotations

from .._decode import decode, decode_list
from .._request import path as url_path
from .._request import query
from ..models import SecretInfo
from .transport import AsyncTransport


class AsyncSecrets:
    """What the operator sets for the tasks of tenants, such as keys of model providers. No call returns a value.

    A token that belongs to a tenant gets a ForbiddenError. tenant_id None is that of sandboxes that belong to none.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def set(self, name: str, value: str, *, tenant_id: str | None = None) -> SecretInfo:
        """Set a secret, or replace its value.

        Args:
            name: that of an environment variable.
            value: at most 32 KiB of text without NUL.
            tenant_id: whose it is.
        """
        params = query(tenant_id=tenant_id)
        answer = await self._transport.call(
            "PUT", url_path("secrets", name), params=params, json={"value": value}, repeat=True
        )
        return decode(SecretInfo, answer)

    async def remove(self, name: str, *, tenant_id: str | None = None) -> None:
        """Remove a secret; a NotFoundError when it is not set."""
        await self._transport.call("DELETE", url_path("secrets", name), params=query(tenant_id=tenant_id), repeat=True)

    async def list(self, *, tenant_id: str | None = None) -> list[SecretInfo]:
        """Return the secrets of a tenant, by name."""
        answer = await self._transport.call("GET", url_path("secrets"), params=query(tenant_id=tenant_id), repeat=True)
        return decode_list(SecretInfo, answer, "secrets")
