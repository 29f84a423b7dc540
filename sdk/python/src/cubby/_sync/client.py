# Made from ../_async/client.py by tools/unasync.py; change that one.
"""The client of a daemon."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType

import httpx

from .._decode import decode, decode_list, malformed
from .._lists import items
from .._request import DEFAULT_URL, path, query
from ..models import Archive, Image, Problem, ThreadInfo
from .sandboxes import Sandboxes
from .secrets import Secrets
from .snapshots import Snapshots
from .tenants import Tenants
from .transport import Transport

# How long the making of an image may take: packages of Debian, then half an hour of steps.
IMAGE_WAIT = 3600.0


class Client:
    """Talks to one daemon. It can be used from many places at once; close it, or use it in a ``with``, at the end.

    Args:
        url: the daemon, ``"http://host:port"``; default ``CUBBY_URL`` of the environment, else http://127.0.0.1:9090.
        token: authenticates every request; default ``CUBBY_TOKEN`` of the environment.
        timeout: seconds without a byte after which an ordinary request is given up; None is never. Waiting for
            commands and streams is not bound by it.
        retries: how often a request that is harmless to repeat is repeated when the daemon could not be reached or was
            busy.
        resume: for how many seconds streams and waits try to reach the daemon again after their connection broke.
        transport: what httpx sends requests by, for tests and special networks.

    Attributes:
        sandboxes: makes, finds and lists sandboxes.
        snapshots: sandboxes that are kept as they were.
        tenants: whose sandboxes share files.
        secrets: what the operator sets for the tasks of tenants.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float | None = 600.0,
        retries: int = 2,
        resume: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._transport = Transport(
            url or os.environ.get("CUBBY_URL") or DEFAULT_URL,
            token if token is not None else os.environ.get("CUBBY_TOKEN", ""),
            timeout=timeout,
            retries=retries,
            resume=resume,
            transport=transport,
        )
        self.sandboxes = Sandboxes(self._transport)
        self.snapshots = Snapshots(self._transport)
        self.tenants = Tenants(self._transport)
        self.secrets = Secrets(self._transport)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    @property
    def url(self) -> str:
        """The daemon's URL, without a slash at its end."""
        return self._transport.url

    def close(self) -> None:
        """Close the connections. Sandboxes go on."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def images(self) -> list[Image]:
        """Return the images that sandboxes can start from."""
        return decode_list(Image, self._transport.call("GET", "/v1/images", repeat=True), "images")

    def create_image(
        self,
        name: str | None = None,
        *,
        from_image: str | None = None,
        pull: str | None = None,
        apt: str | Sequence[str] = (),
        npm: str | Sequence[str] = (),
        pip: str | Sequence[str] = (),
        run: str | Sequence[str] = (),
        allow: str | Sequence[str] = (),
    ) -> Image:
        """Build or pull an image and return when it is there; not for tokens of a tenant.

        It may take half an hour. The daemon goes on when the caller leaves; until it has ended, another call for the
        same name raises a ConflictError.

        Args:
            name: a built-in recipe; with ``from_image`` or ``pull`` the name of the image that is made.
            from_image: the image that the packages and commands are added to.
            pull: fetches this image from an OCI registry: ``"docker.io/library/alpine"``.
            apt: Debian packages.
            npm: packages of npm, for everybody.
            pip: packages of pip, for everybody.
            run: commands for sh, as root in a sandbox.
            allow: hosts that the commands may reach; none by default.
        """
        lists = {"apt": apt, "npm": npm, "pip": pip, "run": run, "allow": allow}
        body = {key: items(words) for key, words in lists.items() if words}
        fields = query(**{"name": name, "from": from_image, "pull": pull})
        answer = self._transport.call("POST", path("images"), json={**fields, **body}, wait=IMAGE_WAIT)
        return decode(Image, answer)

    def remove_image(self, name: str) -> None:
        """Remove an image that no sandbox uses, by its name or digest; not for tokens of a tenant."""
        self._transport.call("DELETE", path("images", name))

    def archive(self, name: str, *, tenant_id: str | None = None) -> Archive:
        """Return the archive of a destroyed sandbox.

        Args:
            name: the archive's.
            tenant_id: whose sandbox it was; default the token's tenant, if it belongs to one.
        """
        params = query(tenant_id=tenant_id)
        return decode(Archive, self._transport.call("GET", path("archives", name), params=params, repeat=True))

    def remove_archive(self, name: str, *, tenant_id: str | None = None) -> None:
        """Delete an archive. Takes what :meth:`archive` takes."""
        self._transport.call("DELETE", path("archives", name), params=query(tenant_id=tenant_id), repeat=True)

    def threads(self) -> list[ThreadInfo]:
        """Return the threads that have sandboxes."""
        return decode_list(ThreadInfo, self._transport.call("GET", path("threads"), repeat=True), "threads")

    def destroy_thread(self, thread: str) -> int:
        """Destroy the sandboxes of a thread, remove its uploads, and return how many sandboxes that were."""
        answer = self._transport.call("DELETE", path("threads", thread))
        destroyed = answer.get("destroyed") if isinstance(answer, dict) else None
        if not isinstance(destroyed, int):
            raise malformed("destroyed is not a number")
        return destroyed

    def health(self) -> None:
        """Return when the daemon answers; it needs no token. Else raise a CubbyError."""
        self._transport.fetch("GET", "/healthz", repeat=True)

    def ready(self) -> list[Problem]:
        """Return what keeps the daemon from serving well; nothing when it is ready."""
        body = self._transport.probe("/readyz")
        return [] if body is None else decode_list(Problem, body, "problems")
