"""Services: commands that run for as long as their sandbox does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from ._short import Short

__all__ = ["RestartPolicy", "Service", "ServiceSpec", "ServiceState"]

RestartPolicy = Literal["always", "on_failure", "never"]
"""Whether a service starts again when its command has ended: always, unless it exited with 0, or never."""

ServiceState = Literal["waiting", "starting", "running", "ready", "backoff", "failed", "stopped", "sleeping"]
"""What a service does."""


@dataclass(frozen=True, repr=False)
class ServiceSpec(Short):
    """A service as it is declared.

    ``command`` is for the shell. ``port`` is what it listens on: a declared port, and ``PORT`` in its environment.
    ``cwd`` is ``/workspace`` by default, ``env`` is on top of the sandbox's and never shown again, ``restart`` is
    ``always`` by default, and ``requires`` is an absolute path that has to exist before the first start.
    """

    _shown: ClassVar[Sequence[str]] = ("name", "command", "port")

    name: str
    command: str
    port: int | None = None
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    restart: RestartPolicy | None = None
    requires: str | None = None


@dataclass(frozen=True, repr=False)
class Service(Short):
    """A service of a sandbox as it stands.

    ``state`` is ``waiting`` for the path that it requires, ``starting`` until it runs and listens on its port,
    ``ready`` then, ``running`` without a port, ``backoff`` between an end and the next start, ``failed`` when it is
    given up, ``stopped``, or ``sleeping`` with its sandbox. ``reason`` says why it failed or cannot be started now.
    ``exec`` is the seq of its last run, 0 before the first; ``exit_code`` and ``exit_reason`` say how that ended.
    ``restarts`` counts since the sandbox was started. ``url`` is the preview of its port, for whoever may see it.
    """

    _shown: ClassVar[Sequence[str]] = ("name", "state", "port", "restarts", "reason")

    name: str
    command: str = ""
    port: int = 0
    cwd: str = ""
    restart: Literal[RestartPolicy, ""] = ""
    requires: str = ""
    state: Literal[ServiceState, ""] = ""
    reason: str = ""
    pid: int = 0
    restarts: int = 0
    exec: int = 0
    exit_code: int | None = None
    exit_reason: str = ""
    started_at: datetime | None = None
    url: str = ""
