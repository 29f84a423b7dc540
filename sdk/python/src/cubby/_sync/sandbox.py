# Made from ../_async/sandbox.py by tools/unasync.py; change that one.
"""One sandbox."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from .._decode import decode, decode_list, malformed
from .._lists import items, port_list, service_list
from .._request import compact, query, rfc3339, seconds
from .._short import Short
from ..errors import CubbyError, NotFoundError, UnsupportedError
from ..models import (
    Archive,
    AutoWake,
    HostHeader,
    IdlePolicy,
    Link,
    Network,
    Port,
    SandboxInfo,
    SessionInfo,
    Stats,
    Status,
    TerminalInfo,
    Visibility,
    WindowSize,
)
from ..serviceresults import ServiceSpec
from ..transferresults import ExportedFile, FileToImport, ImportedFile
from .events import Events
from .files import Files
from .git import Git
from .kernels import Kernels
from .network import NetworkAccess
from .running import Running
from .services import Services
from .session import Session
from .tasks import Tasks
from .terminal import Terminal, open_terminal
from .transfers import Transfers
from .transport import Transport

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import CreateOptions
    from .client import Client


@dataclass(frozen=True, repr=False)
class Forked(Short):
    """What a fork made.

    ``paused_ms`` is how long the parent stood still. ``warnings`` say what the new sandboxes have in common with it
    and should not, as the state of a program's random generator.
    """

    sandboxes: list[Sandbox]
    paused_ms: int
    warnings: list[str]


class Sandbox(Running):
    """A sandbox. Used as a context manager it is destroyed at the end.

    Attributes:
        files: its files.
        git: git in it.
        kernels: its interpreters of code.
        network: what it may reach.
        events: its history.
        services: the commands that run for as long as it does.
        tasks: what coding agents are asked to do in it.
        info: how it stood when the daemon was last asked by a method of this object.
    """

    def __init__(self, transport: Transport, info: SandboxInfo) -> None:
        super().__init__(transport, info.id)
        self.info = info
        self.files = Files(transport, info.id)
        self.git = Git(transport, info.id)
        self.kernels = Kernels(transport, info.id)
        self.network = NetworkAccess(self)
        self.events = Events(transport, info.id)
        self.services = Services(transport, info.id)
        self.tasks = Tasks(transport, info.id)
        self._client: Client | None = None  # its own, when it was made without one
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

    def _act(self, act: str, body: Mapping[str, object] | None = None) -> SandboxInfo:
        """Do what is harmless to repeat."""
        self.info = decode(SandboxInfo, self._transport.call("POST", self._path(act), json=body, repeat=True))
        return self.info

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

    # Ports.

    def ports(self) -> list[Port]:
        """Return the ports that something listens on, and the declared ones. It wakes nothing."""
        return decode_list(Port, self._transport.call("GET", self._path("ports"), repeat=True), "ports")

    def port(self, port: int) -> Port:
        """Return one port, whether or not something listens on it. It wakes nothing."""
        return decode(Port, self._transport.call("GET", self._path("ports", str(port)), repeat=True))

    def url(self, port: int) -> str:
        """Return the address under which a port is seen.

        It is the plain one where the sandbox is public and declares the port, else a link that holds for a day.
        """
        if self.info.visibility == "public":
            plain = self.port(port)
            if plain.declared and plain.url:
                return plain.url
        return (self.link(port)).url

    def get_host(self, port: int) -> str:
        """Return the host name of a port, with the port of the daemon's previews where it is not the scheme's own.

        Who opens it needs a link, or a token in ``X-Cubby-Preview-Token``, unless everybody may see the port.
        """
        seen = (self.port(port)).url
        if not seen:
            raise UnsupportedError("this daemon serves no previews")
        return urlsplit(seen).netloc

    def link(self, port: int, *, expires_in: float | timedelta | None = None) -> Link:
        """Make a link that shows a port to whoever has it.

        Args:
            port: the port; nothing need listen yet.
            expires_in: how long it holds; default a day.
        """
        body = compact(expires_in=seconds(expires_in))
        return decode(Link, self._transport.call("POST", self._path("ports", str(port), "links"), json=body))

    def end_links(self) -> None:
        """End all links to the sandbox's ports."""
        self._transport.call("DELETE", self._path("links"), repeat=True)

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
        """Run a stopped sandbox and return when it runs. Starting a running one does nothing; a sleeping one wakes."""
        return self._act("start")

    def stop(self, *, grace: float | timedelta | None = None, force: bool = False) -> SandboxInfo:
        """End the sandbox's processes and keep its files. Stopping a stopped sandbox does nothing.

        Args:
            grace: how long the processes have to end before they are killed; None is the daemon's choice.
            force: also while a task of a coding agent runs, which is a :class:`TaskInProgressError` otherwise.
        """
        return self._act("stop", compact(grace_seconds=seconds(grace), force=force or None) or None)

    def sleep(self, *, force: bool = False) -> SandboxInfo:
        """Write the sandbox's memory to disk and end its run. All that ran goes on after the wake.

        The next use wakes it, unless ``auto_wake`` is ``never``.
        Where memory cannot be kept, as in containers, the sandbox is stopped instead: the status is then ``stopped``,
        and ``reason`` says why. Putting a sleeping sandbox to sleep does nothing.

        Args:
            force: also while a command, a cell, a transfer or a viewer is active, which is an :class:`InUseError`
                otherwise. Commands, cells and terminals go on after the wake.
        """
        return self._act("sleep", {"force": force})

    def wake(self) -> SandboxInfo:
        """Wake a sleeping sandbox and return when it runs. Waking a running one does nothing; a stopped one starts.

        If its memory can no longer be read, it starts from its files, and ``restore_incomplete`` is true.
        """
        return self._act("wake")

    def fork(self, count: int | None = None, *, ids: str | Sequence[str] = ()) -> Forked:
        """Make sandboxes with the memory and files that this one has at one instant. It goes on.

        All of them are made, or none. A container cannot be forked: make a snapshot of its files.

        Args:
            count: how many, at most 100; default as many as there are ids, at least one.
            ids: names of the first of them; the others have generated ones.
        """
        body = compact(count=count, ids=items(ids) or None)
        answer = self._transport.call("POST", self._path("fork"), json=body)
        boxes = decode_list(SandboxInfo, answer, "sandboxes")
        if not isinstance(answer, dict):
            raise malformed("a fork")
        return Forked(
            sandboxes=[Sandbox(self._transport, info) for info in boxes],
            paused_ms=int(answer.get("paused_ms") or 0),
            warnings=[str(w) for w in answer.get("warnings") or ()],
        )

    def rollback(self, snapshot: str) -> SandboxInfo:
        """Put the sandbox back to a snapshot, by its id or name, and return when it is.

        Its files are the snapshot's, and its memory if the snapshot has it. What runs ends.
        """
        return self._act("rollback", {"snapshot": snapshot})

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
        services: ServiceSpec | Sequence[ServiceSpec] | None = None,
        network: Network | None = None,
        visibility: Visibility | None = None,
        host_header: HostHeader | None = None,
        idle_policy: IdlePolicy | None = None,
        idle_timeout: float | timedelta | None = None,
        auto_wake: AutoWake | None = None,
        exec_timeout: float | timedelta | None = None,
        max_lifetime: float | timedelta | None = None,
        git_remote_url: str | None = None,
    ) -> SandboxInfo:
        """Change the sandbox. What is None stays; what is given replaces the old value as a whole.

        A network without a mode keeps the present mode. Takes what :meth:`cubby.Sandboxes.create` takes.
        """
        body = compact(
            labels=labels,
            metadata=metadata,
            ports=port_list(ports),
            services=service_list(services),
            network=network,
            visibility=visibility,
            host_header=host_header,
            idle_policy=idle_policy,
            idle_timeout_seconds=seconds(idle_timeout),
            auto_wake=auto_wake,
            exec_timeout_seconds=seconds(exec_timeout),
            max_lifetime_seconds=seconds(max_lifetime),
            git_remote_url=git_remote_url,
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
