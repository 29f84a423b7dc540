# Made from ../_async/events.py by tools/unasync.py; change that one.
"""The history of a sandbox."""

from __future__ import annotations

from collections.abc import Iterable

from .._decode import decode
from .._lists import items
from .._request import path, query, read_event
from ..models import EventPage, ExecResult
from .streams import EventStream
from .transport import Transport
from .waiting import wait_finished


class Events:
    """A sandbox's history: everything that was done with it, in order. It outlives the sandbox for a while."""

    def __init__(self, transport: Transport, box_id: str) -> None:
        self._transport = transport
        self._box_id = box_id

    def list(
        self, *, after: int = 0, limit: int | None = None, kinds: str | Iterable[str] | None = None
    ) -> EventPage:
        """Return entries, oldest first, and the cursor to go on from.

        Args:
            after: the cursor after which to begin; 0 is the start.
            limit: most entries in the answer; None is the daemon's choice.
            kinds: only these; ``git.*`` means all of git.
        """
        answer = self._transport.call(
            "GET",
            path("sandboxes", self._box_id, "events"),
            params=query(after=after or None, limit=limit, kinds=_join(kinds)),
            repeat=True,
        )
        return decode(EventPage, answer)

    def follow(self, *, after: int = 0, kinds: str | Iterable[str] | None = None) -> EventStream:
        """Follow the history from a cursor, 0 for the start, until the sandbox is destroyed.

        Args:
            after: the cursor after which to begin.
            kinds: only these.
        """
        params = query(follow=True, kinds=_join(kinds))
        follow = self._transport.follow(path("sandboxes", self._box_id, "events"), params, after, read_event)
        return EventStream(follow, after)

    def wait(self, seq: int, timeout: float | None = None) -> ExecResult:
        """Return an operation (a command, a git operation …) when it has ended.

        Args:
            seq: the operation's number.
            timeout: seconds to wait; after that a RequestTimeoutError is raised, and the operation goes on.
        """
        return wait_finished(self._transport, path("sandboxes", self._box_id, "events", seq), timeout)


def _join(kinds: str | Iterable[str] | None) -> str | None:
    return None if kinds is None else ",".join(items(kinds) or ())
