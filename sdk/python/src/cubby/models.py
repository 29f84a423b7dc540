"""What the API's answers hold.

All of them are immutable. Times are aware and in UTC, durations are seconds unless the name says otherwise, sizes are
bytes. What a newer daemon adds is ignored.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from ._decode import decode, malformed
from ._lists import items
from ._short import Short
from .errors import ExecFailedError

__all__ = [
    "Archive",
    "Chunk",
    "EgressConnection",
    "EgressDecision",
    "EgressRule",
    "EndReason",
    "Event",
    "EventPage",
    "ExecResult",
    "ExecStatus",
    "Exit",
    "FileChange",
    "FileInfo",
    "FileType",
    "IdlePolicy",
    "Image",
    "Isolation",
    "Limits",
    "Network",
    "NetworkMode",
    "Output",
    "OutputKind",
    "Problem",
    "Runtime",
    "SandboxInfo",
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

ExecStatus = Literal["pending", "running", "done", "error"]
"""Where an operation stands: ``done`` when it ended itself, ``error`` when something else ended it."""

EndReason = Literal[
    "exited",
    "timeout",
    "oom",
    "killed",
    "disk_full",
    "sandbox_destroyed",
    "sandbox_stopped",
    "container_died",
    "lost",
    "not_started",
    "kernel_died",
]
"""Why an operation ended."""

EgressRule = Literal["none", "allowlist", "open", "operator", "deny", "address", "name", "server_name"]
"""What decides whether a sandbox reaches a host."""

FileType = Literal["file", "dir", "symlink", "other"]
"""What there is at a path."""

OutputKind = Literal["stdout", "stderr", "rich"]
"""A stream of an operation; ``rich`` is what a cell shows, one JSON object per line."""

NetworkMode = Literal["none", "allowlist", "open"]
"""How far a sandbox can reach."""

IdlePolicy = Literal["stop", "destroy", "sleep", "always_on"]
"""What happens to a sandbox that is not used."""

Visibility = Literal["private", "public"]
"""Who may see a sandbox's ports."""


@dataclass(frozen=True, repr=False)
class Limits(Short):
    """Bounds of what a sandbox can use. In a request, None is the daemon's default."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    disk_bytes: int | None = None
    open_files: int | None = None


@dataclass(frozen=True, repr=False, init=False)
class Network(Short):
    """How far a sandbox can reach.

    ``mode`` is ``"none"``, ``"allowlist"`` or ``"open"``; open never includes private addresses. ``allow`` lists hosts
    for ``"allowlist"``: names, ``*.names``, addresses and networks, with or without a port; empty is the daemon's list
    of package indexes. ``deny`` comes before everything that allows, in every mode.
    """

    mode: NetworkMode | None = None
    allow: list[str] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)

    def __init__(
        self, mode: NetworkMode | None = None, allow: str | Sequence[str] = (), deny: str | Sequence[str] = ()
    ) -> None:
        for name, value in (("mode", mode), ("allow", items(allow)), ("deny", items(deny))):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, repr=False)
class EgressDecision(Short):
    """What a sandbox would get that asks for a host.

    ``host`` is in the form that rules compare. ``rule`` is what decides; ``hint`` is how to allow what is denied.
    """

    allow: bool
    host: str
    port: int
    rule: EgressRule
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True, repr=False)
class EgressConnection(Short):
    """A connection of a sandbox to a host outside.

    ``rule`` is what allowed it; ``protocol`` is how it was asked for: ``connect``, ``socks``, ``http`` for one request,
    or ``transparent`` for a program that connected by itself, without the proxy. Bytes are as the sandbox sees them;
    ``age_ms`` counts from when it was asked for.
    """

    host: str
    port: int
    rule: Literal["allowlist", "open", "operator", ""] = ""
    protocol: Literal["connect", "socks", "http", "transparent", ""] = ""
    bytes_sent: int = 0
    bytes_received: int = 0
    age_ms: int = 0


@dataclass(frozen=True, repr=False)
class SandboxInfo(Short):
    """How a sandbox stood when the daemon was asked. Its environment is never reported.

    ``status`` is ``creating``, ``running``, ``sleeping``, ``stopped``, ``failed`` or ``destroyed``; ``reason`` says why
    it failed, or stopped when nobody asked. ``expires_at``, ``idle_at`` and ``kept_until`` are None where they do not
    apply.
    """

    _shown: ClassVar[Sequence[str]] = ("id", "status", "reason", "image", "isolation", "runtime", "tenant_id")

    id: str
    status: Status
    reason: str = ""
    image: str = ""
    isolation: Literal[Isolation, ""] = ""
    runtime: Literal[Runtime, ""] = ""
    dependencies: dict[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    user: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    ports: list[int] = field(default_factory=list)
    network: Network = field(default_factory=Network)
    visibility: Literal[Visibility, ""] = ""
    thread: str = ""
    tenant_id: str = ""
    idle_policy: Literal[IdlePolicy, ""] = ""
    idle_timeout_seconds: float = 0.0
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
class Stats(Short):
    """What a sandbox uses now. ``pids`` is -1 where the host cannot count them."""

    memory_bytes: int = 0
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
class Image(Short):
    """A root filesystem that sandboxes start from."""

    name: str
    digest: str
    size: int = 0
    created_at: datetime | None = None
    source: str = ""
    damaged: bool = False
    problem: str = ""


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
class Problem(Short):
    """Something that keeps a daemon from being ready."""

    part: str
    message: str
    hint: str = ""


@dataclass(frozen=True, repr=False)
class WindowSize(Short):
    """A terminal's size in characters."""

    cols: int
    rows: int


@dataclass(frozen=True, repr=False)
class Truncated(Short):
    """Bytes of output that an answer leaves out."""

    stdout: int = 0
    stderr: int = 0


@dataclass(frozen=True, repr=False)
class ExecResult(Short):
    """One command of a sandbox: how it stands, and when it has finished how it ended.

    Attributes:
        seq: its number within the sandbox: 1, 2, 3 …
        status: ``pending``, ``running``, ``done`` when the command itself ended with any code, or ``error`` when
            something else ended it.
        cmd: as it was given: a line of shell, or a program with its arguments.
        kind: empty for a command; ``code.run``, ``git.clone`` and the like for other operations.
        session: the session that it belongs to, or empty.
        code, kernel, language: of a cell; :meth:`cubby.Sandbox.cell` has what it showed.
        stdout_bytes, stderr_bytes: the output; empty in lists, at the end of a stream and before the end.
        exit_code: the command's own code, 128 + signal when a signal ended it; None while it runs, and when nobody can
            know.
        reason: why it ended: ``exited``, ``timeout``, ``oom``, ``killed``, ``container_died`` …
        message: more about the end, for people.
        truncated: what is missing in the output; None when nothing is.
        output_pruned: the output was removed to make room for later commands'.
        detail: what an operation was asked; its result is in ``result``.
    """

    _shown: ClassVar[Sequence[str]] = ("seq", "status", "kind", "cmd", "exit_code", "reason", "stdout", "stderr")

    seq: int
    status: ExecStatus
    cmd: str | list[str] = ""
    kind: str = ""
    session: str = ""
    terminal: str = ""
    code: str = ""
    kernel: str = ""
    language: str = ""
    cwd: str = ""
    user: str = ""
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    exit_code: int | None = None
    signal: str = ""
    reason: Literal[EndReason, ""] = ""
    message: str = ""
    duration_ms: float = 0.0
    truncated: Truncated | None = None
    output_pruned: bool = False
    detail: Any = None
    result: Any = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def finished(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in ("done", "error")

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself with exit code 0."""
        return self.status == "done" and self.exit_code == 0

    def check(self) -> ExecResult:
        """Return self when :attr:`ok`, else raise :class:`cubby.ExecFailedError`."""
        if not self.ok:
            raise ExecFailedError(self)
        return self

    def describe_end(self) -> str:
        """Say in one line how it ended."""
        if not self.finished:
            return f"command {self.seq} is {self.status}"
        text = self.message or ("unknown exit" if self.exit_code is None else f"exit code {self.exit_code}")
        if not self.message and self.reason not in ("", "exited"):
            text += f" ({self.reason})"
        return f"command {self.seq}: {text}"


def decode_exec(data: object) -> ExecResult:
    """Make an ExecResult of the API's JSON, where output that is not UTF-8 is base64."""
    if not isinstance(data, Mapping):
        raise malformed("a command is not an object")
    values = dict(data)
    for stream in ("stdout", "stderr"):
        values[stream + "_bytes"] = decode_text(values.get(stream) or "", values.get(stream + "_encoding"))
    return decode(ExecResult, values)


def decode_text(text: object, encoding: object) -> bytes:
    """Read text that the API gives as UTF-8 or as base64."""
    if not isinstance(text, str):
        raise malformed("output is not text")
    if encoding != "base64":
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as e:
        raise malformed(f"output: {e}") from e


@dataclass(frozen=True, repr=False)
class Output(Short):
    """A piece of what a command printed.

    ``offset`` is where ``data`` begins in the output, counted over both streams; ``next`` is where the piece after it
    begins.
    """

    stream: str
    data: bytes
    offset: int
    next: int

    @property
    def text(self) -> str:
        """The piece as text; bytes that are not UTF-8 become U+FFFD."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True, repr=False)
class Exit(Short):
    """The end of a command, the last chunk of its stream. ``result`` has no output."""

    result: ExecResult
    offset: int


Chunk = Output | Exit
"""What a stream of a command gives."""


@dataclass(frozen=True, repr=False)
class Event(Short):
    """An entry of a sandbox's history.

    Events are facts and never change: an operation that takes its time leaves one for each status that it reached, all
    with its ``seq``. ``seq`` is None for acts that were over at once. ``payload`` is what was asked, ``result`` what
    came of it.
    """

    _shown: ClassVar[Sequence[str]] = ("cursor", "kind", "time", "seq", "status", "payload", "result")

    cursor: int
    kind: str
    time: datetime
    actor: str = ""
    seq: int | None = None
    status: ExecStatus = "done"
    payload: Any = None
    result: Any = None


@dataclass(frozen=True, repr=False)
class EventPage(Short):
    """Events in order, and the cursor to go on from."""

    events: list[Event]
    next: int


@dataclass(frozen=True, repr=False)
class SessionInfo(Short):
    """A session shell.

    ``status`` is ``idle``, ``busy`` or ``queued``; ``running_seq`` is the command that runs now; ``pending`` is how
    many wait for it.
    """

    name: str
    cwd: str = ""
    status: Literal["idle", "busy", "queued", ""] = ""
    running_seq: int | None = None
    pending: int = 0
    last_used_at: datetime | None = None


@dataclass(frozen=True, repr=False)
class TerminalInfo(Short):
    """A terminal that is open.

    ``seq`` is the command that runs in it; ``cmd`` is empty for an interactive shell; ``viewers`` look at it now.
    """

    name: str
    seq: int
    cmd: str = ""
    user: str = ""
    cols: int = 0
    rows: int = 0
    viewers: int = 0
    created_at: datetime | None = None


@dataclass(frozen=True, repr=False)
class TerminalExit(Short):
    """How the program of a terminal ended, as of an :class:`ExecResult`."""

    exit_code: int | None = None
    reason: Literal[EndReason, ""] = ""
    message: str = ""


@dataclass(frozen=True, repr=False)
class FileInfo(Short):
    """A path inside a sandbox.

    ``type`` is ``file``, ``dir``, ``symlink`` or ``other``; ``mode`` is octal text, ``"0644"``; ``target`` is where a
    symlink leads, as stored.
    """

    _shown: ClassVar[Sequence[str]] = ("path", "type", "size", "mode", "target")

    path: str
    name: str
    type: FileType
    size: int = 0
    mode: str = ""
    uid: int = 0
    gid: int = 0
    mod_time: datetime | None = None
    target: str = ""

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.type == "dir"

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.type == "file"


@dataclass(frozen=True, repr=False)
class FileChange(Short):
    """A change that a watch reports.

    ``op`` is ``create``, ``write``, ``remove``, ``rename``, ``chmod``, or ``overflow`` when changes came too fast and
    some were dropped.
    """

    path: str
    op: str
    time: datetime | None = None
