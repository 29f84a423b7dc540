"""What the manager's methods return and raise."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

__all__ = [
    "ContainerDiedError",
    "ExecutionResult",
    "ExportFileResult",
    "ExportResult",
    "ImportFileResult",
    "ImportResult",
    "SessionInfo",
    "TerminalResult",
]


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass
class SessionInfo:
    """A session.

    ``status`` is ``starting``, ``running`` or ``dead``; ``container_id`` is the id of the sandbox, the same as
    ``session_id``; ``stderr`` is what the installer of the dependencies said.
    """

    session_id: str
    container_id: str
    container_name: str
    runtime: str
    status: str
    thread_id: str | None = None
    dependencies: dict[str, str] = field(default_factory=dict)
    stderr: str = ""
    created_at: datetime = field(default_factory=_now)
    last_activity: datetime = field(default_factory=_now)


@dataclass
class ExecutionResult:
    """What came of code.

    ``result`` is the value of the last expression, ``{"text/plain": …}``; ``error`` is ``{"type", "message",
    "traceback"}``; ``display_outputs`` are ``{"type": a MIME type, "data": text or base64}``; ``kernel_restarted`` says
    why what was defined before is gone.
    """

    success: bool
    stdout: str = ""
    stderr: str = ""
    result: dict[str, Any] | None = None
    error: dict[str, str] | None = None
    display_outputs: list[dict[str, Any]] = field(default_factory=list)
    kernel_restarted: str = ""

    @property
    def figures(self) -> list[str]:
        """The PNG images among the outputs, as base64."""
        return [o["data"] for o in self.display_outputs if o["type"] == "image/png"]


@dataclass
class TerminalResult:
    """What came of a command. A command whose time was over has the exit code 124."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""


@dataclass
class ImportFileResult:
    """One entry of an import; ``destination`` is absolute."""

    source: str
    destination: str
    success: bool
    size: int = 0
    error: str = ""


@dataclass
class ImportResult:
    """An import; ``success`` says that all of its entries are there."""

    success: bool
    files: list[ImportFileResult] = field(default_factory=list)
    error: str = ""


@dataclass
class ExportFileResult:
    """One entry of an export; ``path`` is absolute. Only files of a thread have a ``download_url``."""

    session_id: str
    path: str
    success: bool
    size: int = 0
    error: str = ""
    download_url: str | None = None


@dataclass
class ExportResult:
    """An export; ``success`` says that all of its entries are registered."""

    success: bool
    files: list[ExportFileResult] = field(default_factory=list)
    error: str = ""


class ContainerDiedError(RuntimeError):
    """The session, or for want of memory its kernel, ended without being asked to.

    Attributes:
        session_id: the session.
        reason: why, for people.
        exit_code: the status with which it ended, where that is known.
    """

    def __init__(self, session_id: str, reason: str, exit_code: int | None = None) -> None:
        code = "" if exit_code is None else f" (exit code {exit_code})"
        super().__init__(f"Container for session '{session_id}' died: {reason}{code}")
        self.session_id = session_id
        self.reason = reason
        self.exit_code = exit_code
