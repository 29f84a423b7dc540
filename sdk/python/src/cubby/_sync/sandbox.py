# Made from ../_async/sandbox.py by tools/unasync.py; change that one.
"""One sandbox."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType

from .._decode import decode, decode_list, malformed
from .._request import FIRST_WAIT, compact, exec_body, path, query, rfc3339, seconds
from ..errors import CubbyError, NotFoundError, WrongStateError
from ..models import Archive, ExecResult, Limits, Network, SandboxInfo, SessionInfo, Stats, WindowSize, decode_exec
from .events import Events
from .files import Files
from .git import Git
from .process import Process
from .session import Session
from .transport import Transport, Params
from .waiting import wait_up_to


class Sandbox:
    """A sandbox. Used as a context manager it is destroyed at the end.

    Attributes:
        files: its files.
        git: git in it.
        events: its history.
        info: how it stood when the daemon was last asked by a method of this object.
    """

    def __init__(self, transport: Transport, info: SandboxInfo) -> None:
        self._transport = transport
        self.info = info
        self.files = Files(transport, info.id)
        self.git = Git(transport, info.id)
        self.events = Events(transport, info.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.status}>"

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self.info.id

    @property
    def status(self) -> str:
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
                not ended by then goes on, and the result says so in ``status``.
            check: raise ExecFailedError when it ended otherwise than with exit code 0.
            max_output_bytes: most of stdout and of stderr in the result, each; the daemon's default is 8 MiB. What is
                left out is counted in ``truncated``.
        """
        body = exec_body(
            cmd, timeout=timeout, env=env, cwd=cwd, user=user, session=session, stdin=stdin is not None, pty=None
        )
        limit: float | None = None if wait is True else float(wait)
        if stdin is not None:
            body["wait"] = False
            process = self._start(body)
            with suppress(WrongStateError):  # it ended without reading all of it
                process.write_stdin(stdin, eof=True)
            result = wait_up_to(self._transport, self._path("execs", process.seq), limit, max_output_bytes)
        else:
            first = FIRST_WAIT if limit is None else min(FIRST_WAIT, limit)
            body |= compact(wait=first > 0, wait_seconds=first or None, max_output_bytes=max_output_bytes)
            result = decode_exec(self._transport.call("POST", self._path("exec"), json=body))
            left = None if limit is None else limit - first
            if not result.finished and (left is None or left > 0):
                result = wait_up_to(self._transport, self._path("execs", result.seq), left, max_output_bytes)
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
        body["wait"] = False
        return self._start(body)

    def _start(self, body: dict[str, object]) -> Process:
        result = decode_exec(self._transport.call("POST", self._path("exec"), json=body))
        return Process(self._transport, self.id, result.seq, fresh=True)

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
        ports: Sequence[int] | None = None,
        network: Network | None = None,
        visibility: str | None = None,
        idle_policy: str | None = None,
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
            ports=None if ports is None else list(ports),
            network=network,
            visibility=visibility,
            idle_policy=idle_policy,
            idle_timeout_seconds=seconds(idle_timeout),
            exec_timeout_seconds=seconds(exec_timeout),
            max_lifetime_seconds=seconds(max_lifetime),
        )
        answer = self._transport.call("PATCH", self._path(), json=body, repeat=True)
        self.info = decode(SandboxInfo, answer)
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


class Sandboxes:
    """The daemon's sandboxes, as far as the token may see them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        id: str | None = None,
        *,
        image: str | None = None,
        isolation: str | None = None,
        limits: Limits | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        ports: Sequence[int] | None = None,
        network: Network | None = None,
        visibility: str | None = None,
        thread: str | None = None,
        idle_policy: str | None = None,
        idle_timeout: float | timedelta | None = None,
        exec_timeout: float | timedelta | None = None,
        max_lifetime: float | timedelta | None = None,
        restore: str | None = None,
        idempotency_key: str | None = None,
    ) -> Sandbox:
        """Make a sandbox and return when it runs.

        Every argument may be left out. A request whose answer was lost is repeated without making a second sandbox.

        Args:
            id: its name; generated when absent.
            image: what it starts from; default ``base``.
            isolation: ``"gvisor"`` (default) or ``"container"``.
            limits: bounds of what it can use.
            env: variables of every command.
            user: who commands run as; default ``sandbox``.
            labels: what lists can be filtered by.
            metadata: notes.
            ports: noted and shown.
            network: how far it can reach.
            visibility: ``"private"`` (default) or ``"public"``.
            thread: groups sandboxes of one conversation; the daemon may bound their number.
            idle_policy: what happens when it is not used: ``"stop"``, ``"destroy"``, ``"sleep"`` or ``"always_on"``.
            idle_timeout: seconds without use after which that happens; 0 is never.
            exec_timeout: seconds after which commands that name none are killed; 0 is never.
            max_lifetime: seconds after which it is destroyed whatever it does; 0 is never.
            restore: the archive to fill /workspace and /home/sandbox from.
            idempotency_key: makes a repeat of the same call, also by another program, return the same sandbox.
        """
        body = compact(
            id=id,
            image=image,
            isolation=isolation,
            limits=limits,
            env=env,
            user=user,
            labels=labels,
            metadata=metadata,
            ports=None if ports is None else list(ports),
            network=network,
            visibility=visibility,
            thread=thread,
            idle_policy=idle_policy,
            idle_timeout_seconds=seconds(idle_timeout),
            exec_timeout_seconds=seconds(exec_timeout),
            max_lifetime_seconds=seconds(max_lifetime),
            restore=restore,
        )
        headers = {"Idempotency-Key": idempotency_key or f"python-{uuid.uuid4()}"}
        answer = self._transport.call("POST", path("sandboxes"), json=body, headers=headers, repeat=True)
        return Sandbox(self._transport, decode(SandboxInfo, answer))

    def get(self, id: str) -> Sandbox:
        """Return a sandbox by its id."""
        answer = self._transport.call("GET", path("sandboxes", id), repeat=True)
        return Sandbox(self._transport, decode(SandboxInfo, answer))

    def list(
        self, *, labels: Mapping[str, str] | None = None, status: str | None = None, page_size: int | None = None
    ) -> Iterator[Sandbox]:
        """Iterate over sandboxes, newest first, fetching page by page.

        Args:
            labels: only those that have all of these.
            status: only those; without it all but destroyed ones.
            page_size: how many are fetched at a time; None is the daemon's choice.
        """
        cursor: str | None = None
        filters = [("label", f"{k}={v}") for k, v in (labels or {}).items()]
        while True:
            params: Params = [*filters, *query(status=status, limit=page_size, cursor=cursor).items()]
            answer = self._transport.call("GET", path("sandboxes"), params=params, repeat=True)
            for info in decode_list(SandboxInfo, answer, "sandboxes"):
                yield Sandbox(self._transport, info)
            cursor = answer.get("next_cursor")
            if not cursor:
                return
