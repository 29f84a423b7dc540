"""What agentbox's service answers, and how its streams are framed; does no I/O."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._decode import decode, malformed
from ..errors import from_status

AGENTBOX_URL = "http://localhost:50051"
"""Where agentbox's clients look for a server that nobody names."""

SERVICE = "/sandbox.v1.SandboxService/"

PIP_HOSTS = ("pypi.org", "files.pythonhosted.org")
PIP_LIMIT = 120.0
"""Seconds after which the daemon ends an installation."""

EXEC_LIMIT = 30
"""Seconds after which it ends a command that names no limit."""

STREAM_LIMIT = 300.0
"""Seconds after which it ends a command that is followed."""

_LONGEST = 64 << 20
_COMPRESSED, _LAST = 1, 2


@dataclass(frozen=True)
class SessionInfo:
    """A session. Times are seconds since 1970.

    ``allowed_hosts`` is what it may reach; the daemon's list of package indexes when none were given.
    """

    session_id: str = field(metadata={"json": "sessionId"})
    container_id: str = field(default="", metadata={"json": "containerId"})
    created_at: float = field(default=0.0, metadata={"json": "createdAt"})
    last_activity: float = field(default=0.0, metadata={"json": "lastActivity"})
    status: str = ""
    tenant_id: str | None = field(default=None, metadata={"json": "tenantId"})
    allowed_hosts: list[str] = field(default_factory=list, metadata={"json": "allowedHosts"})


@dataclass(frozen=True)
class ExecResult:
    """How a command ended. ``exit_code`` is -1 when it did not end by itself; ``stderr`` then says why."""

    exit_code: int = field(default=0, metadata={"json": "exitCode"})
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = field(default=False, metadata={"json": "timedOut"})


@dataclass(frozen=True)
class StreamEvent:
    """Something that happened to a command.

    ``type`` is ``stdout`` or ``stderr``, with what was printed in ``data``; ``exit``, with the code in ``exit_code``;
    or ``error``, with what is wrong in ``data``. The last two end the stream.
    """

    type: str
    data: str = ""
    exit_code: int | None = field(default=None, metadata={"json": "exitCode"})


def check_success(answer: object, what: str) -> None:
    """Raise what an answer of the file calls reports; they say it in band."""
    fields = answer if isinstance(answer, dict) else {}
    if fields.get("success") is not True:
        raise RuntimeError(f"{what}: {fields.get('error') or 'no reason was given'}")


def reaches(hosts: Sequence[str]) -> bool:
    """Tell whether a list of hosts allows anything; a sandbox's own loopback is no network."""
    return any(h not in ("localhost", "127.0.0.1", "::1") for h in hosts)


def frame(message: dict[str, Any]) -> bytes:
    """Make the one message of a request that is answered by a stream."""
    data = json.dumps(message).encode()
    return struct.pack(">BI", 0, len(data)) + data


class Frames:
    """Parses the messages of a stream: a byte of flags, four of length, JSON.

    Attributes:
        ended: whether the last one came; without it the stream was cut.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.ended = False

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """Take bytes and give the events that they complete; raise the error that the last message reports."""
        self._buffer += data
        while len(self._buffer) >= 5:
            flags, size = struct.unpack_from(">BI", self._buffer)
            if size > _LONGEST or flags & _COMPRESSED:
                raise malformed("a message of the stream")
            if len(self._buffer) < 5 + size:
                return
            try:
                message = json.loads(self._buffer[5 : 5 + size])
            except ValueError as e:
                raise malformed(f"a message of the stream: {e}") from e
            del self._buffer[: 5 + size]
            if flags & _LAST:
                self.ended = True
                if isinstance(message, dict) and (error := from_status(message.get("error"))) is not None:
                    raise error
                return
            yield decode(StreamEvent, message)
