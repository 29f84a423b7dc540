"""Makes the manager's answers of Cubby's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...coderesults import Execution
from ...models import ExecResult
from .models import ExecutionResult, TerminalResult

# What shows a value best comes first.
_SHOWN = (
    "text/html",
    "image/svg+xml",
    "image/png",
    "image/jpeg",
    "audio/wav",
    "audio/mpeg",
    "audio/ogg",
    "video/mp4",
)

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

OUT_OF_MEMORY = "OOM-killed — the code exhausted the container memory limit"
REMOVED = "container no longer exists (removed externally)"

_SIGNALS = {
    "SIGKILL": ("killed by signal 9 (SIGKILL) — likely OOM or external kill", 137),
    "SIGSEGV": ("segmentation fault (SIGSEGV)", 139),
    "SIGTERM": ("terminated by SIGTERM", 143),
}


def memory_bytes(limit: str | int) -> int:
    """Read a limit of memory, ``"2048m"`` for example."""
    if isinstance(limit, int):
        return limit
    match = re.fullmatch(r"(\d+)\s*([bkmg]?)b?", limit.strip().lower())
    if match is None:
        raise ValueError(f"Invalid memory limit: {limit!r}")
    return int(match[1]) * _UNITS[match[2]]


def truncated(text: str, limit: int, more: int = 0) -> str:
    """Bound a text, of which more characters did not come, and say so at its end."""
    original = len(text) + more
    if limit <= 0 or original <= limit:
        return text
    return f"{text[:limit]}\n\n... [truncated — {original} chars total, showing first {limit}]"


def execution_result(execution: Execution) -> ExecutionResult:
    """Make the answer of a cell that ended."""
    result = None
    outputs = [shown for o in execution.outputs if (shown := _shown(o.data, plain=True)) is not None]
    if execution.result is not None:
        if "text/plain" in execution.result:
            result = {"text/plain": execution.result["text/plain"]}
        shown = _shown(execution.result, plain=False)
        if shown is not None:
            outputs.append(shown)
    error: dict[str, str] | None = None
    if not execution.success:
        error = {"type": "RuntimeError", "message": execution.describe_end()}
        if execution.error is not None:
            error = {"type": execution.error.type, "message": execution.error.message}
            if execution.error.traceback:
                error["traceback"] = execution.error.traceback
    return ExecutionResult(
        success=execution.success,
        stdout=execution.stdout,
        stderr=execution.stderr,
        result=result,
        error=error,
        display_outputs=outputs,
        kernel_restarted=execution.kernel_restarted,
    )


def _shown(bundle: Mapping[str, Any], plain: bool) -> dict[str, Any] | None:
    """Choose how a value is shown; as plain text only where that is all of it."""
    others = [mime for mime in bundle if mime != "text/plain"]
    mime = next((m for m in _SHOWN if m in bundle), others[0] if others else "text/plain" if plain else None)
    return None if mime is None or mime not in bundle else {"type": mime, "data": bundle[mime]}


def terminal_result(result: ExecResult, timeout: float, max_stdout: int, max_stderr: int) -> TerminalResult:
    """Make the answer of a command that ended."""
    code, stderr = result.exit_code, result.stderr
    if result.reason == "timeout":
        code = 124
        stderr += f"Command timed out after {timeout:g}s"
    elif result.reason != "exited":
        stderr += result.message or result.reason
    cut = result.truncated
    return TerminalResult(
        exit_code=-1 if code is None else code,
        stdout=truncated(result.stdout, max_stdout, cut.stdout if cut else 0),
        stderr=truncated(stderr, max_stderr, cut.stderr if cut else 0),
    )


def death(status: str, reason: str) -> tuple[str, int | None]:
    """Say why a sandbox does not run any more, and with which status it ended, of what the daemon says."""
    if "out of memory" in reason:
        return OUT_OF_MEMORY, 137
    for name, told in _SIGNALS.items():
        if name in reason:
            return told
    exited = re.search(r"exited with code (\d+)", reason)
    if exited is not None:
        return f"exited with status {exited[1]} (container status: exited)", int(exited[1])
    if "removed from the host" in reason:
        return REMOVED, None
    # What follows is for those who can start a sandbox again.
    return reason.removeprefix("CONTAINER_DIED: ").split(";")[0] or f"container status: {status}", None
