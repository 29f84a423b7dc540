# Made from ../_async/sandbox.py by tools/unasync.py; change that one.
"""One sandbox."""

from __future__ import annotations

from collections.abc import Iterator, Callable, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from .._decode import decode, decode_list, malformed
from .._lists import port_list, wanted
from .._request import compact, exec_body, path, query, rfc3339, seconds
from ..coderesults import Execution, RichOutput
from ..errors import CubbyError, InstallFailedError, NotFoundError
from ..models import (
    Archive,
    ExecResult,
    IdlePolicy,
    Network,
    Runtime,
    SandboxInfo,
    SessionInfo,
    Stats,
    Status,
    TerminalInfo,
    Visibility,
    WindowSize,
    decode_exec,
)
from ..transferresults import ExportedFile, FileToImport, ImportedFile, Package
from .code import Cell, Code
from .commands import Commands
from .events import Events
from .files import Files
from .git import Git
from .kernels import Kernels
from .network import NetworkAccess
from .process import Process
from .session import Session
from .terminal import Terminal, open_terminal
from .transfers import Transfers
from .transport import Transport

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import CreateOptions
    from .client import Client


class Sandbox:
    """A sandbox. Used as a context manager it is destroyed at the end.

    Attributes:
        files: its files.
        git: git in it.
        kernels: its interpreters of code.
        network: what it may reach.
        events: its history.
        info: how it stood when the daemon was last asked by a method of this object.
    """

    def __init__(self, transport: Transport, info: SandboxInfo) -> None:
        self._transport = transport
        self.info = info
        self.files = Files(transport, info.id)
        self.git = Git(transport, info.id)
        self.kernels = Kernels(transport, info.id)
        self.network = NetworkAccess(self)
        self.events = Events(transport, info.id)
        self._client: Client | None = None  # its own, when it was made without one
        self._commands = Commands(transport, info.id)
        self._code = Code(transport, info.id)
        self._transfers = Transfers(transport, info.id)

    @classmethod
    def create(
        cls,
        id: str | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        **options: Unpack[CreateOptions],
    ) -> Sandbox:
        """Make a sandbox without a client. Takes what :meth:`cubby.Sandboxes.create` takes, and:

        The connections end with the sandbox's ``with``, or with its :meth:`aclose`, after which the sandbox goes on.

        Args:
            id: its name; generated when absent.
            url: the daemon; default ``CUBBY_URL`` of the environment, else http://127.0.0.1:9090.
            token: default ``CUBBY_TOKEN`` of the environment.
            options: the sandbox.
        """
        from .client import Client

        client = Client(url, token)
        try:
            box = client.sandboxes.create(id, **options)
        except BaseException:
            client.close()
            raise
        box._client = client
        return box

    def close(self) -> None:
        """Close the connections of a sandbox that was made without a client; else nothing. The sandbox goes on."""
        if self._client is not None:
            self._client.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.status}>"

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self.info.id

    @property
    def status(self) -> Status:
        """The status in :attr:`info`; :meth:`refresh` asks again."""
        return self.info.status

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.destroy()
        except NotFoundError:
            return
        except CubbyError:
            if error is None:  # what went wrong inside says more
                raise
        finally:
            self.close()

    def _path(self, *elements: str | int) -> str:
        return path("sandboxes", self.id, *elements)

    def _act(self, act: str, body: Mapping[str, object] | None = None) -> SandboxInfo:
        """Do what is harmless to repeat."""
        self.info = decode(SandboxInfo, self._transport.call("POST", self._path(act), json=body, repeat=True))
        return self.info

    # Commands.

    def exec(
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
        result = self._commands.run(
            body,
            stdin=stdin,
            wait=wait,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            kill_on_cancel=kill_on_cancel,
            max_output_bytes=max_output_bytes,
        )
        return result.check() if check and result.finished else result

    def start_exec(
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
    ) -> Process:
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
        return self._commands.start(body)

    def process(self, seq: int) -> Process:
        """Return a handle on a command by its number. Nobody is asked whether it exists."""
        return Process(self._transport, self.id, seq)

    def execs(self, *, after_seq: int = 0, limit: int | None = None) -> list[ExecResult]:
        """Return commands after a number, in order, without their output."""
        answer = self._transport.call(
            "GET", self._path("execs"), params=query(after_seq=after_seq or None, limit=limit), repeat=True
        )
        items = answer.get("execs") if isinstance(answer, dict) else None
        if not isinstance(items, list):
            raise malformed("execs is not a list")
        return [decode_exec(item) for item in items]

    # Code.

    def run_code(
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
        execution = self._code.run(code, wait, on_stdout, on_stderr, on_output, kill_on_cancel, **fields)
        return execution.raise_for_error() if check and execution.finished else execution

    def start_code(
        self,
        code: str,
        language: str | None = None,
        *,
        kernel: str | None = None,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
    ) -> Cell:
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
        return self._code.start(
            code, language=language, kernel=kernel, timeout_seconds=timeout, cwd=cwd, env=env, stdin=stdin or None
        )

    def cell(self, seq: int) -> Cell:
        """Return a handle on a cell by its number. Nobody is asked whether it exists."""
        return Cell(self._transport, self.id, seq)

    def install(
        self, dependencies: str | Mapping[str, str] | Sequence[str], *, runtime: Runtime | None = None
    ) -> list[Package]:
        """Install packages and return what was installed; raise InstallFailedError with the log when that fails.

        Args:
            dependencies: a name, names, or names with versions; an empty version is any.
            runtime: ``"python"``, ``"node"`` or ``"r"``; default the sandbox's runtime, else Python.
        """
        process = self.start_install(dependencies, runtime=runtime)
        result = process.wait()
        if not result.ok:
            raise InstallFailedError(result)
        return decode_list(Package, result.result, "installed")

    def start_install(
        self, dependencies: str | Mapping[str, str] | Sequence[str], *, runtime: Runtime | None = None
    ) -> Process:
        """Start to install packages and return a handle at once, whose stream is the installer's progress."""
        body = compact(runtime=runtime, dependencies=wanted(dependencies), wait=False)
        result = decode_exec(self._transport.call("POST", self._path("packages"), json=body))
        return Process(self._transport, self.id, result.seq)

    # Files for other sandboxes.

    def export_files(self, *paths: str) -> list[ExportedFile]:
        """Offer files and directories below /workspace for download and to other sandboxes.

        Nothing is copied: they can be had as they are then, for as long as the sandbox is there. What cannot be
        exported says so in ``error``, and the others are exported.
        """
        return self._transfers.export(paths)

    def exports(self) -> list[ExportedFile]:
        """Return what is exported."""
        return self._transfers.exports()

    def import_files(self, *files: FileToImport) -> list[ImportedFile]:
        """Bring in content, or what other sandboxes exported. What could not be had says so in ``error``."""
        return self._transfers.take(files)

    @contextmanager
    def open_export(
        self, path: str, *, format: Literal["zip", "tar.gz"] | None = None
    ) -> Iterator[Iterator[bytes]]:
        """Read something exported piece by piece: the context gives an iterator over bytes.

        Args:
            path: a file, which comes as it is, or a directory, which comes as an archive.
            format: of the archive, ``"zip"`` (default) or ``"tar.gz"``.
        """
        with self._transfers.open(path, format) as pieces:
            yield pieces

    def download_export(
        self, path: str, local: str | PathLike[str], *, format: Literal["zip", "tar.gz"] | None = None
    ) -> None:
        """Copy something exported to a local file. Takes what open_export takes."""
        self._transfers.download(path, local, format)

    # Terminals.

    def open_terminal(
        self,
        name: str | None = None,
        *,
        size: WindowSize | None = None,
        cmd: str | None = None,
        user: str | None = None,
        cwd: str | None = None,
        seq: int | None = None,
        after: int | None = None,
    ) -> Terminal:
        """Attach to a terminal, which is made when none has the name. It needs ``pip install 'cubby-sdk[terminal]'``.

        Args:
            name: default ``main``.
            size: the terminal's from now on; None leaves the one that it has.
            cmd: what a new one runs; default an interactive shell.
            user: who runs it.
            cwd: where.
            seq: exactly that one, open or ended, instead of one by its name.
            after: the offset to begin at; default about the last 256 KiB.
        """
        params = query(name=name, cmd=cmd, user=user, cwd=cwd, seq=seq, after=after)
        return open_terminal(self._transport, self.id, size, params)

    def terminals(self) -> list[TerminalInfo]:
        """Return the sandbox's open terminals."""
        return decode_list(
            TerminalInfo, self._transport.call("GET", self._path("terminals"), repeat=True), "terminals"
        )

    def close_terminal(self, name: str) -> None:
        """Kill a terminal's program with everything that descends from it."""
        self._transport.call("DELETE", self._path("terminals", name), repeat=True)

    # Sessions.

    def session(self, name: str) -> Session:
        """Return a session shell by its name. It begins with its first command."""
        return Session(self, name)

    def sessions(self) -> list[SessionInfo]:
        """Return the sandbox's session shells."""
        return decode_list(
            SessionInfo, self._transport.call("GET", self._path("sessions"), repeat=True), "sessions"
        )

    # Life.

    def refresh(self) -> SandboxInfo:
        """Ask how the sandbox stands."""
        self.info = decode(SandboxInfo, self._transport.call("GET", self._path(), repeat=True))
        return self.info

    def stats(self) -> Stats:
        """Return what the sandbox uses now."""
        return decode(Stats, self._transport.call("GET", self._path("stats"), repeat=True))

    def start(self) -> SandboxInfo:
        """Run a stopped sandbox and return when it runs. Starting a running one does nothing."""
        return self._act("start")

    def stop(self, *, grace: float | timedelta | None = None) -> SandboxInfo:
        """End the sandbox's processes and keep its files. Stopping a stopped sandbox does nothing.

        Args:
            grace: how long the processes have to end before they are killed; None is the daemon's choice.
        """
        return self._act("stop", compact(grace_seconds=seconds(grace)) or None)

    def keepalive(
        self, *, until: datetime | None = None, duration: float | timedelta | None = None
    ) -> SandboxInfo:
        """Count as use of the sandbox, now or up to a time, so that it does not become idle.

        Args:
            until: keep it up to this time, which must have a zone.
            duration: keep it for so long from now on.
        """
        return self._act(
            "keepalive", compact(until=None if until is None else rfc3339(until), seconds=seconds(duration))
        )

    def update(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        ports: int | Sequence[int] | None = None,
        network: Network | None = None,
        visibility: Visibility | None = None,
        idle_policy: IdlePolicy | None = None,
        idle_timeout: float | timedelta | None = None,
        exec_timeout: float | timedelta | None = None,
        max_lifetime: float | timedelta | None = None,
    ) -> SandboxInfo:
        """Change the sandbox. What is None stays; what is given replaces the old value as a whole.

        A network without a mode keeps the present mode. Takes what :meth:`cubby.Sandboxes.create` takes.
        """
        body = compact(
            labels=labels,
            metadata=metadata,
            ports=port_list(ports),
            network=network,
            visibility=visibility,
            idle_policy=idle_policy,
            idle_timeout_seconds=seconds(idle_timeout),
            exec_timeout_seconds=seconds(exec_timeout),
            max_lifetime_seconds=seconds(max_lifetime),
        )
        return self._patch(body)

    def _patch(self, fields: Mapping[str, object]) -> SandboxInfo:
        self.info = decode(SandboxInfo, self._transport.call("PATCH", self._path(), json=fields, repeat=True))
        return self.info

    def destroy(self, *, keep_disk: bool = False, archive: bool = False) -> Archive | None:
        """End the sandbox and remove everything of it but its history.

        Args:
            keep_disk: keep /workspace and /home/sandbox: a create with the same id gets them back.
            archive: put them into the daemon's archive storage first, and return where. When that cannot be done the
                sandbox stays, stopped.
        """
        params = query(keep_disk=keep_disk, archive=archive)
        # An archive's answer is not to be lost in a repetition that finds nothing.
        answer = self._transport.call("DELETE", self._path(), params=params, repeat=not archive)
        return decode(Archive, answer) if archive else None

    def purge(self) -> int:
        """Destroy the sandbox with a disk that was kept, and return the bytes of the host's disk that became free."""
        answer = self._transport.call("POST", self._path("purge"))
        freed = answer.get("freed_bytes") if isinstance(answer, dict) else None
        if not isinstance(freed, int):
            raise malformed("freed_bytes is not a number")
        return freed
