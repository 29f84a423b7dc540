"""Kernels: interpreters that keep their state between cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .._decode import decode, decode_list
from .._request import compact, path
from ..coderesults import (
    CodeCompleteness,
    CodeCompletion,
    CodeInspection,
    Execution,
    KernelInfo,
    KernelKind,
    RichOutput,
)
from .code import AsyncCell, AsyncCode
from .transport import AsyncTransport


class AsyncKernel:
    """A kernel of a sandbox. It ends with the sandbox's stop, or when it is deleted.

    Attributes:
        box_id: the sandbox's id.
        info: how it stood when the daemon was last asked by a method of this object.
    """

    def __init__(self, transport: AsyncTransport, box_id: str, info: KernelInfo) -> None:
        self._transport = transport
        self._code = AsyncCode(transport, box_id)
        self.box_id = box_id
        self.info = info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.box_id} {self.info.status}>"

    @property
    def name(self) -> str:
        """Its name within the sandbox."""
        return self.info.name

    def _path(self, *elements: str) -> str:
        return path("sandboxes", self.box_id, "kernels", self.name, *elements)

    async def run(
        self,
        code: str,
        *,
        timeout: float | None = None,
        wait: bool | float = True,
        check: bool = False,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        on_output: Callable[[RichOutput], object] | None = None,
        kill_on_cancel: bool = False,
    ) -> Execution:
        """Run a cell in it. Takes what :meth:`cubby.Sandbox.run_code` takes."""
        execution = await self._code.run(
            code, wait, on_stdout, on_stderr, on_output, kill_on_cancel, kernel=self.name, timeout_seconds=timeout
        )
        return execution.raise_for_error() if check and execution.finished else execution

    async def start(self, code: str, *, timeout: float | None = None, stdin: bool = False) -> AsyncCell:
        """Queue a cell and return a handle at once. Takes what :meth:`cubby.Sandbox.start_code` takes."""
        return await self._code.start(code, kernel=self.name, timeout_seconds=timeout, stdin=stdin or None)

    async def complete(self, code: str, cursor: int | None = None) -> CodeCompletion:
        """Ask how code can go on. Nothing is run. A ConflictError while a cell runs, as with the other questions.

        Args:
            code: the code.
            cursor: where in the code, as an index; default its end.
        """
        body = compact(code=code, cursor_pos=cursor)
        answer = await self._transport.call("POST", self._path("complete"), json=body, repeat=True)
        return decode(CodeCompletion, answer)

    async def inspect(self, code: str, cursor: int | None = None, *, detail: int = 0) -> CodeInspection:
        """Ask what the name at the cursor is: its documentation, type and the like.

        Args:
            code: the code.
            cursor: where in the code, as an index; default its end.
            detail: 1 instead of 0 for more, as the source.
        """
        body = compact(code=code, cursor_pos=cursor, detail_level=detail)
        answer = await self._transport.call("POST", self._path("inspect"), json=body, repeat=True)
        return decode(CodeInspection, answer)

    async def is_complete(self, code: str) -> CodeCompleteness:
        """Ask whether code can be run as it stands, or more lines belong to it."""
        answer = await self._transport.call("POST", self._path("is-complete"), json={"code": code}, repeat=True)
        return decode(CodeCompleteness, answer)

    async def refresh(self) -> KernelInfo:
        """Ask how the kernel stands."""
        self.info = decode(KernelInfo, await self._transport.call("GET", self._path(), repeat=True))
        return self.info

    async def interrupt(self) -> KernelInfo:
        """Interrupt the cell that runs, if there is one; what was defined stays."""
        self.info = decode(KernelInfo, await self._transport.call("POST", self._path("interrupt"), repeat=True))
        return self.info

    async def restart(self) -> KernelInfo:
        """Begin anew, without what cells before defined, and return when it is ready. The cell that runs is ended."""
        self.info = decode(KernelInfo, await self._transport.call("POST", self._path("restart")))
        return self.info

    async def delete(self) -> None:
        """End it."""
        await self._transport.call("DELETE", self._path(), repeat=True)


class AsyncKernels:
    """The kernels of a sandbox.

    One for each language begins by itself with the first cell in that language, under the language's name; others are
    made here.
    """

    def __init__(self, transport: AsyncTransport, box_id: str) -> None:
        self._transport = transport
        self._box_id = box_id

    def _path(self, *elements: str) -> str:
        return path("sandboxes", self._box_id, "kernels", *elements)

    async def create(
        self,
        language: str,
        name: str | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> AsyncKernel:
        """Make a kernel and return when it is ready. A name that is taken is a ConflictError.

        Args:
            language: ``"python"``, ``"node"``, ``"r"``, or the name of a kernelspec of the image.
            name: its name; default the language's.
            cwd: where it runs; default /workspace.
            env: variables on top of the sandbox's.
            user: who runs it; default the sandbox's user.
        """
        body = compact(language=language, name=name, cwd=cwd, env=env, user=user)
        answer = await self._transport.call("POST", self._path(), json=body)
        return AsyncKernel(self._transport, self._box_id, decode(KernelInfo, answer))

    async def get(self, name: str) -> AsyncKernel:
        """Return a kernel by its name."""
        info = decode(KernelInfo, await self._transport.call("GET", self._path(name), repeat=True))
        return AsyncKernel(self._transport, self._box_id, info)

    async def available(self) -> list[KernelKind]:
        """Return what kernels can be made of the sandbox's image."""
        return decode_list(KernelKind, await self._transport.call("GET", self._path(), repeat=True), "available")

    async def list(self) -> list[AsyncKernel]:
        """Return the kernels."""
        answer = await self._transport.call("GET", self._path(), repeat=True)
        return [AsyncKernel(self._transport, self._box_id, info) for info in decode_list(KernelInfo, answer, "kernels")]
