"""What can be asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TypedDict

from .models import AutoWake, HostHeader, IdlePolicy, Isolation, Limits, Network, Runtime, Visibility
from .serviceresults import ServiceSpec

__all__ = ["CreateOptions"]


class CreateOptions(TypedDict, total=False):
    """What :meth:`cubby.Sandboxes.create` takes by name, which says what each of them means."""

    image: str | None
    isolation: Isolation | None
    limits: Limits | None
    runtime: Runtime | None
    dependencies: str | Mapping[str, str] | Sequence[str] | None
    env: Mapping[str, str] | None
    user: str | None
    labels: Mapping[str, str] | None
    metadata: Mapping[str, str] | None
    ports: int | Sequence[int] | None
    services: ServiceSpec | Sequence[ServiceSpec] | None
    network: Network | None
    visibility: Visibility | None
    host_header: HostHeader | None
    thread: str | None
    tenant_id: str | None
    shared_files: bool | None
    idle_policy: IdlePolicy | None
    idle_timeout: float | timedelta | None
    auto_wake: AutoWake | None
    exec_timeout: float | timedelta | None
    max_lifetime: float | timedelta | None
    restore: str | None
    snapshot: str | None
    git_remote_url: str | None
    idempotency_key: str | None
