"""Git in a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .._decode import decode
from .._lists import items
from .._request import FIRST_WAIT, compact, path
from ..errors import GitError
from ..execresults import decode_exec
from ..gitresults import (
    GitBranches,
    GitCloned,
    GitCommitted,
    GitDiff,
    GitHead,
    GitPulled,
    GitPushed,
    GitRevision,
    GitStatus,
)
from ..models import ExecResult
from .process import AsyncProcess
from .transport import AsyncTransport
from .waiting import wait_up_to

T = TypeVar("T")


class AsyncGit:
    """Git in a sandbox. Everything is given to git as arguments, never to a shell.

    Each call waits for its end and raises a :class:`cubby.GitError` when git did not do it; :meth:`start` gives a
    handle at once, whose stream is git's progress.

    ``path`` is the repository; relative ones are relative to /workspace, which is the default. ``timeout``
    is how many seconds the operation may take; default the sandbox's limit, 0 is none. ``username`` with
    ``password``, or ``token``, are for this one call: they are written neither to the sandbox's disk nor to its
    history.
    """

    def __init__(self, transport: AsyncTransport, box_id: str) -> None:
        self._transport = transport
        self._box_id = box_id

    async def start(self, operation: str, **fields: Any) -> AsyncProcess:
        """Start an operation and return a handle at once.

        Args:
            operation: ``"clone"``, ``"pull"`` …, as the other methods are called.
            fields: what the API takes for it, ``url="…"`` for example; a timeout is ``timeout_seconds``.
        """
        result = await self._post(operation, compact(**fields, wait=False))
        return AsyncProcess(self._transport, self._box_id, result.seq)

    async def _post(self, operation: str, body: dict[str, Any]) -> ExecResult:
        url = path("sandboxes", self._box_id, "git", operation)
        return decode_exec(await self._transport.call("POST", url, json=body))

    async def _run(self, kind: type[T], operation: str, timeout: float | None = None, **fields: Any) -> T:
        return _typed(kind, await self._finish(operation, timeout, fields))

    async def _finish(self, operation: str, timeout: float | None, fields: dict[str, Any]) -> ExecResult:
        body = compact(**fields, timeout_seconds=timeout, wait=True, wait_seconds=FIRST_WAIT)
        result = await self._post(operation, body)
        if not result.finished:
            url = path("sandboxes", self._box_id, "execs", result.seq)
            result = await wait_up_to(self._transport, url, None)
        if not result.ok:
            raise GitError(result)
        return result

    async def clone(
        self,
        url: str,
        dest: str | None = None,
        *,
        branch: str | None = None,
        depth: int | None = None,
        path: str | None = None,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        timeout: float | None = None,
    ) -> GitCloned:
        """Copy a repository into the sandbox.

        Args:
            url: http or https, or the absolute path of a repository in the sandbox.
            dest: where to; default the last part of the URL.
            branch: or tag; default the remote's.
            depth: how many commits; default all.
            path: what dest is relative to; default /workspace.
            username: of the remote.
            password: of the remote.
            token: of the remote, instead of both.
            timeout: seconds after which it is ended.
        """
        return await self._run(
            GitCloned,
            "clone",
            timeout,
            url=url,
            dest=dest,
            branch=branch,
            depth=depth,
            path=path,
            username=username,
            password=password,
            token=token,
        )

    async def status(self, path: str | None = None, *, timeout: float | None = None) -> GitStatus:
        """Tell what differs between the last commit, the index and the files."""
        return await self._run(GitStatus, "status", timeout, path=path)

    async def diff(
        self,
        path: str | None = None,
        *,
        staged: bool = False,
        files: str | Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> GitDiff:
        """Tell what changed in tracked files and is not committed.

        Args:
            path: the repository.
            staged: between the last commit and the index, instead of the index and the files.
            files: only these, and what lies below them.
            timeout: seconds after which it is ended.
        """
        fields = {"path": path, "staged": staged or None, "files": items(files)}
        result = await self._finish("diff", timeout, fields)
        changes = _typed(GitDiff, result)
        return GitDiff(changes.files, changes.additions, changes.deletions, changes.omitted, result.stdout)

    async def add(
        self,
        files: str | Sequence[str] | None = None,
        *,
        all: bool = False,
        path: str | None = None,
        timeout: float | None = None,
    ) -> GitStatus:
        """Put files into the index, or with all everything that differs. Names are names, not patterns."""
        return await self._run(GitStatus, "add", timeout, path=path, files=items(files), all=all or None)

    async def commit(
        self,
        message: str,
        *,
        files: str | Sequence[str] | None = None,
        all: bool = False,
        path: str | None = None,
        author_name: str | None = None,
        author_email: str | None = None,
        timeout: float | None = None,
    ) -> GitCommitted:
        """Record the index.

        Args:
            message: the commit's message.
            files: added before.
            all: everything that differs is added before, new files too.
            path: the repository.
            author_name: who commits; default the sandbox's configuration.
            author_email: likewise.
            timeout: seconds after which it is ended.
        """
        return await self._run(
            GitCommitted,
            "commit",
            timeout,
            message=message,
            files=items(files),
            all=all or None,
            path=path,
            author_name=author_name,
            author_email=author_email,
        )

    async def branch(
        self, name: str | None = None, *, path: str | None = None, timeout: float | None = None
    ) -> GitBranches:
        """List branches, after making one when a name is given."""
        return await self._run(GitBranches, "branch", timeout, path=path, name=name)

    async def checkout(
        self, name: str, *, create: bool = False, path: str | None = None, timeout: float | None = None
    ) -> GitHead:
        """Switch to a branch, a tag or a commit; with create to a new branch."""
        return await self._run(GitHead, "checkout", timeout, path=path, name=name, create=create or None)

    async def log(
        self,
        path: str | None = None,
        *,
        branch: str | None = None,
        limit: int | None = None,
        files: str | Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> list[GitRevision]:
        """Return commits, newest first.

        Args:
            path: the repository.
            branch: or any commit to begin with; default what is checked out.
            limit: how many; default 20, at most 200.
            files: only commits that touch these.
            timeout: seconds after which it is ended.
        """
        history = await self._run(_History, "log", timeout, path=path, branch=branch, limit=limit, files=items(files))
        return history.commits

    async def pull(
        self,
        path: str | None = None,
        *,
        remote: str | None = None,
        branch: str | None = None,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        timeout: float | None = None,
    ) -> GitPulled:
        """Fetch and merge; it never rebases.

        Args:
            path: the repository.
            remote: its name; default the branch's, else origin.
            branch: of the remote; default the branch's upstream.
            username: of the remote.
            password: of the remote.
            token: of the remote, instead of both.
            timeout: seconds after which it is ended.
        """
        return await self._run(
            GitPulled,
            "pull",
            timeout,
            path=path,
            remote=remote,
            branch=branch,
            username=username,
            password=password,
            token=token,
        )

    async def push(
        self,
        path: str | None = None,
        *,
        remote: str | None = None,
        branch: str | None = None,
        force: bool = False,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        timeout: float | None = None,
    ) -> GitPushed:
        """Send a branch to a remote, and make it the branch's upstream.

        Args:
            path: the repository.
            remote: its name; default the branch's, else origin.
            branch: default what is checked out.
            force: although the remote has commits that the branch has not.
            username: of the remote.
            password: of the remote.
            token: of the remote, instead of both.
            timeout: seconds after which it is ended.
        """
        return await self._run(
            GitPushed,
            "push",
            timeout,
            path=path,
            remote=remote,
            branch=branch,
            force=force or None,
            username=username,
            password=password,
            token=token,
        )


def _typed(kind: type[T], result: ExecResult) -> T:
    if isinstance(result.result, dict) and "error" in result.result:
        raise GitError(result)
    return decode(kind, result.result)


@dataclass(frozen=True)
class _History:
    commits: list[GitRevision]
