"""The sandboxes of a daemon."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta

from .._decode import decode, decode_list
from .._lists import port_list, service_list, wanted
from .._request import INSTALL_WAIT, compact, path, query, seconds
from ..models import (
    AutoWake,
    HostHeader,
    IdlePolicy,
    Isolation,
    Limits,
    Network,
    Runtime,
    SandboxInfo,
    Status,
    Visibility,
)
from ..serviceresults import ServiceSpec
from .sandbox import AsyncSandbox
from .transport import AsyncTransport, Params


class AsyncSandboxes:
    """The daemon's sandboxes, as far as the token may see them."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        id: str | None = None,
        *,
        image: str | None = None,
        isolation: Isolation | None = None,
        limits: Limits | None = None,
        runtime: Runtime | None = None,
        dependencies: str | Mapping[str, str] | Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        ports: int | Sequence[int] | None = None,
        services: ServiceSpec | Sequence[ServiceSpec] | None = None,
        network: Network | None = None,
        visibility: Visibility | None = None,
        host_header: HostHeader | None = None,
        thread: str | None = None,
        tenant_id: str | None = None,
        shared_files: bool | None = None,
        idle_policy: IdlePolicy | None = None,
        idle_timeout: float | timedelta | None = None,
        auto_wake: AutoWake | None = None,
        exec_timeout: float | timedelta | None = None,
        max_lifetime: float | timedelta | None = None,
        restore: str | None = None,
        snapshot: str | None = None,
        git_remote_url: str | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncSandbox:
        """Make a sandbox and return when it runs.

        Every argument may be left out. A request whose answer was lost is repeated without making a second sandbox.

        Args:
            id: its name; generated when absent.
            image: what it starts from; default ``base``.
            isolation: ``"gvisor"`` (default) or ``"container"``.
            limits: bounds of what it can use.
            runtime: the language that it is for, ``"python"``, ``"node"`` or ``"r"``: that of code and packages that
                name none.
            dependencies: packages of the runtime to install: a name, names, or names with versions; an empty version
                is any. When that fails there is no sandbox, and the error has the end of the installer's log.
            env: variables of every command.
            user: who commands run as; default ``sandbox``.
            labels: what lists can be filtered by.
            metadata: notes.
            ports: what something in it will serve; with ``visibility="public"`` everybody may see these.
            services: commands that run for as long as it does; their ports are declared ones too.
            network: how far it can reach.
            visibility: ``"private"`` (default) or ``"public"``: who may see its ports.
            host_header: the Host that apps see in requests of previews: ``"localhost"`` (default) with the port, or
                ``"preserve"``, the preview's own.
            thread: groups sandboxes of one conversation; the daemon may bound their number.
            tenant_id: whose it is; default the token's tenant, if it belongs to one.
            shared_files: whether /workspace and /mnt/user-data are on the tenant's disk, with those of its other
                sandboxes; default true where ``tenant_id`` is given.
            idle_policy: what happens when it is not used: ``"sleep"`` (default), ``"stop"``, ``"destroy"`` or
                ``"always_on"``.
            idle_timeout: seconds without use after which that happens; 0 is never.
            auto_wake: when a use runs it again: ``"idle"`` (default) when it sleeps or the daemon stopped it,
                ``"always"`` also when a request stopped it or it died, or ``"never"``.
            exec_timeout: seconds after which commands that name none are killed; 0 is never.
            max_lifetime: seconds after which it is destroyed whatever it does; 0 is never.
            restore: the archive to fill /workspace and /home/sandbox from.
            snapshot: the snapshot to begin from, by its id or name; it says image, isolation, limits and user.
            git_remote_url: the repository that each task that succeeds is pushed to, to its branch main, with the
                operator's secret GIT_TOKEN.
            idempotency_key: makes a repeat of the same call, also by another program, return the same sandbox.
        """
        body = compact(
            id=id,
            image=image,
            isolation=isolation,
            limits=limits,
            runtime=runtime,
            dependencies=wanted(dependencies or ()) or None,
            env=env,
            user=user,
            labels=labels,
            metadata=metadata,
            ports=port_list(ports),
            services=service_list(services),
            network=network,
            visibility=visibility,
            host_header=host_header,
            thread=thread,
            tenant_id=tenant_id,
            shared_files=shared_files,
            idle_policy=idle_policy,
            idle_timeout_seconds=seconds(idle_timeout),
            auto_wake=auto_wake,
            exec_timeout_seconds=seconds(exec_timeout),
            max_lifetime_seconds=seconds(max_lifetime),
            restore=restore,
            snapshot=snapshot,
            git_remote_url=git_remote_url,
        )
        headers = {"Idempotency-Key": idempotency_key or f"python-{uuid.uuid4()}"}
        wait = INSTALL_WAIT if dependencies else 0
        answer = await self._transport.call(
            "POST", path("sandboxes"), json=body, headers=headers, wait=wait, repeat=True
        )
        return AsyncSandbox(self._transport, decode(SandboxInfo, answer))

    async def get(self, id: str) -> AsyncSandbox:
        """Return a sandbox by its id."""
        answer = await self._transport.call("GET", path("sandboxes", id), repeat=True)
        return AsyncSandbox(self._transport, decode(SandboxInfo, answer))

    async def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        status: Status | None = None,
        thread: str | None = None,
        tenant_id: str | None = None,
        page_size: int | None = None,
    ) -> AsyncIterator[AsyncSandbox]:
        """Iterate over sandboxes, newest first, fetching page by page.

        Args:
            labels: only those that have all of these.
            status: only those; without it all but destroyed ones.
            thread: only those of a thread.
            tenant_id: only those of a tenant.
            page_size: how many are fetched at a time; None is the daemon's choice.
        """
        cursor: str | None = None
        filters = [("label", f"{k}={v}") for k, v in (labels or {}).items()]
        while True:
            fields = query(status=status, thread=thread, tenant_id=tenant_id, limit=page_size, cursor=cursor)
            params: Params = [*filters, *fields.items()]
            answer = await self._transport.call("GET", path("sandboxes"), params=params, repeat=True)
            for info in decode_list(SandboxInfo, answer, "sandboxes"):
                yield AsyncSandbox(self._transport, info)
            cursor = answer.get("next_cursor")
            if not cursor:
                return
