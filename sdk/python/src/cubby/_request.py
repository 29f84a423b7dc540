"""Builds requests and reads streams; does no I/O."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote, urlsplit

from ._decode import decode, malformed
from .coderesults import CodeError, Display, RichOutput
from .errors import (
    CubbyError,
    InvalidRequestError,
    RequestTimeoutError,
    UnavailableError,
    UnreachableError,
    from_envelope,
)
from .execresults import decode_exec, decode_text
from .models import Chunk, Event, Exit, FileChange, Output, WindowSize
from .taskresults import TaskEvent

DEFAULT_URL = "http://127.0.0.1:9090"

FIRST_WAIT = 2.0
"""How long the request that starts a command waits for its end: short, so that the seq of a long command is known
before anything can happen to the connection."""

WAIT_SLICE = 50.0
"""How long one request waits for an end: less than the time after which proxies cut silent connections."""

INSTALL_WAIT = 3600.0
"""How long a create that installs packages may say nothing."""

SILENCE = 60.0
"""How long a stream may say nothing before its connection is taken for dead; the daemon pings every 15 seconds."""

LONGEST_RETRY_AFTER = 30.0
"""The longest time for which the client waits by itself because the server said so."""


_COLORS = re.compile(r"\x1b\[[0-9;]*m")


@runtime_checkable
class Readable(Protocol):
    """A file that is open for reading bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to size bytes; none at the end."""
        ...


def base_url(url: str) -> str:
    """Check the URL of a daemon; without a slash at its end."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise InvalidRequestError(f"{url!r} is not the URL of a daemon", hint="write it as http://host:port")
    return url.split("#", 1)[0].split("?", 1)[0].rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether the daemon is on this machine: then the environment's proxies are of no use."""
    host = urlsplit(url).hostname or ""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def path(*elements: str | int) -> str:
    """Return the path below /v1 of the elements, each escaped, so that an id cannot reach another resource."""
    for e in elements:
        if e in ("", ".", ".."):
            raise InvalidRequestError(f"{e!r} names nothing")
    return "/v1/" + "/".join(quote(str(e), safe="") for e in elements)


def compact(**fields: Any) -> dict[str, Any]:
    """Return the fields that are given; a dataclass becomes the object of its own given fields.

    Those whose metadata names their value as implied are not given.
    """
    out: dict[str, Any] = {}
    for name, value in fields.items():
        if value is None:
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            implied = {f.name: f.metadata["implied"] for f in dataclasses.fields(value) if "implied" in f.metadata}
            given = dataclasses.asdict(value).items()
            value = compact(**{k: v for k, v in given if k not in implied or v != implied[k]})
        elif isinstance(value, Mapping):
            value = dict(value)
        out[name] = value
    return out


def query(**fields: str | float | bool | None) -> dict[str, str]:
    """Return the query parameters that are given; false ones are left out."""
    out: dict[str, str] = {}
    for name, value in fields.items():
        if value is None or value is False:
            continue
        out[name] = "true" if value is True else str(value)
    return out


def exec_body(
    cmd: str | Sequence[str],
    *,
    timeout: float | None,
    env: Mapping[str, str] | None,
    cwd: str | None,
    user: str | None,
    session: str | None,
    stdin: bool,
    pty: WindowSize | None,
) -> dict[str, Any]:
    """Return the body that starts a command, without how long to wait for it."""
    return compact(
        cmd=cmd if isinstance(cmd, str) else list(cmd),
        timeout_seconds=timeout,
        env=env,
        cwd=cwd,
        user=user,
        session=session,
        stdin=stdin or None,
        pty=pty,
    )


def rfc3339(when: datetime) -> str:
    """Write a time as the API takes it. A naive one would mean another time on every machine and is refused."""
    if when.tzinfo is None:
        raise InvalidRequestError("the time has no zone", hint="use datetime.now(timezone.utc) or .astimezone()")
    return when.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def seconds(value: float | timedelta | None) -> float | None:
    """Read a duration that may be given as either."""
    return value.total_seconds() if isinstance(value, timedelta) else value


@dataclasses.dataclass(frozen=True)
class ServerEvent:
    """One Server-Sent Event."""

    name: str
    data: str
    id: str

    def json(self) -> Any:
        """Read the data."""
        try:
            return json.loads(self.data)
        except ValueError as e:
            raise malformed(f"an event of the stream: {e}") from e

    def failure(self) -> CubbyError:
        """Read the data of an error event."""
        return from_envelope(self.json()) or malformed("an error event of the stream")


class EventDecoder:
    """Parses text/event-stream. An event that the end of the stream cut is dropped: it comes again after a resume."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._name = ""
        self._data: list[str] = []
        self._id = ""

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """Take bytes and give the events that they complete."""
        self._buffer += data
        start = 0
        while (end := self._buffer.find(b"\n", start)) >= 0:
            line = self._buffer[start:end].rstrip(b"\r").decode("utf-8", "replace")
            start = end + 1
            event = self._line(line)
            if event is not None:
                yield event
        del self._buffer[:start]

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            event = ServerEvent(self._name, "\n".join(self._data), self._id) if self._name or self._data else None
            self._name, self._data, self._id = "", [], ""
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = value
        return None


def stream_cut() -> UnavailableError:
    """Return the error for a stream that ended without its last event."""
    return UnavailableError("the stream ended before its end was told", retryable=True)


def read_chunk(event: ServerEvent, after: int) -> tuple[Chunk | None, int, bool]:
    """Make a chunk of an event of a command's stream.

    Returns the chunk, or None for pings and for output that the reader had before; the offset after it; and whether it
    is the last one.
    """
    if event.name in ("stdout", "stderr"):
        fields = event.json()
        offset = fields.get("offset") if isinstance(fields, dict) else None
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise malformed("an event of the stream has no offset")
        data = decode_text(fields.get("data"), fields.get("encoding"))
        following = offset + len(data)
        if following <= after:
            return None, after, False
        if offset < after:  # a record that begins before the point of resumption
            data, offset = data[after - offset :], after
        return Output("stdout" if event.name == "stdout" else "stderr", data, offset, following), following, False
    if event.name == "exit":
        return Exit(decode_exec(event.json()), after), after, True
    if event.name == "error":
        raise event.failure()
    return None, after, False


CodeEvent = Output | RichOutput | Exit
"""What the stream of a cell has on the wire."""


def read_code_chunk(event: ServerEvent, after: int) -> tuple[CodeEvent | None, int, bool]:
    """Make a chunk of an event of a cell's stream; returns as read_chunk does."""
    if event.name != "rich":
        return read_chunk(event, after)
    if not event.id.isdecimal():
        raise malformed("an event of the stream has no offset")
    following = int(event.id)
    if following <= after:
        return None, after, False
    return _read_rich(event.json(), following), following, False


def _read_rich(data: object, following: int) -> RichOutput | None:
    """Read what a cell shows; None when it is of a kind that a newer daemon has."""
    if not isinstance(data, dict):
        raise malformed("an event of the stream is not an object")
    kind = next(iter(data), "")
    value = data.get(kind)
    if not isinstance(value, dict):
        raise malformed("an event of the stream has no content")
    if kind == "display":
        return RichOutput("display", decode(Display, value), update=value.get("update") is True, next=following)
    if kind == "result":
        return RichOutput("result", decode(Display, value), next=following)
    if kind == "error":
        return RichOutput("error", error=_read_code_error(value), next=following)
    if kind == "input":
        password = value.get("password") is True
        return RichOutput("input", prompt=str(value.get("prompt") or ""), password=password, next=following)
    if kind == "kernel":
        return RichOutput("kernel", message=str(value.get("reason") or ""), next=following)
    return RichOutput("clear", next=following) if kind == "clear" else None


def _read_code_error(value: Mapping[str, Any]) -> CodeError:
    """Make the exception of what the kernel says, whose traceback is a list of colored lines."""
    lines = value.get("traceback")
    trace = "\n".join(str(line) for line in lines) if isinstance(lines, list) else ""
    return CodeError(str(value.get("ename") or ""), str(value.get("evalue") or ""), _COLORS.sub("", trace))


def read_event(event: ServerEvent, after: int) -> tuple[Event | None, int, bool]:
    """Make an entry of the history of an event of its stream; returns as read_chunk does."""
    if event.name == "error" and not event.id:
        raise event.failure()
    if not event.id:  # no part of the history: a ping, or the end
        return None, after, event.name == "end"
    entry = decode(Event, event.json())
    if entry.cursor <= after:
        return None, after, False
    return entry, entry.cursor, False


def read_task_event(event: ServerEvent, following: int) -> tuple[TaskEvent | None, int, bool]:
    """Make an event of a task of an event of its stream; returns as read_chunk does, with the id that is next."""
    if not event.id:  # about the stream, not of the task
        if event.name == "error":
            raise event.failure()
        return None, following, False
    data = event.json()
    if not event.id.isdecimal() or not isinstance(data, dict):
        raise malformed("an event of the stream is not a task's")
    last = event.name == "done"
    if (number := int(event.id)) < following:
        return None, following, last
    return TaskEvent(number, event.name, data), number + 1, last


def read_change(event: ServerEvent) -> FileChange | None:
    """Make a change of an event of a watch; None for pings."""
    if event.name == "error":
        raise event.failure()
    if event.name != "change":
        return None
    return decode(FileChange, event.json())


class Backoff:
    """Spaces attempts to reach the daemon again, for up to limit seconds of failures in a row."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._since: float | None = None
        self._wait = 0.0

    def reset(self) -> None:
        """Forget the failures: something went well."""
        self._since = None

    def wait(self, error: CubbyError) -> float | None:
        """Return how long to wait before the next attempt; None when there should be none."""
        if not isinstance(error, (UnreachableError, UnavailableError, RequestTimeoutError)) or not error.retryable:
            return None
        now = time.monotonic()
        if self._since is None:
            self._since, self._wait = now, 0.05
        if now - self._since >= self._limit:
            return None
        wait, self._wait = self._wait, min(2.0, 2 * self._wait)
        return max(wait, min(error.retry_after or 0.0, LONGEST_RETRY_AFTER))


def repeat_after(error: CubbyError, attempt: int, keyed: bool) -> float | None:
    """Return how long to wait before a harmless request is repeated; None when its error is to be told.

    A full host is the caller's to wait for. With an idempotency key a conflict that names a time means that the first
    request, whose answer was lost, is still being carried out.
    """
    busy = keyed and error.code == "conflict" and error.retry_after is not None
    passing = isinstance(error, (UnreachableError, UnavailableError)) and error.retryable
    if not busy and not passing:
        return None
    if error.retry_after is not None and error.retry_after > LONGEST_RETRY_AFTER:
        return None
    return max(float(2**attempt) / 10, error.retry_after or 0.0)
