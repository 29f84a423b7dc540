"""How far a sandbox reaches: its policy, what decides, and its connections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ._lists import items
from ._short import Short

__all__ = [
    "EgressConnection",
    "EgressDecision",
    "EgressRule",
    "Network",
    "NetworkMode",
]

NetworkMode = Literal["none", "allowlist", "open"]
"""How far a sandbox can reach."""


EgressRule = Literal["none", "allowlist", "open", "operator", "deny", "address", "name", "server_name"]
"""What decides whether a sandbox reaches a host."""


@dataclass(frozen=True, repr=False, init=False)
class Network(Short):
    """How far a sandbox can reach.

    ``mode`` is ``"none"``, ``"allowlist"`` or ``"open"``; open never includes private addresses. ``allow`` lists hosts
    for ``"allowlist"``: names, ``*.names``, addresses and networks, with or without a port; empty is the daemon's list
    of package indexes. ``deny`` comes before everything that allows, in every mode. ``proxy_env`` is whether
    ``HTTP_PROXY`` and the other variables that name the proxy are set; it is fixed when the sandbox is created.
    """

    mode: NetworkMode | None = None
    allow: list[str] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)
    # What is left out of a change is what the sandbox has.
    proxy_env: bool = field(default=True, metadata={"implied": True})

    def __init__(
        self,
        mode: NetworkMode | None = None,
        allow: str | Sequence[str] = (),
        deny: str | Sequence[str] = (),
        proxy_env: bool = True,
    ) -> None:
        for name, value in (("mode", mode), ("allow", items(allow)), ("deny", items(deny)), ("proxy_env", proxy_env)):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, repr=False)
class EgressDecision(Short):
    """What a sandbox would get that asks for a host.

    ``host`` is in the form that rules compare. ``rule`` is what decides; ``hint`` is how to allow what is denied.
    """

    allow: bool
    host: str
    port: int
    rule: EgressRule
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True, repr=False)
class EgressConnection(Short):
    """A connection of a sandbox to a host outside.

    ``rule`` is what allowed it; ``protocol`` is how it was asked for: ``connect``, ``socks``, ``http`` for one request,
    or ``transparent`` for a program that connected by itself, without the proxy. Bytes are as the sandbox sees them;
    ``age_ms`` counts from when it was asked for.
    """

    host: str
    port: int
    rule: Literal["allowlist", "open", "operator", ""] = ""
    protocol: Literal["connect", "socks", "http", "transparent", ""] = ""
    bytes_sent: int = 0
    bytes_received: int = 0
    age_ms: int = 0
