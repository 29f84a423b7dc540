# Made from ../_async/services.py by tools/unasync.py; change that one.
"""The services of a sandbox."""

from __future__ import annotations

import builtins

from .._decode import decode, decode_list, malformed
from .._request import path, query
from ..execresults import decode_exec
from ..models import ExecResult
from ..serviceresults import Service
from .process import Process
from .transport import Transport


class Services:
    """The commands that run for as long as the sandbox does.

    They are declared at create or by an update. A run of one is a command, whose output is read as any other's.
    """

    def __init__(self, transport: Transport, box: str) -> None:
        self._transport = transport
        self._box = box

    def _path(self, *elements: str) -> str:
        return path("sandboxes", self._box, "services", *elements)

    def list(self) -> builtins.list[Service]:
        """Return the services and how they stand. It wakes nothing."""
        return decode_list(Service, self._transport.call("GET", self._path(), repeat=True), "services")

    def get(self, name: str) -> Service:
        """Return one service. It wakes nothing."""
        return decode(Service, self._transport.call("GET", self._path(name), repeat=True))

    def start(self, name: str) -> Service:
        """Start a service, also one that was given up. One that runs is left as it is."""
        return decode(Service, self._transport.call("POST", self._path(name, "start"), repeat=True))

    def stop(self, name: str) -> Service:
        """Stop a service, which stays stopped until it is started or the sandbox is."""
        return decode(Service, self._transport.call("POST", self._path(name, "stop"), repeat=True))

    def restart(self, name: str) -> Service:
        """Stop a service if it runs, and start it."""
        return decode(Service, self._transport.call("POST", self._path(name, "restart")))

    def process(self, name: str) -> Process | None:
        """Return a handle on the last run of a service, whose output is the service's; None before the first."""
        seq = (self.get(name)).exec
        return Process(self._transport, self._box, seq) if seq else None

    def runs(self, name: str, *, after_seq: int = 0, limit: int | None = None) -> builtins.list[ExecResult]:
        """Return the runs of a service after a number, in order, without their output."""
        params = query(service=name, after_seq=after_seq or None, limit=limit)
        answer = self._transport.call("GET", path("sandboxes", self._box, "execs"), params=params, repeat=True)
        items = answer.get("execs") if isinstance(answer, dict) else None
        if not isinstance(items, builtins.list):
            raise malformed("execs is not a list")
        return [decode_exec(item) for item in items]
