"""What the API's answers hold.

All of them are immutable. Times are aware and in UTC, durations are seconds unless the name says otherwise, sizes are
bytes. What a newer daemon adds is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Literal

from ._short import Short
from .execresults import (
    Chunk,
    EndReason,
    ExecKind,
    ExecResult,
    ExecStatus,
    Exit,
    Output,
    OutputKind,
    SessionInfo,
    TerminalExit,
    TerminalInfo,
    Truncated,
    WindowSize,
)
from .fileresults import (
    FileChange,
    FileInfo,
    FileOperation,
    FileType,
)
from .historyresults import (
    Event,
    EventKind,
    EventPage,
)
from .networkresults import (
    EgressConnection,
    EgressDecision,
    EgressRule,
    Network,
    NetworkMode,
)
from .serviceresults import ServiceSpec

__all__ = [
    "Archive",
    "AutoWake",
    "Chunk",
    "Condition",
    "EgressConnection",
    "EgressDecision",
    "EgressRule",
    "EndReason",
    "Event",
    "EventKind",
    "EventPage",
    "ExecKind",
    "ExecResult",
    "ExecStatus",
    "Exit",
    "FileChange",
    "FileInfo",
    "FileOperation",
    "FileType",
    "HostHeader",
    "IdlePolicy",
    "Image",
    "ImageDefinition",
    "ImageSteps",
    "Isolation",
    "Limits",
    "Link",
    "Network",
    "NetworkMode",
    "Output",
    "OutputKind",
    "Port",
    "Problem",
    "Runtime",
    "SandboxInfo",
    "SecretInfo",
    "SessionInfo",
    "Stats",
    "Status",
    "TenantDisk",
    "TenantInfo",
    "TerminalExit",
    "TerminalInfo",
    "ThreadInfo",
    "Truncated",
    "Visibility",
    "WindowSize",
]


Isolation = Literal["gvisor", "container"]
"""What keeps a sandbox from the host."""


Status = Literal["creating", "running", "sleeping", "stopped", "failed", "destroyed"]
"""Where a sandbox stands in its life. A stopped one has its files."""


Runtime = Literal["python", "node", "r"]
"""The language that a sandbox is for."""


IdlePolicy = Literal["stop", "destroy", "sleep", "always_on"]
"""What happens to a sandbox that is not used."""


AutoWake = Literal["idle", "always", "never"]
"""When a use runs a sandbox again: ``idle`` when it sleeps or the daemon stopped it, ``always`` also when a request
stopped it or it died."""


Visibility = Literal["private", "public"]
"""Who may see a sandbox's ports."""


HostHeader = Literal["localhost", "preserve"]
"""The Host that apps see in requests of previews: ``localhost`` and the port, or the preview's own."""


@dataclass(frozen=True, repr=False)
class Limits(Short):
    """Bounds of what a sandbox can use. In a request, None is the daemon's default."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    disk_bytes: int | None = None
    open_files: int | None = None


@dataclass(frozen=True, repr=False)
class Condition(Short):
    """Something that keeps a running sandbox from working as it should.

    ``type`` is ``disk_failed``: a disk of it is read-only because writing to the host's disk failed, until the sandbox
    is restarted, which happens by itself once the host has room; or ``disk_held``: what writes to its disks waits,
    because the host's disk is nearly full. ``reason`` is for people.
    """

    _shown: ClassVar[Sequence[str]] = ("type", "reason")

    type: Literal["disk_failed", "disk_held"]
    reason: str = ""


@dataclass(frozen=True, repr=False)
class SandboxInfo(Short):
    """How a sandbox stood when the daemon was asked. Its environment is never reported.

    ``status`` is ``creating``, ``running``, ``sleeping``, ``stopped``, ``failed`` or ``destroyed``; ``reason`` says why
    it failed, why it stopped or sleeps when nobody asked, or why it was stopped instead of put to sleep. With
    ``restore_incomplete`` its memory was lost while it slept, and it started again from its files: ``reason`` says what
    that means. ``expires_at``, ``idle_at`` and ``kept_until`` are None where they do not apply. ``active_task_id`` is
    the task that runs, where the daemon was asked for this sandbox alone. ``warnings`` say what it has in common with
    others of its memory and should not, as the state of a program's random generator, and what it lost over that: after
    a create from a snapshot with memory, and in the answer of a rollback to one. ``conditions`` are what keeps it from
    working as it should, while it runs.
    """

    _shown: ClassVar[Sequence[str]] = ("id", "status", "reason", "image", "isolation", "runtime", "tenant_id")

    id: str
    status: Status
    reason: str = ""
    restore_incomplete: bool = False
    image: str = ""
    isolation: Literal[Isolation, ""] = ""
    runtime: Literal[Runtime, ""] = ""
    dependencies: dict[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    user: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    ports: list[int] = field(default_factory=list)
    services: list[ServiceSpec] = field(default_factory=list)
    network: Network = field(default_factory=Network)
    visibility: Literal[Visibility, ""] = ""
    host_header: Literal[HostHeader, ""] = ""
    thread: str = ""
    tenant_id: str = ""
    shared_files: bool = False
    git_remote_url: str = ""
    active_task_id: str = ""
    warnings: list[str] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    idle_policy: Literal[IdlePolicy, ""] = ""
    idle_timeout_seconds: float = 0.0
    auto_wake: Literal[AutoWake, ""] = ""
    exec_timeout_seconds: float = 0.0
    max_lifetime_seconds: float = 0.0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    started_at: datetime | None = None
    stopped_at: datetime | None = None
    last_active_at: datetime | None = None
    idle_at: datetime | None = None
    kept_until: datetime | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, repr=False)
class Port(Short):
    """A TCP port of a sandbox.

    ``listening`` says whether something accepts connections now, ``declared`` whether it is among the sandbox's ports.
    ``program`` and ``pid`` are of a process that listens, "" and 0 when that cannot be told. ``url`` is its preview,
    for whoever may see it, or "" while the daemon serves none.
    """

    _shown: ClassVar[Sequence[str]] = ("port", "program", "declared", "url")

    port: int
    listening: bool = False
    declared: bool = False
    program: str = ""
    pid: int = 0
    url: str = ""


@dataclass(frozen=True, repr=False)
class Link(Short):
    """Shows a port to whoever has it, until it expires."""

    _shown: ClassVar[Sequence[str]] = ("expires_at",)

    url: str
    expires_at: datetime | None = None


@dataclass(frozen=True, repr=False)
class Stats(Short):
    """What a sandbox uses now. ``pids`` is -1 where the host cannot count them.

    ``memory_on_disk_bytes`` is what the kept memory of a sleeping one takes of the host's disk.
    """

    memory_bytes: int = 0
    memory_on_disk_bytes: int = 0
    cpu_seconds: float = 0.0
    pids: int = 0
    disk_bytes: int = 0
    disk_used_bytes: int = 0
    execs: int = 0


@dataclass(frozen=True, repr=False)
class Archive(Short):
    """The files of a destroyed sandbox in the daemon's archive storage; a create takes its name as ``restore``.

    ``id`` is the sandbox's; ``bytes`` is what the archive takes in the storage.
    """

    name: str
    id: str = ""
    image: str = ""
    isolation: Literal[Isolation, ""] = ""
    bytes: int = 0
    created_at: datetime | None = None


@dataclass(frozen=True, repr=False)
class ImageSteps(Short):
    """What a build does in a sandbox: first npm's packages, then pip's, then the commands, which reach ``allow``."""

    _shown = ("npm", "pip", "run")

    npm: list[str] = field(default_factory=list)
    pip: list[str] = field(default_factory=list)
    run: list[str] = field(default_factory=list)
    allow: list[str] = field(default_factory=list)


@dataclass(frozen=True, repr=False)
class ImageDefinition(Short):
    """What an image was made of: a built-in ``recipe``, or the ``image`` of a digest, with packages and steps."""

    recipe: str = ""
    image: str = ""
    apt: list[str] = field(default_factory=list)
    steps: list[ImageSteps] = field(default_factory=list)


@dataclass(frozen=True, repr=False)
class Image(Short):
    """A root filesystem that sandboxes start from.

    ``definition`` is of one that was built from another image. The recipe of an
    ``outdated`` one has changed since it was built.
    """

    name: str
    digest: str
    size: int = 0
    created_at: datetime | None = None
    source: str = ""
    definition: ImageDefinition | None = None
    damaged: bool = False
    problem: str = ""
    outdated: bool = False


@dataclass(frozen=True, repr=False)
class ThreadInfo(Short):
    """A thread that has sandboxes. ``running`` of them run; ``created_at`` is of the oldest."""

    thread: str
    sandboxes: int = 0
    running: int = 0
    created_at: datetime | None = None
    last_active_at: datetime | None = None


@dataclass(frozen=True, repr=False)
class TenantDisk(Short):
    """The disk that a tenant's sandboxes share.

    ``used_bytes`` is 0 while nothing of the tenant runs; ``allocated_bytes`` is what it takes on the host.
    """

    bytes: int = 0
    used_bytes: int = 0
    allocated_bytes: int = 0


@dataclass(frozen=True, repr=False)
class TenantInfo(Short):
    """A tenant that has shared files. ``sandboxes`` run or are stopped; ``running`` of them run."""

    tenant_id: str
    sandboxes: int = 0
    running: int = 0
    disk: TenantDisk = field(default_factory=TenantDisk)
    created_at: datetime | None = None


@dataclass(frozen=True, repr=False)
class SecretInfo(Short):
    """A secret of a tenant without its value. tenant_id "" is that of sandboxes that belong to none."""

    name: str
    tenant_id: str = ""
    updated_at: datetime | None = None


@dataclass(frozen=True, repr=False)
class SnapshotInfo(Short):
    """What was kept of a sandbox. ``source_sandbox_id`` is the sandbox, which may be gone.

    ``size_bytes`` is what it takes on the host, ``disk_bytes`` of that the files and ``memory_bytes`` the memory.
    ``paused_ms`` is how long the sandbox stood still, of a snapshot that was just made.
    """

    _shown: ClassVar[Sequence[str]] = ("id", "name", "source_sandbox_id", "memory", "size_bytes")

    id: str
    name: str
    status: str = ""
    source_sandbox_id: str = ""
    tenant_id: str = ""
    base_image: str = ""
    isolation: Literal[Isolation, ""] = ""
    limits: Limits = field(default_factory=Limits)
    visibility: Literal[Visibility, ""] = ""
    memory: bool = False
    size_bytes: int = 0
    disk_bytes: int = 0
    memory_bytes: int = 0
    paused_ms: int = 0
    created_at: datetime | None = None


@dataclass(frozen=True, repr=False)
class Problem(Short):
    """Something that keeps a daemon from being ready."""

    part: str
    message: str
    hint: str = ""
