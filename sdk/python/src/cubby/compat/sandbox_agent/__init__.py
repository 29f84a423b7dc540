"""The Python interface of sandbox-agent, for code that was written for it: change the import.

    from cubby.compat.sandbox_agent import SandboxManager

    manager = SandboxManager()
    sid = manager.create_session(runtime="python", dependencies={"pandas": ""}).session_id
    print(manager.execute_code(sid, "import pandas as pd; pd.DataFrame({'x': [1, 2]}).shape").result)
    manager.stop_session(sid)

Sessions are sandboxes of a Cubby daemon. New code has more from :class:`cubby.Client`, for the same sandboxes.
"""

from __future__ import annotations

from .manager import SandboxManager
from .models import (
    ContainerDiedError,
    ExecutionResult,
    ExportFileResult,
    ExportResult,
    ImportFileResult,
    ImportResult,
    SessionInfo,
    TerminalResult,
)
from .sessions import RUNTIMES

__all__ = [
    "RUNTIMES",
    "ContainerDiedError",
    "ExecutionResult",
    "ExportFileResult",
    "ExportResult",
    "ImportFileResult",
    "ImportResult",
    "SandboxManager",
    "SessionInfo",
    "TerminalResult",
]
