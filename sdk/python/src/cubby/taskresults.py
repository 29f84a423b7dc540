"""Tasks of coding agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from ._decode import decode
from ._short import Short
from .errors import TaskFailedError

__all__ = [
    "Task",
    "TaskEvent",
    "TaskFailure",
    "TaskPermissions",
    "TaskPreview",
    "TaskPush",
    "TaskStatus",
    "TaskTokens",
]

TaskStatus = Literal["running", "succeeded", "failed", "cancelled"]
"""Where a task stands."""

TaskFailure = Literal["agent_timeout", "agent_error", "cancelled", "sandbox_unavailable", "internal"]
"""Why a task did not succeed."""

TaskPermissions = Literal["allow", "ask"]
"""Whether what the agent asks leave for is allowed, or waits for an answer."""

TaskPreview = Literal["ready", "error", "down"]
"""What the application's port answered at the end of a task."""


@dataclass(frozen=True, repr=False)
class TaskPush(Short):
    """How the push to the sandbox's ``git_remote_url`` went."""

    ok: bool = False
    commit: str = ""
    branch: str = ""
    message: str = ""


@dataclass(frozen=True, repr=False)
class TaskTokens(Short):
    """What the models used. ``cost`` is in US dollars, 0 where the agent does not say it."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0
    cost: float = 0.0


@dataclass(frozen=True, repr=False)
class Task(Short):
    """What a coding agent was asked to do and, once it has ended, how.

    ``prompt`` is the first 8 KiB of the prompt. ``files_changed`` are the files that differ from the checkpoint, the
    first 1,000. ``build_ok`` is False when a build was tried and failed, which does not make the task failed.
    ``checkpoint_id`` is what a restore goes back to; ``checkpoint_message`` says why there is none, or what it lacks.
    """

    _shown: ClassVar[Sequence[str]] = ("id", "status", "failure_reason", "agent", "prompt", "files_changed")

    id: str
    status: TaskStatus
    sandbox_id: str = ""
    agent: str = ""
    model: str = ""
    prompt: str = ""
    prompt_cut: bool = False
    cwd: str = ""
    permissions: Literal[TaskPermissions, ""] = ""
    resume: str = ""
    seq: int = 0
    events_url: str = ""
    created_at: datetime | None = None
    failure_reason: Literal[TaskFailure, ""] = ""
    error_message: str = ""
    files_changed: list[str] = field(default_factory=list)
    agent_message_final: str = ""
    build_ok: bool = True
    build_error_message: str = ""
    preview_status_after: Literal[TaskPreview, ""] = ""
    preview_error_message: str = ""
    checkpoint_id: str = ""
    checkpoint_message: str = ""
    session_id: str = ""
    stop_reason: str = ""
    push: TaskPush | None = None
    duration_ms: int = 0
    tokens: TaskTokens = field(default_factory=TaskTokens)
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing will change any more."""
        return self.status != "running"

    @property
    def ok(self) -> bool:
        """Whether the task succeeded."""
        return self.status == "succeeded"

    def check(self) -> Task:
        """Return the task, or raise TaskFailedError when it did not succeed."""
        if not self.ok:
            raise TaskFailedError(self)
        return self


@dataclass(frozen=True)
class Cancelling:
    """The answer to a cancel."""

    task_status: TaskStatus


@dataclass(frozen=True)
class Restored:
    """The answer to a restore."""

    files: list[str]


@dataclass(frozen=True, repr=False)
class TaskEvent(Short):
    """One event of a task. What it says comes out of the sandbox; only ``done`` is the daemon's own.

    ``type`` is ``status``, ``message``, ``thought``, ``delta``, ``tool``, ``plan``, ``diff``, ``build``, ``usage``,
    ``permission``, ``push`` or, as the last one, ``done``; a newer daemon may have more. ``data`` has what the API's
    documentation says of the type.
    """

    id: int
    type: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> Task | None:
        """How the task ended, of ``done``; None of all others."""
        return decode(Task, self.data) if self.type == "done" else None
