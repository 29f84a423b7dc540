"""What cells of code and their kernels come back as."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from ._decode import decode, malformed
from ._short import Short
from .errors import CodeFailedError
from .models import EndReason, ExecStatus, Output

__all__ = [
    "CodeChunk",
    "CodeCompleteness",
    "CodeCompletion",
    "CodeEnd",
    "CodeError",
    "CodeInspection",
    "Display",
    "Execution",
    "KernelInfo",
    "KernelKind",
    "RichOutput",
]


class _Rich:
    """Reads what code shows, in the formats that it has."""

    def _bundles(self) -> Iterator[Mapping[str, Any]]:
        raise NotImplementedError

    def get(self, mime: str) -> Any:
        """Return the first value of a MIME type, as the kernel gave it: text, base64 of binary types, or JSON.

        None when there is none.
        """
        return next((bundle[mime] for bundle in self._bundles() if mime in bundle), None)

    def get_text(self, mime: str) -> str | None:
        """Return the first value of a MIME type that is text; None when there is none."""
        value = self.get(mime)
        return value if isinstance(value, str) else None

    def get_bytes(self, mime: str) -> bytes | None:
        """Return the first value of a binary MIME type, ``audio/wav`` for example; None when there is none."""
        value = self.get_text(mime)
        if value is None:
            return None
        try:
            return base64.b64decode(value)
        except (binascii.Error, ValueError) as e:
            raise malformed(f"{mime} is not base64: {e}") from e

    @property
    def html(self) -> str | None:
        """The first HTML."""
        return self.get_text("text/html")

    @property
    def markdown(self) -> str | None:
        """The first Markdown."""
        return self.get_text("text/markdown")

    @property
    def latex(self) -> str | None:
        """The first LaTeX."""
        return self.get_text("text/latex")

    @property
    def svg(self) -> str | None:
        """The first SVG image, as its source."""
        return self.get_text("image/svg+xml")

    @property
    def png(self) -> bytes | None:
        """The first PNG image, as the bytes of its file."""
        return self.get_bytes("image/png")

    @property
    def jpeg(self) -> bytes | None:
        """The first JPEG image, as the bytes of its file."""
        return self.get_bytes("image/jpeg")

    @property
    def json(self) -> Any:
        """The first value that was shown as JSON."""
        return self.get("application/json")


@dataclass(frozen=True, repr=False)
class CodeError(Short):
    """The exception that ended a cell.

    ``type`` is its class, ``ZeroDivisionError`` for example; ``traceback`` is text without colors.
    """

    type: str
    message: str = ""
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True, repr=False)
class Display(_Rich):
    """A value that a cell showed, in as many formats as it has. Notebooks show it as it is.

    Attributes:
        data: the value by MIME type. Binary types are base64, JSON types are JSON.
        metadata: what the kernel says about it, by MIME type.
        display_id: names a display that can be updated.
    """

    data: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    display_id: str = ""

    def __repr__(self) -> str:
        more = ", …" if len(self.data) > 5 else ""
        return f"<Display {', '.join(list(self.data)[:5])}{more}>"

    def _bundles(self) -> Iterator[Mapping[str, Any]]:
        yield self.data

    @property
    def text(self) -> str | None:
        """Its plain text."""
        return self.get_text("text/plain")

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return _chosen(self.data, include, exclude), self.metadata


@dataclass(frozen=True, repr=False)
class Execution(_Rich):
    """One cell: how it stands, and when it has finished how it ended.

    ``png``, ``html`` and the like are of the result, or of the first of the outputs that has one. Long texts are cut,
    with a note at their end; :meth:`cubby.Cell.output` has the whole output.

    Attributes:
        seq: its number within the sandbox, counted together with commands.
        status: ``pending`` while others run in its kernel, ``running``, ``done`` when the code itself ended, or
            ``error`` when something else ended it.
        success: it ended, and nothing was raised.
        kernel: the name of the kernel that ran it.
        language: what it is written in.
        stdout, stderr: what it printed.
        execution_count: how many cells the kernel had run, with this one.
        result: the value of the last expression by MIME type; None when it had none.
        outputs: what it displayed, in order; updates are applied and cleared outputs gone.
        error: what it raised; None when it raised nothing.
        reason: why it ended: ``exited``, ``timeout``, ``killed``, ``oom``, ``kernel_died``, ``not_started`` …
        message: more about the end, for people.
        kernel_restarted: why the kernel had to begin anew, so that what cells before defined is gone; else empty.
        restore_incomplete: what is gone and what is not, when the sandbox was woken for the cell and its memory was
            lost; else empty.
        truncated: fields that were cut, with their whole length in characters.
        output_pruned: the output was removed to make room for later ones.
    """

    seq: int
    status: ExecStatus
    success: bool = False
    kernel: str = ""
    language: str = ""
    stdout: str = ""
    stderr: str = ""
    execution_count: int = 0
    result: dict[str, Any] | None = None
    outputs: list[Display] = field(default_factory=list)
    error: CodeError | None = None
    reason: Literal[EndReason, ""] = ""
    message: str = ""
    kernel_restarted: str = ""
    restore_incomplete: str = ""
    truncated: dict[str, int] = field(default_factory=dict)
    output_pruned: bool = False
    duration_ms: float = 0.0
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None

    def __repr__(self) -> str:
        shown = f", {len(self.outputs)} outputs" if self.outputs else ""
        said = f"{self.status}: {self.error or repr(self.text)}"
        return f"<Execution {self.seq} {said[:200]}{'…' if len(said) > 200 else ''}{shown}>"

    def _bundles(self) -> Iterator[Mapping[str, Any]]:
        if self.result is not None:
            yield self.result
        for output in self.outputs:
            yield output.data

    @property
    def finished(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.status in ("done", "error")

    @property
    def text(self) -> str | None:
        """The value of the last expression as plain text; None when it had none."""
        value = (self.result or {}).get("text/plain")
        return value if isinstance(value, str) else None

    def raise_for_error(self) -> Execution:
        """Return it when the code ended and raised nothing; else raise :class:`cubby.CodeFailedError`."""
        if not self.success:
            raise CodeFailedError(self)
        return self

    def describe_end(self) -> str:
        """Say in one line how it ended."""
        if not self.finished:
            return f"cell {self.seq} is {self.status}"
        if self.message or self.error is None or self.reason not in ("", "exited"):
            return f"cell {self.seq}: {self.message or self.error or self.reason or self.status}"
        return f"cell {self.seq}: {self.error}"

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, Any]:
        bundle = dict(next(self._bundles(), {}))
        if self.error is not None:
            bundle = {"text/plain": self.error.traceback or str(self.error)}
        bundle.setdefault("text/plain", self.stdout or repr(self))
        return _chosen(bundle, include, exclude)


def decode_execution(data: object) -> Execution:
    """Make an Execution of the API's JSON."""
    return decode(Execution, data)


def _chosen(
    bundle: Mapping[str, Any], include: Collection[str] | None, exclude: Collection[str] | None
) -> dict[str, Any]:
    return {k: v for k, v in bundle.items() if (not include or k in include) and (not exclude or k not in exclude)}


@dataclass(frozen=True, repr=False)
class RichOutput(Short):
    """A thing beside text that a cell shows, as it comes.

    Attributes:
        kind: which of these it is: ``display``, ``result``, ``error``, ``clear`` (what was shown so far is to be
            removed), ``input`` (the cell asks ``prompt`` and waits) or ``kernel`` (``message`` says what happened to
            it).
        display: the value of a display or a result.
        update: the display takes the place of the one with the same ``display_id``.
        error: the exception.
        prompt: the question; ``password`` says that the answer should not be shown.
        message: what happened to the kernel.
        next: the offset after it.
    """

    kind: Literal["display", "result", "error", "clear", "input", "kernel"]
    display: Display | None = None
    update: bool = False
    error: CodeError | None = None
    prompt: str = ""
    password: bool = False
    message: str = ""
    next: int = 0


@dataclass(frozen=True, repr=False)
class CodeEnd(Short):
    """The end of a cell, the last chunk of its stream, with everything that it printed and showed."""

    execution: Execution
    offset: int


CodeChunk = Output | RichOutput | CodeEnd
"""What the stream of a cell gives."""


@dataclass(frozen=True, repr=False)
class KernelInfo(Short):
    """How a kernel stood when the daemon was asked.

    ``status`` is ``starting``, ``idle``, ``busy`` or ``dead``, and then ``reason`` says why; the next cell starts it
    anew. ``execution_count`` counts the cells of its present process, ``restarts`` its processes before, ``waiting``
    the cells behind the running one. ``spec`` is the kernelspec of the image that it was made from.
    """

    name: str
    language: str = ""
    spec: str = ""
    display_name: str = ""
    status: Literal["starting", "idle", "busy", "dead", ""] = ""
    reason: str = ""
    execution_count: int = 0
    pid: int = 0
    restarts: int = 0
    waiting: int = 0
    created_at: datetime | None = None
    started_at: datetime | None = None


@dataclass(frozen=True, repr=False)
class KernelKind(Short):
    """A kernel that the sandbox's image can run."""

    spec: str
    language: str = ""
    display_name: str = ""


@dataclass(frozen=True, repr=False)
class CodeCompletion(Short):
    """How code can go on.

    Attributes:
        matches: what may stand in the place of ``code[cursor_start:cursor_end]``.
        truncated: whether there are more matches.
    """

    matches: list[str] = field(default_factory=list)
    cursor_start: int = 0
    cursor_end: int = 0
    truncated: bool = False


@dataclass(frozen=True, repr=False)
class CodeInspection(Short):
    """What a kernel knows about a name, as texts by MIME type."""

    found: bool
    data: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The plain text."""
        return self.data.get("text/plain", "")


@dataclass(frozen=True, repr=False)
class CodeCompleteness(Short):
    """Whether code can be run as it stands.

    Attributes:
        status: ``"complete"``, ``"incomplete"`` when more lines belong to it, ``"invalid"`` when no line can mend it,
            or ``"unknown"`` when the kernel cannot say.
        indent: what the next line of incomplete code begins with.
    """

    status: Literal["complete", "incomplete", "invalid", "unknown"]
    indent: str = ""
