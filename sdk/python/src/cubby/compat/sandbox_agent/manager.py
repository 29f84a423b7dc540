"""The manager of sessions."""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Iterator, Mapping, Sequence

from ..._lists import entries
from ..._sync.sandbox import Sandbox
from ...errors import CubbyError, InvalidRequestError, NotFoundError, WrongStateError
from ...transferresults import FileToImport
from . import answers, hostfiles
from .models import (
    ContainerDiedError,
    ExecutionResult,
    ExportFileResult,
    ExportResult,
    ImportFileResult,
    ImportResult,
    TerminalResult,
)
from .sessions import Sessions, told

_DEADLY = ("oom", "container_died", "sandbox_stopped", "sandbox_destroyed")


class SandboxManager(Sessions):
    """Makes sessions, which are sandboxes of a Cubby daemon, and runs code in them.

    It may be used by several threads. The sessions that it made end with :meth:`cleanup_all`, with its ``with``, and
    when the program ends; those that it could not end are destroyed by the daemon after half an hour without use, or
    two hours after their creation.

    Args:
        url: the daemon; default ``CUBBY_URL`` of the environment, else http://127.0.0.1:9090.
        token: default ``CUBBY_TOKEN`` of the environment.
        thread_id: the conversation that its sessions belong to. Sessions of other conversations are refused; those of
            the same one that another manager made are found. None is no conversation.
        isolation: ``"gvisor"`` or ``"container"``; None is the daemon's choice.
        mem_limit: memory of a session.
        execution_timeout: seconds for code whose call names none.
        terminal_timeout: seconds for commands whose call names none.
        max_sessions: how many sessions of this manager may live at once. The daemon bounds those of conversations.
        import_allowed_dirs: directories of this machine that files may be imported from; none by default.
        storage_dir: one more of these.
        max_stdout_chars: most of a command's standard output; what code prints is cut by the daemon.
        max_stderr_chars: most of its standard error.

    Attributes:
        sessions: the sessions by their ids.

    Methods raise a ValueError for a session that does not exist, a PermissionError for one of another conversation, a
    :class:`ContainerDiedError` for one that has ended by itself, and a RuntimeError for whatever else the daemon
    refuses; the :class:`cubby.CubbyError` is its cause.
    """

    # Code and commands.

    def execute_code(self, session_id: str, code: str, timeout: float | None = None) -> ExecutionResult:
        """Run code in the session's kernel, which keeps its state between calls.

        Args:
            session_id: the session.
            code: the value of its last expression is the result.
            timeout: seconds after which it is interrupted, with a TimeoutError as the result's error.
        """
        info, box = self._use(session_id)
        with self._watching(info, box):
            execution = box.run_code(code, info.runtime, timeout=timeout or self._execution_timeout)
            if execution.reason in _DEADLY:
                self._check_alive(info, box)
        if execution.reason == "oom":  # which here and there takes the kernel only
            raise ContainerDiedError(session_id, answers.OUT_OF_MEMORY)
        return answers.execution_result(execution)

    def execute_terminal(self, session_id: str, command: str, timeout: float | None = None) -> TerminalResult:
        """Run a line of shell in /workspace.

        Args:
            session_id: the session.
            command: the line.
            timeout: seconds after which it is killed with everything that it started; the exit code is then 124.
        """
        info, box = self._use(session_id)
        seconds = timeout or self._terminal_timeout
        with self._watching(info, box):
            result = box.exec(command, timeout=seconds)
            if result.reason in _DEADLY:
                self._check_alive(info, box)
        return answers.terminal_result(result, seconds, self._max_stdout, self._max_stderr)

    # Files.

    def import_files(self, session_id: str, files: Mapping[str, str] | Sequence[Mapping[str, str]]) -> ImportResult:
        """Copy files and directories into a session.

        Args:
            session_id: the session.
            files: entries, each with a ``destination``, relative to /workspace and by default the last part of the
                name, and with one of: ``source``, a path of this machine below one of the allowed directories;
                ``session_id`` and ``path`` of something that another session has exported; ``file_content``, with
                ``encoding`` ``"text"`` or ``"base64"``.
        """
        info, box = self._use(session_id)
        done = []
        for entry in entries(files):
            with self._watching(info, box):
                done.append(self._import(box, entry))
        return ImportResult(all(f.success for f in done), done)

    def _import(self, box: Sandbox, entry: Mapping[str, str]) -> ImportFileResult:
        source, destination = entry.get("source", ""), entry.get("destination", "")
        other = entry.get("session_id")
        if other or "file_content" in entry:
            name = f"{other}:{entry.get('path', '')}" if other else "inline"
            try:
                return _imported(box, _wanted(entry))
            except InvalidRequestError as e:
                return ImportFileResult(name, destination, False, error=str(e))
        if not source:
            return ImportFileResult(source, destination, False, error="source or (session_id, path) is required")
        try:
            path = hostfiles.allowed_source(source, self._allowed)
        except FileNotFoundError as e:
            return ImportFileResult(source, destination, False, error=str(e))
        except PermissionError as e:
            # The daemon has the conversation's uploads, and a list of its own.
            there = _imported(box, FileToImport(destination, source=source))
            if not there.success and "denied" in there.error:
                there.error = str(e)
            return there
        destination = hostfiles.destination_of(path, destination)
        try:
            size = hostfiles.size_of(path)
            if path.is_dir():
                box.files.upload_dir(path, destination)
            else:
                box.files.upload(path, destination)
        except (NotFoundError, WrongStateError):
            raise
        except (CubbyError, OSError) as e:
            return ImportFileResult(source, destination, False, error=f"{type(e).__name__}: {e}")
        return ImportFileResult(source, destination, True, size)

    def export_files(self, session_id: str, files: Mapping[str, str] | Sequence[Mapping[str, str]]) -> ExportResult:
        """Register files and directories of a session for download and for other sessions. Nothing is copied.

        Args:
            session_id: the session.
            files: entries with ``source``, a path relative to /workspace, and not outside of it.
        """
        info, box = self._use(session_id)
        with self._watching(info, box):
            done = box.export_files(*(entry.get("source", "") for entry in entries(files)))
        results = [ExportFileResult(session_id, f.path, f.success, f.size, f.error, f.download_url) for f in done]
        return ExportResult(all(f.success for f in results), results)

    def is_file_exported(self, thread_key: str, session_id: str, path: str) -> bool:
        """Tell whether something is exported, itself or with a directory above it.

        Args:
            thread_key: the session's conversation, or the session's id when it belongs to none.
            session_id: the session.
            path: relative to /workspace.
        """
        try:
            info, box = self._find(session_id)
        except ValueError:
            return False
        if thread_key != (info.thread_id or session_id):
            return False
        path = hostfiles.in_workspace(path)
        with self._watching(info, box):
            exported = [f.path for f in box.exports()]
        return any(path == e or path.startswith(e.rstrip("/") + "/") for e in exported)

    def is_exported_path_file(self, thread_id: str | None, session_id: str, path: str) -> bool:
        """Tell whether something is exported and a regular file."""
        if not self.is_file_exported(thread_id or session_id, session_id, path):
            return False
        _, box = self._find(session_id)
        with told(), contextlib.suppress(NotFoundError):
            return box.files.stat(hostfiles.in_workspace(path)).is_file
        return False

    def stream_exported_file(self, thread_id: str | None, session_id: str, path: str) -> Iterator[bytes]:
        """Give the bytes of an exported file, or of a zip of an exported directory; raise ValueError for another."""
        if not self.is_file_exported(thread_id or session_id, session_id, path):
            raise ValueError(f"File not exported: {session_id}:{path}")
        _, box = self._find(session_id)
        with told(), box.open_export(hostfiles.in_workspace(path)) as pieces:
            yield from pieces


def _imported(box: Sandbox, file: FileToImport) -> ImportFileResult:
    [done] = box.import_files(file)
    return ImportFileResult(done.source, done.destination, done.success, done.size, done.error)


def _wanted(entry: Mapping[str, str]) -> FileToImport:
    """Read an entry that the daemon imports."""
    content: bytes | str | None = entry.get("file_content")
    if content is not None and entry.get("encoding", "text") == "base64":
        try:
            content = base64.b64decode(content, validate=True)
        except binascii.Error as e:
            raise InvalidRequestError(f"file_content is not base64: {e}") from e
    return FileToImport(entry.get("destination", ""), content, entry.get("session_id", ""), entry.get("path", ""))
