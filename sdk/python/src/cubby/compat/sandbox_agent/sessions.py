"""Sessions: how they come, are found and go."""

from __future__ import annotations

import atexit
import contextlib
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

from ..._lists import directories, wanted
from ..._sync.client import Client
from ..._sync.sandbox import Sandbox
from ...errors import (
    ConflictError,
    CubbyError,
    InvalidRequestError,
    NotFoundError,
    RequestTimeoutError,
    WrongStateError,
)
from ...models import Isolation, Limits, Network, Runtime, SandboxInfo
from . import answers
from .models import ContainerDiedError, SessionInfo, _now

S = TypeVar("S", bound="Sessions")

RUNTIMES = ("python", "node", "r")
"""What sessions can be for."""

_PACKAGE_NAME = re.compile(r"@?[a-zA-Z0-9]([a-zA-Z0-9._/-]*[a-zA-Z0-9])?")
_IDLE_SECONDS, _LIFETIME_SECONDS = 1800.0, 7200.0


class Sessions:
    """Makes sessions and keeps them; see :class:`SandboxManager`."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        thread_id: str | None = None,
        isolation: Isolation | None = None,
        mem_limit: str = "2048m",
        execution_timeout: float = 30,
        terminal_timeout: float = 300,
        max_sessions: int = 5,
        import_allowed_dirs: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
        storage_dir: str | PathLike[str] | None = None,
        max_stdout_chars: int = 50_000,
        max_stderr_chars: int = 120_000,
    ) -> None:
        self.client = Client(url, token)
        self.thread_id = thread_id
        self.sessions: dict[str, SessionInfo] = {}
        self._boxes: dict[str, Sandbox] = {}
        self._made: set[str] = set()
        self._coming = 0
        self._lock = threading.Lock()  # guards the four above
        self._isolation = isolation
        self._mem_limit = mem_limit
        self._execution_timeout = execution_timeout
        self._terminal_timeout = terminal_timeout
        self._max_sessions = max_sessions
        allowed = [*directories(import_allowed_dirs), *([] if storage_dir is None else [Path(storage_dir)])]
        self._allowed = [directory.resolve() for directory in allowed]
        self._max_stdout, self._max_stderr = max_stdout_chars, max_stderr_chars
        atexit.register(self.cleanup_all)

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the sessions and the connections."""
        self.cleanup_all()
        atexit.unregister(self.cleanup_all)
        self.client.close()

    # Sessions.

    def create_session(
        self,
        runtime: str = "python",
        dependencies: str | Mapping[str, str] | Sequence[str] | None = None,
        mem_limit: str | int | None = None,
        cpu_quota: int | None = None,
        network: bool = True,
    ) -> SessionInfo:
        """Make a session and return when its kernel is ready.

        Args:
            runtime: ``"python"``, ``"node"`` or ``"r"``.
            dependencies: packages to install: a name, names, or names with versions, of which an empty one is any.
                When that fails there is no session, and the RuntimeError has the installer's log.
            mem_limit: its memory, ``"512m"`` for example.
            cpu_quota: its processors, in 100000ths of one.
            network: whether it may use the network, as far as the daemon allows.
        """
        if runtime not in RUNTIMES:
            raise ValueError(f"Runtime '{runtime}' not supported. Use: {list(RUNTIMES)}")
        packages = wanted(dependencies or ())
        for name in packages:
            if not _PACKAGE_NAME.fullmatch(name):
                raise ValueError(
                    f"Invalid package name: {name!r}. "
                    "Names must contain only letters, digits, dots, hyphens, underscores, and slashes."
                )
        limits = Limits(
            memory_bytes=answers.memory_bytes(mem_limit or self._mem_limit),
            cpus=None if cpu_quota is None else cpu_quota / 100_000,
        )
        with self._room(), told():
            box = self._create(cast(Runtime, runtime), limits, network)
            info = SessionInfo(box.id, box.id, f"sandbox-{box.id}", runtime, "starting", self.thread_id, packages)
            with self._lock:
                self.sessions[box.id], self._boxes[box.id] = info, box
                self._made.add(box.id)
        try:
            with told():
                if packages:
                    info.stderr = self._install(box, cast(Runtime, runtime), packages)
                box.kernels.create(runtime)
        except BaseException:
            self._forget(info)
            with contextlib.suppress(CubbyError):
                box.destroy()
            raise
        info.status = "running"
        return info

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        """Keep a place for one more session while it is made. Dead sessions take none."""
        with self._lock:
            living = sum(info.status != "dead" for info in self.sessions.values()) + self._coming
            if living >= self._max_sessions:
                raise RuntimeError(
                    f"Maximum number of sessions ({self._max_sessions}) reached. Stop an existing session first."
                )
            self._coming += 1
        try:
            yield
        finally:
            with self._lock:
                self._coming -= 1

    def _create(self, runtime: Runtime, limits: Limits, network: bool) -> Sandbox:
        # The daemon looks after the sandboxes of threads as a whole.
        alone = self.thread_id is None
        while True:
            with contextlib.suppress(ConflictError):  # somebody has this id
                return self.client.sandboxes.create(
                    uuid.uuid4().hex[:8],
                    runtime=runtime,
                    isolation=self._isolation,
                    limits=limits,
                    network=None if network else Network("none"),
                    thread=self.thread_id,
                    idle_policy="destroy" if alone else None,
                    idle_timeout=_IDLE_SECONDS if alone else None,
                    max_lifetime=_LIFETIME_SECONDS if alone else None,
                )

    def _install(self, box: Sandbox, runtime: Runtime, packages: Mapping[str, str]) -> str:
        result = box.start_install(packages, runtime=runtime).wait()
        stderr = answers.truncated(result.stderr, self._max_stderr)
        if not result.ok:
            log = answers.truncated(result.stdout, self._max_stdout) + stderr
            raise RuntimeError(f"Installing {', '.join(packages)} failed: {result.describe_end()}\n{log}")
        return stderr

    def stop_session(self, session_id: str) -> bool:
        """End a session; False when there is none of this id."""
        try:
            info, box = self._find(session_id)
        except ValueError:
            return False
        self._forget(info)
        with told(), contextlib.suppress(NotFoundError):
            box.destroy()
        return True

    def cleanup_thread_sessions(self, thread_id: str) -> int:
        """End the sessions of a conversation and remove its uploads; returns how many sessions that were."""
        with told():
            ended = self.client.destroy_thread(thread_id)
        with self._lock:
            gone = [info for info in self.sessions.values() if info.thread_id == thread_id]
        for info in gone:
            self._forget(info)
        return ended

    def cleanup_all(self) -> None:
        """End the sessions that this manager made."""
        with self._lock:
            boxes = [box for sid, box in self._boxes.items() if sid in self._made]
            self.sessions.clear()
            self._boxes.clear()
            self._made.clear()
        for box in boxes:
            with contextlib.suppress(CubbyError):
                box.destroy()

    def _forget(self, info: SessionInfo) -> None:
        with self._lock:
            self.sessions.pop(info.session_id, None)
            self._boxes.pop(info.session_id, None)
            self._made.discard(info.session_id)

    def _find(self, session_id: str) -> tuple[SessionInfo, Sandbox]:
        """Return a session that may be used here."""
        with self._lock:
            info, box = self.sessions.get(session_id), self._boxes.get(session_id)
        if info is not None and box is not None:
            return info, box
        box = None
        if self.thread_id is not None:
            with told(), contextlib.suppress(NotFoundError, InvalidRequestError):
                box = self.client.sandboxes.get(session_id)
        if box is None or not box.info.thread:
            raise ValueError(f"Session '{session_id}' not found")
        if box.info.thread != self.thread_id:
            raise PermissionError(
                f"Session '{session_id}' belongs to another conversation. "
                "Use a session from your own conversation or create a new one."
            )
        info = _described(box.info)
        with self._lock:
            return self.sessions.setdefault(session_id, info), self._boxes.setdefault(session_id, box)

    # Their use.

    def _use(self, session_id: str) -> tuple[SessionInfo, Sandbox]:
        info, box = self._find(session_id)
        info.last_activity = _now()
        return info, box

    @contextlib.contextmanager
    def _watching(self, info: SessionInfo, box: Sandbox) -> Iterator[None]:
        """Turn errors into the documented ones, and a sandbox that is gone into its death."""
        with told():
            try:
                yield
            except (NotFoundError, WrongStateError) as e:
                self._check_alive(info, box, e)
                raise

    def _check_alive(self, info: SessionInfo, box: Sandbox, cause: Exception | None = None) -> None:
        """Raise ContainerDiedError if the session's sandbox does not run any more."""
        try:
            state = box.refresh()
        except NotFoundError:
            reason, code = answers.REMOVED, None
        else:
            if state.status == "running":
                return
            reason, code = answers.death(state.status, state.reason)
        info.status = "dead"
        raise ContainerDiedError(info.session_id, reason, code) from cause


def _described(box: SandboxInfo) -> SessionInfo:
    """Describe a session that another manager made."""
    info = SessionInfo(
        box.id, box.id, f"sandbox-{box.id}", box.runtime or "python", "running", box.thread, dict(box.dependencies)
    )
    info.created_at = box.created_at or info.created_at
    return info


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Turn the SDK's errors into those that the manager documents."""
    try:
        yield
    except InvalidRequestError as e:
        raise ValueError(str(e)) from e
    except RequestTimeoutError as e:
        raise TimeoutError(str(e)) from e
    except CubbyError as e:
        raise RuntimeError(e.message if e.message.startswith("Maximum ") else str(e)) from e
