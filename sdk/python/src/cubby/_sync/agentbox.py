# Made from ../_async/agentbox.py by tools/unasync.py; change that one.
"""The class of agentbox's SDK."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import httpx

from .._decode import decode
from .._lists import items
from .._request import compact, stream_cut
from ..compat._agentbox import (
    AGENTBOX_URL,
    EXEC_LIMIT,
    PIP_HOSTS,
    PIP_LIMIT,
    SERVICE,
    STREAM_LIMIT,
    ExecResult,
    Frames,
    SessionInfo,
    StreamEvent,
    check_success,
    frame,
    reaches,
)
from ._backend import Gen
from .streams import Stream
from .transport import Transport


class Sandbox:
    """One session of agentbox's service, which a Cubby daemon serves: a sandbox with the label ``agentbox=true``.

    Used as a context manager it destroys its session at the end. A session that nobody uses is destroyed after 1800
    seconds. Every call but :meth:`create`, :meth:`destroy` and :meth:`aclose` raises a RuntimeError before there is a
    session, and a :class:`cubby.CubbyError` when the daemon cannot be reached or refuses.

    Args:
        base_url: the daemon; default ``CUBBY_URL`` of the environment, else http://localhost:50051,
            which the setting ``grpc-listen`` opens.
        token: default ``CUBBY_TOKEN`` of the environment.
        transport: what httpx sends requests by, for tests and special networks.
    """

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._transport = Transport(
            base_url or os.environ.get("CUBBY_URL") or AGENTBOX_URL,
            token if token is not None else os.environ.get("CUBBY_TOKEN", ""),
            timeout=600.0,
            retries=2,
            resume=60.0,
            transport=transport,
        )
        self._session: SessionInfo | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.session_id or 'without a session'}>"

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.destroy()
        finally:
            self.close()

    def close(self) -> None:
        """Close the connections. The session goes on."""
        self._transport.close()

    @property
    def session_id(self) -> str | None:
        """The session's id; None when there is none."""
        return self._session.session_id if self._session else None

    @property
    def allowed_hosts(self) -> list[str]:
        """What the session may reach."""
        return list(self._session.allowed_hosts) if self._session else []

    @property
    def network_enabled(self) -> bool:
        """Whether the session may reach anything; ``["localhost"]`` is nothing."""
        return reaches(self.allowed_hosts)

    def create(
        self,
        session_id: str | None = None,
        *,
        tenant_id: str | None = None,
        allowed_hosts: str | Sequence[str] | None = None,
    ) -> SessionInfo:
        """Make a session, or take up the live one of that id, and return when commands can run.

        Args:
            session_id: its id; generated when absent.
            tenant_id: whose storage it shares.
            allowed_hosts: what it may reach: names and ``*.names``. None and an empty list are the daemon's list of
                package indexes, ``["localhost"]`` is nothing.
        """
        fields = {
            "sessionId": session_id or str(uuid.uuid4()),
            "tenantId": tenant_id,
            "allowedHosts": items(allowed_hosts) or [],
        }
        answer = self._call("CreateSession", fields, repeat=True)
        self._session = decode(SessionInfo, answer.get("session"))
        return self._session

    def destroy(self) -> bool:
        """Remove the session with its files; False when there is none."""
        if self._session is None:
            return False
        answer = self._call("DestroySession", {"sessionId": self._live()})
        self._session = None
        return answer.get("success") is True

    def exec(self, command: str, *, timeout: int = EXEC_LIMIT, workdir: str = "/workspace") -> ExecResult:
        """Run a line of shell to its end. A command that fails, or that is killed, is a result and no exception.

        Args:
            command: the line.
            timeout: seconds after which it is killed with everything that descends from it.
            workdir: the working directory.
        """
        fields = {"sessionId": self._live(), "command": command, "timeout": timeout, "workdir": workdir}
        return decode(ExecResult, self._call("Exec", fields, wait=float(timeout or EXEC_LIMIT)))

    def exec_stream(self, command: str, workdir: str = "/workspace") -> Stream[StreamEvent]:
        """Run a line of shell and give what it prints as it prints it; the last event is ``exit`` or ``error``.

        Leaving the stream, or its ``with``, kills the command; 300 seconds do so too.
        """
        return Stream(self._follow({"sessionId": self._live(), "command": command, "workdir": workdir}))

    def _follow(self, fields: dict[str, Any]) -> Gen[StreamEvent]:
        headers = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        frames = Frames()
        with self._transport.stream(
            SERVICE + "ExecStream", method="POST", headers=headers, content=frame(fields), silence=STREAM_LIMIT + 30
        ) as response:
            for data in response.iter_bytes():
                for event in frames.feed(data):
                    yield event
        if not frames.ended:
            raise stream_cut()

    def write_file(self, path: str, content: str, mode: str = "w") -> None:
        """Write text; raise a RuntimeError when that cannot be done.

        Args:
            path: below /workspace or /mnt/user-data/outputs; relative ones are relative to /workspace.
            content: what to write.
            mode: ``"w"`` replaces, ``"a"`` appends.
        """
        fields = {"sessionId": self._live(), "path": path, "content": content, "mode": mode}
        check_success(self._call("WriteFile", fields), "Failed to write file")

    def read_file(self, path: str) -> str:
        """Return a file's text; raise a RuntimeError when there is none."""
        answer = self._call("ReadFile", {"sessionId": self._live(), "path": path}, repeat=True)
        check_success(answer, "Failed to read file")
        return str(answer.get("content", ""))

    def pip_install(self, packages: str | Sequence[str]) -> ExecResult:
        """Install Python packages, for at most 120 seconds.

        Raises a RuntimeError when the session may not reach pypi.org and files.pythonhosted.org.

        Args:
            packages: ``"name"``, ``"name[extra]"``, ``"name==1.2"``.
        """
        session = self._live()
        missing = [h for h in PIP_HOSTS if h not in self.allowed_hosts]
        if missing:
            raise RuntimeError("pip_install needs these hosts in allowed_hosts: " + ", ".join(missing))
        fields = {"sessionId": session, "packages": items(packages)}
        return decode(ExecResult, self._call("PipInstall", fields, wait=PIP_LIMIT))

    def run_python(self, code: str, *, timeout: int = EXEC_LIMIT) -> ExecResult:
        """Run a program of Python, in a new interpreter.

        Args:
            code: the program.
            timeout: seconds after which it is killed.
        """
        script = f"_temp_script_{uuid.uuid4().hex}.py"  # calls may run at the same time
        self.write_file(script, code)
        try:
            return self.exec(f"python3 {script}", timeout=timeout)
        finally:
            self.exec(f"rm -f {script}")

    def _live(self) -> str:
        if self._session is None:
            raise RuntimeError("No active session. Call create() first.")
        return self._session.session_id

    def _call(
        self, method: str, fields: dict[str, Any], *, wait: float = 0, repeat: bool = False
    ) -> dict[str, Any]:
        answer = self._transport.call(
            "POST",
            SERVICE + method,
            json=compact(**fields),
            headers={"Connect-Protocol-Version": "1"},
            wait=wait,
            repeat=repeat,
        )
        return answer if isinstance(answer, dict) else {}
