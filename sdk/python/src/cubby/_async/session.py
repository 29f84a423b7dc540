"""Session shells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .._request import path
from ..models import ExecResult
from .process import AsyncProcess

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox


class AsyncSession:
    """A shell that stays between commands: they run one after another and keep the working directory, variables,
    functions and aliases.

    Attributes:
        name: its name within the sandbox.
    """

    def __init__(self, box: AsyncSandbox, name: str) -> None:
        self._box = box
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._box.id}>"

    async def run(
        self,
        cmd: str,
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes | str | None = None,
        wait: bool | float = True,
        check: bool = False,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        kill_on_cancel: bool = False,
    ) -> ExecResult:
        """Run a line of shell in the session. Takes what :meth:`cubby.Sandbox.exec` takes.

        env and cwd hold for this command only.
        """
        return await self._box.exec(
            cmd,
            session=self.name,
            timeout=timeout,
            env=env,
            cwd=cwd,
            stdin=stdin,
            wait=wait,
            check=check,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            kill_on_cancel=kill_on_cancel,
        )

    async def start(
        self,
        cmd: str,
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bool = False,
    ) -> AsyncProcess:
        """Queue a line of shell and return a handle at once."""
        return await self._box.start_exec(cmd, session=self.name, timeout=timeout, env=env, cwd=cwd, stdin=stdin)

    async def close(self) -> None:
        """Forget the session's state. While its commands run or wait this is a ConflictError or WrongStateError."""
        await self._box._transport.call("DELETE", path("sandboxes", self._box.id, "sessions", self.name), repeat=True)
