"""Tasks of coding agents in a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from .._decode import decode, decode_list
from .._lists import items
from .._request import compact, path, query, read_task_event, seconds
from ..taskresults import Cancelling, Restored, Task, TaskEvent, TaskPermissions, TaskStatus
from ._backend import owned, tell
from .streams import AsyncTaskStream
from .transport import AsyncTransport
from .waiting import poll_finished

_CANCEL_WAIT = 5.0


class AsyncTasks:
    """What coding agents are asked to do in a sandbox. A task goes on without whoever asked for it."""

    def __init__(self, transport: AsyncTransport, box: str) -> None:
        self._transport = transport
        self._box = box

    def _path(self, *elements: str) -> str:
        return path("sandboxes", self._box, "tasks", *elements)

    async def run(
        self,
        prompt: str,
        *,
        agent: str | None = None,
        command: str | Sequence[str] | None = None,
        protocol: Literal["acp", "json-lines"] | None = None,
        model: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secrets: str | Sequence[str] | None = None,
        timeout: float | timedelta | None = None,
        resume: str | None = None,
        permissions: TaskPermissions | None = None,
        check: bool = False,
        on_event: Callable[[TaskEvent], object] | None = None,
        kill_on_cancel: bool = False,
    ) -> Task:
        """Give a coding agent a task and return it when it has ended. One that fails is no error unless check says so.

        Takes what :meth:`start` takes, and:

        Args:
            prompt: what the agent shall do.
            agent: who does it.
            command: another agent.
            protocol: what that speaks.
            model: the agent's model.
            cwd: the directory of the project.
            env: variables of the agent alone.
            secrets: further secrets of the operator for the agent.
            timeout: seconds after which the agent is ended.
            resume: the task whose session goes on.
            permissions: who allows what the agent asks leave for.
            check: raise TaskFailedError when the task did not succeed.
            on_event: called with each event as it happens.
            kill_on_cancel: cancel the task when the call is left before its end, by Ctrl-C, the cancellation of its
                task, or a callback that raises. Without it the task goes on.
        """
        body = _body(prompt, agent, command, protocol, model, cwd, env, secrets, timeout, resume, permissions)

        async def follow(task: Task) -> Task:
            if on_event is not None:
                async with self.events(task.id) as events:
                    async for event in events:
                        await tell(on_event, event)
            return await self.wait(task.id)

        if kill_on_cancel:
            task = await owned(lambda: self._start(body), follow, lambda begun: self._abandon(begun.id))
        else:
            task = await follow(await self._start(body))
        return task.check() if check else task

    async def start(
        self,
        prompt: str,
        *,
        agent: str | None = None,
        command: str | Sequence[str] | None = None,
        protocol: Literal["acp", "json-lines"] | None = None,
        model: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secrets: str | Sequence[str] | None = None,
        timeout: float | timedelta | None = None,
        resume: str | None = None,
        permissions: TaskPermissions | None = None,
    ) -> Task:
        """Give a coding agent a task and return it at once. It wakes a sandbox that sleeps.

        While another task works in the same directory it is a :class:`cubby.TaskInProgressError`.

        Args:
            prompt: what the agent shall do.
            agent: ``"opencode"`` (default), ``"claude"``, ``"codex"`` or ``"gemini"``.
            command: another agent, as a program and its arguments; a string is a program without any.
            protocol: what the command speaks on its standard streams: ``"acp"`` (default), the Agent Client Protocol,
                or ``"json-lines"``, with the prompt as its last argument.
            model: as the agent names it; default the agent's own choice.
            cwd: the directory of the project, made when it is missing; default /workspace.
            env: variables of the agent alone, as keys of its provider. The daemon keeps them nowhere.
            secrets: names of further secrets of the operator for the agent. Those of its provider it has anyway.
            timeout: seconds after which the agent is ended; default ten minutes, 0 is never.
            resume: the id of an earlier task of this sandbox and agent, whose session goes on.
            permissions: ``"allow"`` (default) allows what the agent asks leave for, ``"ask"`` makes it an event that
                waits for :meth:`answer`.
        """
        return await self._start(
            _body(prompt, agent, command, protocol, model, cwd, env, secrets, timeout, resume, permissions)
        )

    async def _start(self, body: Mapping[str, object]) -> Task:
        return decode(Task, await self._transport.call("POST", self._path(), json=body))

    async def list(self, *, page_size: int | None = None) -> AsyncIterator[Task]:
        """Iterate over the sandbox's tasks, newest first, fetching page by page.

        Args:
            page_size: how many are fetched at a time; None is the daemon's choice.
        """
        before: int | None = None
        while True:
            params = query(before=before, limit=page_size)
            answer = await self._transport.call("GET", self._path(), params=params, repeat=True)
            for task in decode_list(Task, answer, "tasks"):
                yield task
            before = answer.get("next_before")
            if not before:
                return

    async def get(self, task: str) -> Task:
        """Return a task as it stands, also one of a sandbox that was destroyed a while ago."""
        return decode(Task, await self._transport.call("GET", self._path(task), repeat=True))

    async def wait(self, task: str, timeout: float | None = None) -> Task:
        """Return a task when it has ended. It outlives restarts of the daemon.

        Args:
            task: the task's id.
            timeout: seconds to wait; after that a RequestTimeoutError is raised, and the task goes on. None waits for
                as long as it takes.
        """
        return await poll_finished(self._transport, self._path(task), timeout, _decode)

    def events(self, task: str, *, since: int = 0) -> AsyncTaskStream:
        """Follow the events of a task to its end, also those of one that has ended.

        Leaving the stream does not touch the task.

        Args:
            task: the task's id.
            since: the id of the first event.
        """
        follow = self._transport.follow(self._path(task, "events"), {}, since, read_task_event, counted=True)
        return AsyncTaskStream(follow, since)

    async def cancel(self, task: str) -> TaskStatus:
        """Ask a task to end, and return how it stands: this does not wait. One that has ended stays as it is.

        The agent is killed with all that it started when it goes on for five seconds.
        """
        answer = await self._transport.call("POST", self._path(task, "cancel"), repeat=True)
        return decode(Cancelling, answer).task_status

    async def _abandon(self, task: str) -> None:
        """Cancel a task for a caller who is about to leave and waits for no more than half a minute."""
        await self._transport.call("POST", self._path(task, "cancel"), wait=_CANCEL_WAIT)

    async def answer(self, task: str, question: str, option: str) -> None:
        """Answer a question of the agent, which is an event of type ``permission``.

        Args:
            task: the task's id.
            question: the question's id.
            option: the id of one of its options.
        """
        await self._transport.call("POST", self._path(task, "permissions", question), json={"option": option})

    async def restore(self, task: str) -> Sequence[str]:
        """Bring the files back to what they were before a task, and return the names of those that changed.

        Later changes to them are lost too; files that the project's git ignores stay.
        """
        answer = await self._transport.call("POST", self._path(task, "restore"))
        return decode(Restored, answer).files


def _decode(data: object) -> Task:
    return decode(Task, data)


def _body(
    prompt: str,
    agent: str | None,
    command: str | Sequence[str] | None,
    protocol: str | None,
    model: str | None,
    cwd: str | None,
    env: Mapping[str, str] | None,
    secrets: str | Sequence[str] | None,
    timeout: float | timedelta | None,
    resume: str | None,
    permissions: str | None,
) -> dict[str, Any]:
    return compact(
        prompt=prompt,
        agent=agent,
        command=items(command),
        protocol=protocol,
        model=model,
        cwd=cwd,
        env=env,
        secrets=items(secrets),
        timeout_seconds=seconds(timeout),
        resume=resume,
        permissions=permissions,
    )
