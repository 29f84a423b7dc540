"""A sandbox's history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

from ._short import Short
from .execresults import ExecKind, ExecStatus

__all__ = [
    "Event",
    "EventKind",
    "EventPage",
]

EventKind = (
    ExecKind
    | Literal[
        "disk.failed",
        "disk.purged",
        "disk.repaired",
        "egress.allowed",
        "egress.denied",
        "egress.lent",
        "egress.unlisted",
        "exec.finished",
        "exec.queued",
        "exec.started",
        "file.dir_made",
        "file.exported",
        "file.extracted",
        "file.imported",
        "file.moved",
        "file.removed",
        "file.written",
        "host.disk_frozen",
        "host.disk_thawed",
        "kernel.created",
        "kernel.deleted",
        "kernel.died",
        "kernel.restarted",
        "limit.hit",
        "port.closed",
        "port.opened",
        "sandbox.adopted",
        "sandbox.archive_failed",
        "sandbox.archived",
        "sandbox.created",
        "sandbox.destroyed",
        "sandbox.died",
        "sandbox.failed",
        "sandbox.forked",
        "sandbox.kept",
        "sandbox.rolled_back",
        "sandbox.slept",
        "sandbox.started",
        "sandbox.stopped",
        "sandbox.updated",
        "sandbox.woken",
        "service.ended",
        "service.failed",
        "service.started",
        "session.forgotten",
        "snapshot.created",
        "snapshot.removed",
    ]
)
"""A fact, or the operation that an event is about."""


@dataclass(frozen=True, repr=False)
class Event(Short):
    """An entry of a sandbox's history.

    Events are facts and never change: an operation that takes its time leaves one for each status that it reached, all
    with its ``seq``. ``seq`` is None for acts that were over at once. ``payload`` is what was asked, ``result`` what
    came of it.
    """

    _shown: ClassVar[Sequence[str]] = ("cursor", "kind", "time", "seq", "status", "payload", "result")

    cursor: int
    kind: EventKind
    time: datetime
    actor: str = ""
    seq: int | None = None
    status: ExecStatus = "done"
    payload: Any = None
    result: Any = None


@dataclass(frozen=True, repr=False)
class EventPage(Short):
    """Events in order, and the cursor to go on from."""

    events: list[Event]
    next: int
