"""What commands, their output, terminals and sessions give."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

from ._decode import decode, malformed
from ._short import Short
from .errors import ExecFailedError

__all__ = [
    "Chunk",
    "EndReason",
    "ExecKind",
    "ExecResult",
    "ExecStatus",
    "Exit",
    "Output",
    "OutputKind",
    "SessionInfo",
    "TerminalExit",
    "TerminalInfo",
    "Truncated",
    "WindowSize",
]

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


ExecKind = Literal[
    "code.run",
    "git.add",
    "git.branch",
    "git.checkout",
    "git.clone",
    "git.commit",
    "git.diff",
    "git.log",
    "git.publish",
    "git.pull",
    "git.push",
    "git.record",
    "git.status",
    "packages.install",
    "task.restore",
    "task.run",
]
"""What an operation is that is more than a command."""


OutputKind = Literal["stdout", "stderr", "rich"]
"""A stream of an operation; ``rich`` is what a cell shows, one JSON object per line."""


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
        restore_incomplete: what is gone and what is not, when the sandbox was woken for the command and its memory was
            lost; else empty.
        truncated: what is missing in the output; None when nothing is.
        output_pruned: the output was removed to make room for later commands'.
        detail: what an operation was asked; its result is in ``result``.
    """

    _shown: ClassVar[Sequence[str]] = ("seq", "status", "kind", "cmd", "exit_code", "reason", "stdout", "stderr")

    seq: int
    status: ExecStatus
    cmd: str | list[str] = ""
    kind: Literal[ExecKind, ""] = ""
    session: str = ""
    terminal: str = ""
    service: str = ""
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
    restore_incomplete: str = ""
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

    stream: Literal["stdout", "stderr"]
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
