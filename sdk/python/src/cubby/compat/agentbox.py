"""The class of agentbox's SDK, in Python.

    from cubby.compat.agentbox import Sandbox

    with Sandbox("http://localhost:9090") as sandbox:
        sandbox.create(allowed_hosts=["pypi.org", "files.pythonhosted.org"])
        print(sandbox.run_python("print(1 + 1)").stdout)

Methods are called as in TypeScript, with Python's spelling: ``exec_stream`` for ``execStream``. It speaks agentbox's
service, ``sandbox.v1.SandboxService``, as JSON by the protocol of Connect. New code has more from
:class:`cubby.Client`, for the same sandboxes.
"""

from __future__ import annotations

from .._async.agentbox import AsyncSandbox
from .._sync.agentbox import Sandbox
from ._agentbox import ExecResult, SessionInfo, StreamEvent

__all__ = ["AsyncSandbox", "ExecResult", "Sandbox", "SessionInfo", "StreamEvent"]
