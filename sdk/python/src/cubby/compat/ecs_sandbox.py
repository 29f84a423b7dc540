"""The client of ecs-sandbox, for code that was written for it: change the import and the URL.

    from cubby.compat.ecs_sandbox import SandboxClient

    async with SandboxClient("http://127.0.0.1:9090", secret) as client:
        await client.create_session("my-session")
        submitted = await client.exec("my-session", "echo hello")
        event = await client.wait_for_event("my-session", submitted.seq)
        print(event.result["stdout"])

It speaks that system's part of Cubby's API. New code has more from :class:`cubby.AsyncClient`, for the same sandboxes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from .._decode import decode, decode_list
from .._request import base_url

__all__ = ["Event", "ExecSubmitResponse", "SandboxClient", "SandboxError", "Session"]

_SYNC_CAP = 30.0


class SandboxError(httpx.HTTPStatusError):
    """An answer that is not a success.

    Attributes:
        status_code: the HTTP status.
        error: what went wrong, for programs: ``session_not_found`` for example.
        detail: what went wrong, for people.
    """

    def __init__(self, response: httpx.Response) -> None:
        try:
            body: Any = response.json()
        except ValueError:
            body = None
        told: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
        self.status_code = response.status_code
        self.error = str(told.get("error") or "")
        self.detail = str(told.get("detail") or self.error or response.reason_phrase)
        super().__init__(f"{response.status_code}: {self.detail}", request=response.request, response=response)


@dataclass(frozen=True)
class Session:
    """A session. Times are milliseconds since 1970."""

    id: str
    status: str
    created_at: int = 0
    expires_at: int | None = None
    last_active_at: int | None = None
    container_id: str | None = None
    container_ip: str | None = None
    workspace_path: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExecSubmitResponse:
    """A command that was accepted. ``result`` is there when the call waited for its end."""

    seq: int
    status: str
    result: dict[str, Any] | None = None


@dataclass(frozen=True)
class Event:
    """An operation of a session. Times are milliseconds since 1970.

    ``status`` is ``pending``, ``running``, ``done`` or ``error``; ``result`` has ``stdout``, ``stderr``, ``exit_code``
    and ``duration_ms`` when it has ended.
    """

    seq: int
    status: str
    kind: str = ""
    payload: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    submitted_at: int | None = None
    completed_at: int | None = None
    session_id: str = ""
    id: int | None = None


class SandboxClient:
    """Talks to one server with one secret. Use it in an ``async with``, or close it at the end.

    Args:
        base_url: ``"http://host:port"``.
        secret: what goes into the header X-Sandbox-Secret; one of the daemon's tokens.
        timeout: seconds for one request.

    Every call raises a :class:`SandboxError` when the answer is not a success, and an ``httpx.TransportError`` when
    there is none.
    """

    def __init__(self, base_url: str, secret: str, timeout: float = 30.0) -> None:
        self._http = _client(base_url, secret, timeout)
        self._timeout = timeout

    async def __aenter__(self) -> SandboxClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Sessions go on."""
        await self._http.aclose()

    async def _call(self, method: str, path: str, **request: Any) -> Any:
        response = await self._http.request(method, path, **request)
        if not response.is_success:
            raise SandboxError(response)
        return response.json() if response.content else {}

    async def create_session(
        self,
        session_id: str,
        ttl_seconds: int = 1800,
        image: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Create a session; it ends when it was not used for ttl_seconds."""
        body = {"id": session_id, "ttl_seconds": ttl_seconds, "image": image, "metadata": metadata}
        given = {k: v for k, v in body.items() if v is not None}
        return decode(Session, await self._call("POST", "/sandbox", json=given))

    async def exec(
        self,
        session_id: str,
        cmd: str,
        cwd: str | None = None,
        timeout_seconds: int = 300,
        env: Mapping[str, str] | None = None,
        sync: bool = False,
    ) -> ExecSubmitResponse:
        """Run a line of shell; a session's commands run one after another in one shell.

        Without cwd it runs where the shell is: at first /workspace, later where a ``cd`` before it led. With sync it
        waits for the end, up to 30 seconds; after that a SandboxError with status 408 is raised.
        """
        body: dict[str, Any] = {"cmd": cmd, "timeout_seconds": timeout_seconds, "sync": sync}
        if cwd is not None:
            body["cwd"] = cwd
        if env is not None:
            body["env"] = dict(env)
        timeout = max(self._timeout, _SYNC_CAP + 10) if sync else self._timeout
        answer = await self._call("POST", _path(session_id, "exec"), json=body, timeout=timeout)
        return decode(ExecSubmitResponse, answer)

    async def get_event(self, session_id: str, seq: int) -> Event:
        """Return an operation as it stands."""
        return decode(Event, await self._call("GET", _path(session_id, "events", str(seq))))

    async def get_history(self, session_id: str, limit: int = 50, after_seq: int = 0) -> list[Event]:
        """Return operations in order, after a number."""
        params = {"limit": limit, "after_seq": after_seq}
        answer = await self._call("GET", _path(session_id, "history"), params=params)
        return decode_list(Event, answer, "events")

    async def wait_for_event(
        self, session_id: str, seq: int, poll_interval: float = 1.0, timeout: float = 300.0
    ) -> Event:
        """Return an operation when it has ended; raise TimeoutError when the time is up before."""
        deadline = time.monotonic() + timeout
        while True:
            event = await self.get_event(session_id, seq)
            if event.status in ("done", "error"):
                return event
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"operation {seq} of {session_id} is {event.status} after {timeout:g} seconds")
            await asyncio.sleep(min(poll_interval, left))

    async def destroy_session(self, session_id: str) -> dict[str, Any]:
        """End a session and return the server's answer."""
        return _object(await self._call("DELETE", _path(session_id)))

    async def read_file(self, session_id: str, path: str) -> dict[str, Any]:
        """Return ``{"path", "content_b64", "size_bytes"}`` of a file."""
        return _object(await self._call("GET", _path(session_id, "fs"), params={"path": path}))

    async def write_file(self, session_id: str, path: str, content_b64: str) -> dict[str, Any]:
        """Write a file whose content is given as base64; directories above it are made."""
        body = {"path": path, "content_b64": content_b64}
        return _object(await self._call("POST", _path(session_id, "fs"), json=body))

    async def list_files(self, session_id: str, path: str = "/workspace") -> dict[str, Any]:
        """Return ``{"path", "entries": [{"name", "type", "size_bytes"}]}`` of a directory."""
        return _object(await self._call("GET", _path(session_id, "fs", "list"), params={"path": path}))


def _client(url: str, secret: str, timeout: float) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=base_url(url), headers={"X-Sandbox-Secret": secret}, timeout=timeout)


def _path(session_id: str, *elements: str) -> str:
    return "/".join(["/sandbox", quote(session_id, safe=""), *elements])


def _object(answer: Any) -> dict[str, Any]:
    return answer if isinstance(answer, dict) else {}
