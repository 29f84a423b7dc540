# Made from ../_async/secrets.py by tools/unasync.py; change that one.
"""The secrets of a daemon's tenants."""

from __future__ import annotations

from .._decode import decode, decode_list
from .._request import path as url_path
from .._request import query
from ..models import SecretInfo
from .transport import Transport


class Secrets:
    """What the operator sets for the tasks of tenants, such as keys of model providers. No call returns a value.

    A token that belongs to a tenant gets a ForbiddenError. tenant_id None is that of sandboxes that belong to none.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def set(self, name: str, value: str, *, tenant_id: str | None = None) -> SecretInfo:
        """Set a secret, or replace its value.

        Args:
            name: that of an environment variable.
            value: at most 32 KiB of text without NUL.
            tenant_id: whose it is.
        """
        params = query(tenant_id=tenant_id)
        answer = self._transport.call(
            "PUT", url_path("secrets", name), params=params, json={"value": value}, repeat=True
        )
        return decode(SecretInfo, answer)

    def remove(self, name: str, *, tenant_id: str | None = None) -> None:
        """Remove a secret; a NotFoundError when it is not set."""
        self._transport.call("DELETE", url_path("secrets", name), params=query(tenant_id=tenant_id), repeat=True)

    def list(self, *, tenant_id: str | None = None) -> list[SecretInfo]:
        """Return the secrets of a tenant, by name."""
        answer = self._transport.call("GET", url_path("secrets"), params=query(tenant_id=tenant_id), repeat=True)
        return decode_list(SecretInfo, answer, "secrets")
