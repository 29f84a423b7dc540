"""What runs in a sandbox: commands, code and installations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .._decode import decode_list, malformed
from .._lists import wanted
from .._request import compact, exec_body, path, query
from ..coderesults import Execution, RichOutput
from ..errors import InstallFailedError
from ..execresults import decode_exec
from ..models import ExecResult, Runtime, WindowSize
from ..transferresults import Package
from .code import AsyncCell, AsyncCode
from .commands import AsyncCommands
from .process import AsyncProcess
from .transport import AsyncTransport


class AsyncRunning:
    """The half of a sandbox that runs something in it."""

    def __init__(self, transport: AsyncTransport, box: str) -> None:
        self._transport = transport
        self._box = box
        self._commands = AsyncCommands(transport, box)
        self._code = AsyncCode(transport, box)

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self._box

    def _path(self, *elements: str | int) -> str:
        return path("sandboxes", self._box, *elements)

    # Commands.

    async def exec(
        self,
        cmd: str | Sequence[str],
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        session: str | None = None,
        stdin: bytes | str | None = None,
        wait: bool | float = True,
        check: bool = False,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        kill_on_cancel: bool = False,
        max_output_bytes: int | None = None,
    ) -> ExecResult:
        """Run a command and return it when it has ended, with its output.

        A command that fails is not an error unless check says so; see :attr:`cubby.ExecResult.ok`.

        Args:
            cmd: a line of shell, or a program with its arguments, which no shell sees.
            timeout: seconds after which the command is killed with everything that descends from it. None is the
                sandbox's own, 0 is none.
            env: variables on top of the sandbox's.
            cwd: the working directory; default /workspace, or the session's.
            user: who runs it; default the sandbox's user.
            session: the name of a session shell to run it in.
            stdin: its whole input; None is an empty one.
            wait: True waits for the end, a number at most for so many seconds, False not at all. A command that has
                not ended by then goes on, and the result says so in ``status``. With callbacks it is not looked at.
            check: raise ExecFailedError when it ended otherwise than with exit code 0.
            on_stdout: called with text as it is printed.
            on_stderr: called with text as it is printed.
            kill_on_cancel: kill the command when the call is left before its end, by Ctrl-C, the cancellation of its
                task, or a callback that raises. Without it the command goes on.
            max_output_bytes: most of stdout and of stderr in the result, each; the daemon's default is 8 MiB. What is
                left out is counted in ``truncated``.
        """
        body = exec_body(
            cmd, timeout=timeout, env=env, cwd=cwd, user=user, session=session, stdin=stdin is not None, pty=None
        )
        result = await self._commands.run(
            body,
            stdin=stdin,
            wait=wait,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            kill_on_cancel=kill_on_cancel,
            max_output_bytes=max_output_bytes,
        )
        return result.check() if check and result.finished else result

    async def start_exec(
        self,
        cmd: str | Sequence[str],
        *,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        session: str | None = None,
        stdin: bool = False,
        pty: WindowSize | None = None,
    ) -> AsyncProcess:
        """Start a command and return a handle at once. Takes what :meth:`exec` takes, and:

        Args:
            cmd: the command.
            timeout: seconds after which it is killed.
            env: variables on top of the sandbox's.
            cwd: the working directory.
            user: who runs it.
            session: the session shell to run it in.
            stdin: keep its input open for :meth:`cubby.Process.write_stdin`.
            pty: give it a terminal of that size; stdout and stderr are then one stream.
        """
        body = exec_body(cmd, timeout=timeout, env=env, cwd=cwd, user=user, session=session, stdin=stdin, pty=pty)
        return await self._commands.start(body)

    def process(self, seq: int) -> AsyncProcess:
        """Return a handle on a command by its number. Nobody is asked whether it exists."""
        return AsyncProcess(self._transport, self.id, seq)

    async def execs(self, *, after_seq: int = 0, limit: int | None = None) -> list[ExecResult]:
        """Return commands after a number, in order, without their output."""
        answer = await self._transport.call(
            "GET", self._path("execs"), params=query(after_seq=after_seq or None, limit=limit), repeat=True
        )
        items = answer.get("execs") if isinstance(answer, dict) else None
        if not isinstance(items, list):
            raise malformed("execs is not a list")
        return [decode_exec(item) for item in items]

    # Code.

    async def run_code(
        self,
        code: str,
        language: str | None = None,
        *,
        kernel: str | None = None,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        wait: bool | float = True,
        check: bool = False,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        on_output: Callable[[RichOutput], object] | None = None,
        kill_on_cancel: bool = False,
    ) -> Execution:
        """Run code in a kernel, which keeps its state between calls, and return what came of it.

        Code that raises is not an error unless check says so; see :meth:`cubby.Execution.raise_for_error`.

        Args:
            code: any number of lines; the value of the last expression is the result.
            language: ``"python"``, ``"node"``, ``"r"`` or the name of a kernelspec of the image; default the kernel's,
                else the sandbox's runtime, else Python.
            kernel: the name of the kernel; default the one of the language. It begins with its first cell.
            timeout: seconds after which the code is interrupted; what it has defined stays. None is the sandbox's own
                limit, 0 is none. The time in which other cells run does not count.
            cwd: where the kernel begins, if it has to; default /workspace.
            env: variables of the kernel, if it has to begin.
            wait: True waits for the end, a number at most for so many seconds, False not at all. Code that has not
                ended by then goes on, and the result says so in ``status``. With callbacks it is not looked at.
            check: raise CodeFailedError when the code raised an exception or did not end by itself.
            on_stdout: called with text as it is printed.
            on_stderr: called with text as it is printed.
            on_output: called with everything else as it is shown.
            kill_on_cancel: interrupt the cell when the call is left before its end, by Ctrl-C, the cancellation of its
                task, or a callback that raises. Without it the cell goes on.
        """
        fields = {"language": language, "kernel": kernel, "timeout_seconds": timeout, "cwd": cwd, "env": env}
        execution = await self._code.run(code, wait, on_stdout, on_stderr, on_output, kill_on_cancel, **fields)
        return execution.raise_for_error() if check and execution.finished else execution

    async def start_code(
        self,
        code: str,
        language: str | None = None,
        *,
        kernel: str | None = None,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
    ) -> AsyncCell:
        """Start code in a kernel and return a handle at once. Takes what :meth:`run_code` takes, and:

        Args:
            code: the code.
            language: what it is written in.
            kernel: the name of the kernel.
            timeout: seconds after which it is interrupted.
            cwd: where the kernel begins, if it has to.
            env: variables of the kernel, if it has to begin.
            stdin: let the code ask for input, which :meth:`cubby.Cell.write_stdin` answers; without it asking is an
                exception.
        """
        return await self._code.start(
            code, language=language, kernel=kernel, timeout_seconds=timeout, cwd=cwd, env=env, stdin=stdin or None
        )

    def cell(self, seq: int) -> AsyncCell:
        """Return a handle on a cell by its number. Nobody is asked whether it exists."""
        return AsyncCell(self._transport, self.id, seq)

    async def install(
        self, dependencies: str | Mapping[str, str] | Sequence[str], *, runtime: Runtime | None = None
    ) -> list[Package]:
        """Install packages and return what was installed; raise InstallFailedError with the log when that fails.

        Args:
            dependencies: a name, names, or names with versions; an empty version is any.
            runtime: ``"python"``, ``"node"`` or ``"r"``; default the sandbox's runtime, else Python.
        """
        process = await self.start_install(dependencies, runtime=runtime)
        result = await process.wait()
        if not result.ok:
            raise InstallFailedError(result)
        return decode_list(Package, result.result, "installed")

    async def start_install(
        self, dependencies: str | Mapping[str, str] | Sequence[str], *, runtime: Runtime | None = None
    ) -> AsyncProcess:
        """Start to install packages and return a handle at once, whose stream is the installer's progress."""
        body = compact(runtime=runtime, dependencies=wanted(dependencies), wait=False)
        result = decode_exec(await self._transport.call("POST", self._path("packages"), json=body))
        return AsyncProcess(self._transport, self.id, result.seq)
