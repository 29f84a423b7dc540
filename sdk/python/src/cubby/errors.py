"""What failing calls raise.

Every error of the daemon has a ``code``; each code has a class here, so that ``except NotFoundError`` is enough.
All of them are a :class:`CubbyError`, which also has what the daemon said about getting further.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from ._short import command_line, tail

if TYPE_CHECKING:
    from .coderesults import Execution
    from .models import ExecResult
    from .taskresults import Task

__all__ = [
    "CanceledError",
    "CapacityError",
    "CodeFailedError",
    "ConflictError",
    "CubbyError",
    "ExecFailedError",
    "ForbiddenError",
    "GitError",
    "InUseError",
    "InstallFailedError",
    "InternalError",
    "InvalidRequestError",
    "LowMemoryError",
    "NotFoundError",
    "QuotaExceededError",
    "RequestTimeoutError",
    "TaskFailedError",
    "TaskInProgressError",
    "TooLargeError",
    "UnauthorizedError",
    "UnavailableError",
    "UnreachableError",
    "UnsupportedError",
    "WrongStateError",
]


class CubbyError(Exception):
    """What every failing call raises.

    Attributes:
        code: what a program can decide by, ``"not_found"`` for example. Codes may be added; treat an unknown one by
            ``retryable``.
        message: what went wrong, for people.
        hint: how to get further; may be empty.
        request_id: names the request in the daemon's log; empty when there was no answer.
        retryable: whether the same request may succeed later.
        retry_after: when, in seconds, where the daemon said so.
        status: the HTTP status; 0 when there was no answer.
    """

    default_code: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        hint: str = "",
        request_id: str = "",
        retryable: bool = False,
        retry_after: float | None = None,
        status: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.message = message
        self.hint = hint
        self.request_id = request_id
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r}, code={self.code!r}, status={self.status})"

    def __reduce__(self) -> tuple[object, ...]:
        # Arguments after the message are keywords, which the default does not restore.
        return (_restore, (type(self), self.args, self.__dict__.copy()))


def _restore(cls: type[CubbyError], args: tuple[object, ...], state: dict[str, object]) -> CubbyError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidRequestError(CubbyError):
    """The request is wrong and will be wrong again."""

    default_code = "invalid_request"


class UnauthorizedError(CubbyError):
    """There is no token, or one that the daemon does not know."""

    default_code = "unauthorized"


class ForbiddenError(CubbyError):
    """The token may not do this."""

    default_code = "forbidden"


class NotFoundError(CubbyError):
    """It does not exist, or not for this token."""

    default_code = "not_found"


class ConflictError(CubbyError):
    """It exists already, or belongs to somebody else."""

    default_code = "conflict"


class WrongStateError(CubbyError):
    """The sandbox or the command is in a state that forbids this."""

    default_code = "wrong_state"


class InUseError(WrongStateError):
    """Something runs that this would break, and the call did not say that it may."""

    default_code = "in_use"


class TaskInProgressError(ConflictError):
    """A coding agent works where this would."""

    default_code = "task_in_progress"


class TooLargeError(CubbyError):
    """The request or its result is over a documented size."""

    default_code = "too_large"


class CapacityError(CubbyError):
    """The host has no room now; ``retry_after`` says when to try again."""

    default_code = "sandbox_capacity"


class LowMemoryError(CapacityError):
    """The host's memory is at its reserve; try again after ``retry_after``."""

    default_code = "low_memory"


class QuotaExceededError(CubbyError):
    """The tenant, the thread or the sandbox has all that a bound of the operator gives; give something back, or try
    again after ``retry_after``.
    """

    default_code = "quota_exceeded"


class UnavailableError(CubbyError):
    """The sandbox (``sandbox_unavailable``), or the daemon itself (``unavailable``), cannot answer now."""

    default_code = "sandbox_unavailable"


class RequestTimeoutError(CubbyError):
    """The time that was allowed for the request is over."""

    default_code = "timeout"


class CanceledError(CubbyError):
    """The request was canceled."""

    default_code = "canceled"


class UnsupportedError(CubbyError):
    """This host or image cannot do it."""

    default_code = "unsupported"


class InternalError(CubbyError):
    """A fault of the daemon, or an answer that cannot be read."""

    default_code = "internal"


class UnreachableError(CubbyError):
    """No daemon answers. It never comes from a daemon."""

    default_code = "unreachable"


class ExecFailedError(CubbyError):
    """A command did not end with exit code 0; raised only where that was asked for, by ``check``.

    The message has the command and the end of what it wrote to standard error.

    Attributes:
        result: the command, with its output.
    """

    default_code = "exec_failed"

    def __init__(self, result: ExecResult) -> None:
        name = command_line(result.cmd)
        said = tail(result.stderr)
        super().__init__(
            result.describe_end() + (f"\n$ {name}" if name else "") + (f"\n{said}" if said else ""),
        )
        self.result = result


class CodeFailedError(CubbyError):
    """A cell raised an exception, or did not end by itself; raised only where that was asked for.

    Attributes:
        execution: the cell, with what it printed and showed, and its exception in ``error``.
    """

    default_code = "code_failed"

    def __init__(self, execution: Execution) -> None:
        super().__init__(execution.describe_end())
        self.execution = execution


class TaskFailedError(CubbyError):
    """A task of a coding agent did not succeed; raised only where that was asked for, by ``check``.

    Its code is the reason, ``agent_error`` for example.

    Attributes:
        task: the task, with what it changed.
    """

    def __init__(self, task: Task) -> None:
        said = task.error_message.strip()
        super().__init__(
            f"the task {task.id} {task.status}" + (f": {said}" if said else ""), code=task.failure_reason or task.status
        )
        self.task = task


class InstallFailedError(CubbyError):
    """Packages could not be installed. The message has the end of the installer's log.

    Attributes:
        result: the installation, with its whole log.
    """

    default_code = "install_failed"

    def __init__(self, result: ExecResult) -> None:
        log = (result.stderr.strip() or result.stdout.strip())[-2000:]
        super().__init__(f"installing packages: {result.describe_end()}" + (f"\n{log}" if log else ""))
        self.result = result


class GitError(CubbyError):
    """Git did not do what it was asked.

    ``code`` is one of git's: ``auth_required``, ``auth_failed``, ``repository_not_found``, ``nothing_to_commit``,
    ``conflict``, ``non_fast_forward`` …, or the reason why the operation was ended, such as ``timeout``.

    Attributes:
        result: the operation, with what git printed.
        files: the paths in conflict.
    """

    def __init__(self, result: ExecResult) -> None:
        failure = result.result.get("error") if isinstance(result.result, Mapping) else None
        detail: Mapping[str, object] = failure if isinstance(failure, Mapping) else {}
        super().__init__(
            str(detail.get("message") or result.describe_end()),
            code=str(detail.get("code") or (result.reason if result.reason not in ("", "exited") else "failed")),
            hint=str(detail.get("hint") or ""),
        )
        files = detail.get("files")
        self.result = result
        self.files = [str(f) for f in files] if isinstance(files, list) else []


_CLASSES: dict[str, type[CubbyError]] = {
    cls.default_code: cls
    for cls in (
        InvalidRequestError,
        UnauthorizedError,
        ForbiddenError,
        NotFoundError,
        ConflictError,
        WrongStateError,
        InUseError,
        TaskInProgressError,
        TooLargeError,
        CapacityError,
        LowMemoryError,
        QuotaExceededError,
        UnavailableError,
        RequestTimeoutError,
        CanceledError,
        UnsupportedError,
        InternalError,
        UnreachableError,
    )
}
_CLASSES["unavailable"] = UnavailableError
_CLASSES["shared_files"] = ConflictError

_BY_STATUS = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    413: "too_large",
    429: "sandbox_unavailable",
    502: "sandbox_unavailable",
    503: "sandbox_unavailable",
    504: "timeout",
}


def from_envelope(data: object, status: int = 0, retry_after: float | None = None) -> CubbyError | None:
    """Read ``{"error":{…}}``; None when data is something else."""
    detail = data.get("error") if isinstance(data, Mapping) else None
    if not isinstance(detail, Mapping):
        return None
    code = detail.get("code")
    if not isinstance(code, str) or not code:
        return None
    cls = _CLASSES.get(code, CubbyError)
    return cls(
        str(detail.get("message") or code.replace("_", " ")),
        code=code,
        hint=str(detail.get("hint") or ""),
        request_id=str(detail.get("request_id") or ""),
        retryable=detail.get("retryable") is True,
        retry_after=retry_after,
        status=status,
    )


_BY_CONNECT = {
    "invalid_argument": "invalid_request",
    "unauthenticated": "unauthorized",
    "permission_denied": "forbidden",
    "not_found": "not_found",
    "already_exists": "conflict",
    "failed_precondition": "wrong_state",
    "out_of_range": "too_large",
    "resource_exhausted": "sandbox_capacity",
    "unavailable": "sandbox_unavailable",
    "deadline_exceeded": "timeout",
    "canceled": "canceled",
    "unimplemented": "unsupported",
    "unknown": "internal",
    "internal": "internal",
}


def from_status(data: object, status: int = 0) -> CubbyError | None:
    """Read an error as Connect writes it, ``{"code":"not_found","message":…}``; None when data is something else."""
    detail = data if isinstance(data, Mapping) else {}
    code = _BY_CONNECT.get(str(detail.get("code")))
    if code is None:
        return None
    return _CLASSES[code](
        str(detail.get("message") or code.replace("_", " ")), retryable=code == "sandbox_unavailable", status=status
    )


def from_answer(status: int, reason: str, headers: Mapping[str, str], body: bytes) -> CubbyError:
    """Return the error that an answer reports.

    An answer without an envelope, of a proxy in between or of something that is not Cubby, becomes an error by its
    status.
    """
    retry_after = _retry_after(headers)
    try:
        data: object = json.loads(body)
    except ValueError:
        data = None
    error = from_envelope(data, status, retry_after) or from_status(data, status)
    if error is not None:
        return error
    if status == 416:
        return InvalidRequestError("the range is outside of the file", status=status)
    code = _BY_STATUS.get(status) or ("invalid_request" if status < 500 else "internal")
    return _CLASSES[code](
        f"the server answered {status} {reason}".rstrip(),
        hint="this answer does not look like Cubby's: check CUBBY_URL",
        request_id=headers.get("x-request-id", ""),
        retryable=status in (429, 502, 503, 504),
        retry_after=retry_after,
        status=status,
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Read the header's form in seconds, the only one that Cubby sends."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
